//! The areas of cases, one file each.

mod adapters;
mod flux;
mod layers;
mod patches;
mod quant;
mod quant_conv;
mod sequence;
mod stacked;

use burn::tensor::{Device, TensorData};

use crate::{Case, Comparison, Outcome, Tolerance};

/// Runs `case` in its area.
pub(crate) fn run(case: &Case, device: &Device) -> Outcome {
    let result = match case.area() {
        "layers" => layers::run(case, device),
        "patches" | "peers" => patches::run(case, device),
        "adapters" => adapters::run(case, device),
        "flux" => flux::run(case, device),
        "quant_gguf" | "quant_bnb" | "quant_sdnq" | "quant_fp8" => quant::run(case, device),
        "quant_conv" => quant_conv::run(case, device),
        "stacked" => stacked::run(case, device),
        area => Err(Refusal::Unsupported(format!(
            "no case of the area `{area}` is handled yet"
        ))),
    };
    match (result, case.meta("expect_error")) {
        (Ok(_), Some(word)) => Outcome::Failed(format!("ran, but must be refused naming `{word}`")),
        (Ok(comparison), None) => Outcome::Ran(comparison),
        (Err(Refusal::Failed(why)), Some(word)) if why.contains(word) => Outcome::Ran(EXACT),
        (Err(Refusal::Failed(why)), _) => Outcome::Failed(why),
        (Err(Refusal::Unsupported(why)), _) => Outcome::Unsupported(why),
    }
}

/// Why a case gave no comparison.
pub(crate) enum Refusal {
    /// It ran and went wrong.
    Failed(String),
    /// Nothing here can run it yet.
    Unsupported(String),
}

impl From<String> for Refusal {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

/// Compares `found` with the case's tensor `name`, and its dtype with `output_dtype`.
pub(crate) fn against(case: &Case, name: &str, found: &TensorData) -> Result<Comparison, Refusal> {
    let expected = case.data(name)?;
    let mut tolerance = Tolerance::of(case);
    if case.listed("expect_exact").contains(&name) {
        tolerance = tolerance.exact();
    }
    let named = |why| Refusal::Failed(format!("{name}: {why}"));
    tolerance.compare(found, &expected).map_err(named)
}

/// The names of the outputs that are our semantics; a case without any proves nothing and fails.
pub(crate) fn expected_names(case: &Case) -> Result<Vec<&str>, Refusal> {
    let names = case.listed("expect");
    if names.is_empty() && case.meta("expect_error").is_none() {
        return Err(Refusal::Failed(
            "it has neither `expect` nor `expect_error`".into(),
        ));
    }
    Ok(names)
}

const EXACT: Comparison = Comparison {
    relative_error: 0.0,
    of_tolerance: 0.0,
    step: 1e-6,
};
