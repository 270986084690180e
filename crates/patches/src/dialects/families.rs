//! The tails of the adapter families found in public files, whether a kind reads them or not.
//!
//! With them a layer whose kind is not there is still one group, and its refusal can say what it is. They
//! stay as the file spells them; a `*` stands for one piece without dots.

use crate::dialects::suffixes::any_name;

/// Every tail of the table.
pub(super) fn tails() -> impl Iterator<Item = &'static str> {
    FAMILIES.iter().flat_map(|(_, tails)| *tails).copied()
}

/// The family that alone has the `suffix`; `None` when several have it or it is not known.
pub(crate) fn family(suffix: &str) -> Option<&'static str> {
    let has_suffix = |tails: &[&str]| tails.iter().any(|tail| matches(tail, suffix));
    let (label, _) = FAMILIES.iter().find(|(_, tails)| has_suffix(tails))?;
    *label
}

fn matches(tail: &str, suffix: &str) -> bool {
    match tail.split_once('*') {
        Some((start, end)) => any_name(suffix, start, end).is_some(),
        None => tail == suffix,
    }
}

/// Label, tails; without a label where they stand in several families.
type Family = (Option<&'static str>, &'static [&'static str]);

const FAMILIES: &[Family] = &[
    (
        None,
        &[
            "alpha",
            "bias_indices",
            "bias_size",
            "bias_values",
            "lora_A.*.bias",
            "lora_A.bias",
            "lora_down",
            "lora_down.weight",
            "lora_up",
            "lora_up.bias",
            "lora_up.weight",
            "rescale",
            "scale",
        ],
    ),
    (Some("AdaLoRA"), &["lora_E"]),
    (Some("BOFT"), &["boft_R", "boft_s"]),
    (
        Some("DoRA"),
        &[
            "dora_scale",
            "lora_magnitude",
            "lora_magnitude_vector",
            "lora_magnitude_vector.*.weight",
            "lora_magnitude_vector.weight",
            "magnitude",
        ],
    ),
    (
        Some("GLoRA"),
        &[
            "a1.weight",
            "a2.weight",
            "b1.weight",
            "b2.weight",
            "bm.weight",
        ],
    ),
    (Some("IA3"), &["ia3_l", "on_input"]),
    (
        Some("LoHa"),
        &[
            "hada_t1",
            "hada_t2",
            "hada_w1_a",
            "hada_w1_b",
            "hada_w2_a",
            "hada_w2_b",
        ],
    ),
    (
        Some("LoKr"),
        &[
            "lokr_t2",
            "lokr_w1",
            "lokr_w1_a",
            "lokr_w1_b",
            "lokr_w2",
            "lokr_w2_a",
            "lokr_w2_b",
        ],
    ),
    (Some("LoRA with a middle factor"), &["lora_mid.weight"]),
    (Some("LoRA with a new shape"), &["reshape_weight"]),
    (
        Some("LoRA of an embedding"),
        &[
            "lora_embedding_A",
            "lora_embedding_A.*",
            "lora_embedding_B",
            "lora_embedding_B.*",
        ],
    ),
    (
        Some("OFT"),
        &["oft_R.weight", "oft_blocks", "oft_diag", "oft_r", "oft_s"],
    ),
    (Some("VeRA"), &["vera_lambda_b", "vera_lambda_d"]),
    (Some("full difference"), &["diff", "diff_b", "diff_m"]),
    (Some("norm difference"), &["b_norm", "w_norm"]),
    (Some("replaced weight"), &["set_weight"]),
];
