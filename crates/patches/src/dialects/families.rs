//! The adapter families found in public files that no kind reads: their tails, and what to do instead.
//!
//! With them a layer of such a family is one group, and its refusal says what it is. Tails stay as the file spells
//! them; a `*` stands for one piece without dots. A family that a registered kind reads is not refused: the kind's
//! own keys come first.

use std::fmt;

use crate::dialects::suffixes::any_name;

/// Adapters that are known and not read.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Family {
    /// What the adapters are called.
    pub label: &'static str,
    /// Why they are not read, and what to do.
    pub remedy: &'static str,
    /// Tails that these adapters alone have.
    tails: &'static [&'static str],
}

impl fmt::Display for Family {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.label, self.remedy)
    }
}

/// Every tail of the table, and those that several families have.
pub(super) fn tails() -> impl Iterator<Item = &'static str> {
    let own = FAMILIES.iter().flat_map(|family| family.tails);
    own.chain(SHARED).copied()
}

/// The family that alone has the `suffix`; `None` when several have it or it is not known.
pub(crate) fn family(suffix: &str) -> Option<&'static Family> {
    let has_suffix = |family: &&Family| family.tails.iter().any(|tail| matches(tail, suffix));
    FAMILIES.iter().find(has_suffix)
}

fn matches(tail: &str, suffix: &str) -> bool {
    match tail.split_once('*') {
        Some((start, end)) => any_name(suffix, start, end).is_some(),
        None => tail == suffix,
    }
}

/// Tails of several families.
const SHARED: &[&str] = &[
    "alpha",
    "diff_m",
    "lora_A.*.bias",
    "lora_A.bias",
    "lora_down.weight",
    "lora_up.bias",
    "lora_up.weight",
    "rescale",
    "scale",
];

const FAMILIES: &[Family] = &[
    Family {
        label: "AdaLoRA",
        remedy: "its factors come with singular values and a mask of their own; merge it into its model with PEFT",
        tails: &["lora_E", "lora_E.*", "ranknum", "ranknum.*"],
    },
    Family {
        label: "VeRA",
        remedy: "vera adapters scale two random matrices that all layers share, drawn by the program that trained \
                 them; merge it into its model with PEFT",
        tails: &[
            "vera_A",
            "vera_A.*",
            "vera_B",
            "vera_B.*",
            "vera_lambda_b",
            "vera_lambda_b.*",
            "vera_lambda_d",
            "vera_lambda_d.*",
        ],
    },
    Family {
        label: "nunchaku",
        remedy: "its factors are packed for the kernels of nunchaku; use the file it was converted from",
        tails: &["lora_down", "lora_up"],
    },
    Family {
        label: "scaled OFT of OneTrainer",
        remedy: "its divisor has changed between versions, and the file does not say which it was trained with; \
                 train it without the scaling, or merge it into its model with OneTrainer",
        tails: &[
            "oft_R.scaled_oft",
            "oft_R.oft_scaled",
            "oft_scaled",
            "scaled_oft",
        ],
    },
    Family {
        label: "Bone or MiSS",
        remedy: MERGE,
        tails: &["bone_block", "bone_block.*", "miss_block", "miss_block.*"],
    },
    Family {
        label: "C3A",
        remedy: MERGE,
        tails: &["c3a_kernel", "c3a_kernel.*"],
    },
    Family {
        label: "FourierFT",
        remedy: MERGE,
        tails: &["fourierft_spectrum", "fourierft_spectrum.*"],
    },
    Family {
        label: "HRA",
        remedy: MERGE,
        tails: &["hra_u", "hra_u.*"],
    },
    Family {
        label: "RandLoRA",
        remedy: MERGE,
        tails: &["randlora_gamma", "randlora_lambda"],
    },
    Family {
        label: "SHiRA",
        remedy: MERGE,
        tails: &["shira_weight", "shira_weight.*"],
    },
    Family {
        label: "VB-LoRA",
        remedy: MERGE,
        tails: &["vblora_logits_A", "vblora_logits_B", "vblora_vector_bank"],
    },
];

const MERGE: &str = "this build has no kind for it; merge it into its model with PEFT";
