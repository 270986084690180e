//! `quantize`: a model's weights in fewer bits.

use std::{collections::BTreeMap, path::PathBuf};

use overglaze_core::{Container, FileRewrite, KeptFor, Outcome, PackRules};
use overglaze_models::{TensorShapes, did_you_mean, families::LayerCatalog};
use overglaze_quant::{Encode, encoders_by_name, formats_by_name};
use overglaze_stream::{GgufValue, WeightSource};
use serde::Serialize;

use crate::{
    CliError, Console, Exit,
    args::QuantizeArgs,
    demo,
    output_file::{Contents, is_gguf},
    residency::grouped,
    tensor_file::open,
};

use super::{
    JSON_VERSION, RewriteError,
    writing::{self, Place, Rewritten},
};

/// The JSON document.
#[derive(Serialize)]
struct Quantization {
    version: u32,
    format: &'static str,
    plan: Plan,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    written: Option<Rewritten>,
}

/// What is packed, and why the rest is not.
#[derive(Serialize)]
struct Plan {
    packed: Count,
    kept: BTreeMap<&'static str, Count>,
}

#[derive(Clone, Copy, Default, Serialize)]
struct Count {
    weights: usize,
    values: u64,
}

pub(in crate::commands) fn run(args: &QuantizeArgs, console: &Console) -> Result<Exit, CliError> {
    let encoder = encoder(&args.format)?;
    let inputs: Vec<_> = args.model.iter().map(PathBuf::as_path).collect();
    // Begun before the work, so that a place where nothing can be written is told at once.
    let place = match args.dry_run {
        true => None,
        false => Some(Place::new(&args.output, &inputs, Contents::AnyCheckpoint)?),
    };
    let source = match &args.model {
        Some(path) => open(path)?,
        None => demo::weights()?,
    };
    let rules = PackRules {
        keep: args.keep.clone(),
        pack: args.pack.clone(),
    };
    let is_gguf = is_gguf(&args.output);
    let container = match is_gguf {
        true => Container::Gguf,
        false => Container::Safetensors,
    };
    let rewrite = FileRewrite::packed(&*source, encoder, &rules, (container, args.dtype.into()));
    check_patterns(&rules, &rewrite)?;
    let plan = Plan::of(&rewrite);
    if plan.packed.weights == 0 {
        return Err(RewriteError::NothingToPack {
            file: source.label(),
            format: encoder.encoding(),
        }
        .into());
    }
    match is_gguf {
        true => rewrite.check_gguf()?,
        false => rewrite.check_safetensors()?,
    }
    let mut quantization = Quantization {
        version: JSON_VERSION,
        format: encoder.encoding(),
        plan,
        written: None,
    };
    if let Some(place) = place {
        console.note(&quantization.plan_text());
        quantization.written = Some(match is_gguf {
            true => writing::gguf(&rewrite, &*source, place, console)?,
            false => writing::safetensors(&rewrite, &*source, place, console)?,
        });
    }
    console.result(&quantization, || quantization.text())?;
    Ok(Exit::Done)
}

/// The metadata of a new GGUF file: those of the old one, and what readers ask for.
pub(super) fn gguf_values(source: &dyn WeightSource) -> Vec<(String, GgufValue)> {
    let mut values = source.typed_metadata();
    values.retain(|key, _| !DROPPED.iter().any(|start| key.starts_with(start)));
    if !values.contains_key(ARCHITECTURE) {
        values.insert(ARCHITECTURE.into(), GgufValue::from(architecture(source)));
    }
    values.insert(
        "general.quantization_version".into(),
        GgufValue::U32(QUANTIZATION_VERSION),
    );
    values.into_iter().collect()
}

/// The model family, as GGUF files call it.
fn architecture(source: &dyn WeightSource) -> &'static str {
    let catalog = LayerCatalog::new(&TensorShapes::of(source)).ok();
    let known = catalog.and_then(|catalog| catalog.architecture());
    known.unwrap_or("unknown")
}

/// That every pattern names some weight.
fn check_patterns(rules: &PackRules, rewrite: &FileRewrite<'_>) -> Result<(), CliError> {
    let names: Vec<&str> = rewrite.weights().keys().map(String::as_str).collect();
    match rules.unmatched(&names).first() {
        None => Ok(()),
        Some(pattern) => Err(RewriteError::PatternUnmatched {
            pattern: (*pattern).into(),
            hint: did_you_mean(pattern, names),
        }
        .into()),
    }
}

/// The way to write weights called `name`, in any spelling of its case and hyphens.
fn encoder(name: &str) -> Result<&'static dyn Encode, CliError> {
    let spelling = name.to_lowercase().replace('-', "_");
    let encoders = encoders_by_name();
    if let Some(encoder) = encoders
        .iter()
        .find(|encoder| encoder.encoding() == spelling)
    {
        return Ok(*encoder);
    }
    let names: Vec<_> = encoders.iter().map(|encoder| encoder.encoding()).collect();
    let known = names.join(", ");
    let mut formats = formats_by_name().into_iter();
    let format = formats.find(|format| format.name() == spelling);
    Err(
        match format.map(|format| (format.name(), format.encoders())) {
            Some((format, [])) => RewriteError::NotWritten { format, known },
            Some((format, encoders)) => RewriteError::WrittenAs {
                format,
                written_as: words(encoders.iter().map(|encoder| encoder.encoding())),
            },
            None => RewriteError::UnknownFormat {
                name: name.into(),
                hint: did_you_mean(&spelling, names.iter().copied()),
                known,
            },
        }
        .into(),
    )
}

fn words(names: impl Iterator<Item = &'static str>) -> String {
    names.collect::<Vec<_>>().join(" or ")
}

impl Plan {
    fn of(rewrite: &FileRewrite<'_>) -> Self {
        let mut plan = Self {
            packed: Count::default(),
            kept: BTreeMap::new(),
        };
        for weight in rewrite.weights().values() {
            let count = match (weight.outcome, weight.kept_for) {
                (Outcome::Packed(_), _) => &mut plan.packed,
                (_, Some(reason)) => plan.kept.entry(KeptFor::text(reason)).or_default(),
                (_, None) => plan.kept.entry("packed so already").or_default(),
            };
            count.weights += 1;
            let sizes = weight.stored.shape.iter();
            count.values +=
                sizes.fold(1, |product: u64, size| product.saturating_mul(*size as u64));
        }
        plan
    }
}

impl Quantization {
    fn plan_text(&self) -> String {
        let Plan { packed, kept } = &self.plan;
        let kept: Vec<_> = kept
            .iter()
            .map(|(reason, count)| format!("{} {reason}", count.weights))
            .collect();
        let (weights, values, format) = (packed.weights, grouped(packed.values), self.format);
        match kept.is_empty() {
            true => format!("{weights} weights ({values} values) become {format}"),
            false => format!(
                "{weights} weights ({values} values) become {format}; kept: {}",
                kept.join(", ")
            ),
        }
    }

    fn text(&self) -> String {
        match &self.written {
            Some(written) => written.text(),
            None => format!("{}; nothing written", self.plan_text()),
        }
    }
}

/// Beginnings of keys that are not true of the new file.
const DROPPED: [&str; 3] = ["split.", "comfy.gguf.orig_shape.", "quantization_config"];
const ARCHITECTURE: &str = "general.architecture";
/// Of the layout of GGML's block formats.
const QUANTIZATION_VERSION: u32 = 2;
