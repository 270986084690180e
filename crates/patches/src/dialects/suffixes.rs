//! The tails of adapter keys: where a layer's name ends and the tensor's name begins.
//!
//! Dots do not tell: `….to_out.0.lora_A.default.weight` ends in three pieces, `….lora_magnitude_vector`
//! in one. A key is split at the longest tail in a table made of every key and alias a registered kind
//! names, and of the tails known from the adapter families. Kinds bring their own spellings.

use std::{collections::HashMap, sync::LazyLock};

use crate::registry;

/// Splits a key into the layer's path and the tensor's canonical suffix, at the longest known
/// suffix; `None` when no known suffix ends the key.
///
/// The aliases of the kinds are resolved (`lora_A.weight` to `lora_down.weight`).
#[must_use]
pub fn split_suffix(key: &str) -> Option<(&str, String)> {
    key.match_indices('.').find_map(|(dot, _)| {
        let tail = &key[dot + 1..];
        if dot == 0 || tail.len() > MAX_TAIL_BYTES {
            return None;
        }
        Some((&key[..dot], SPELLINGS.canonical(tail)?.into()))
    })
}

/// Every known tail, and what it is called here.
struct Spellings {
    exact: HashMap<&'static str, &'static str>,
    patterns: Vec<Pattern>,
}

/// A tail with one piece that may be any name.
struct Pattern {
    start: &'static str,
    end: &'static str,
    /// `None` when the tail keeps its spelling.
    canonical: Option<&'static str>,
}

static SPELLINGS: LazyLock<Spellings> = LazyLock::new(|| {
    let mut spellings = Spellings {
        exact: HashMap::new(),
        patterns: Vec::new(),
    };
    let kinds = registry::kinds();
    for (alias, canonical) in kinds.iter().flat_map(|kind| kind.aliases) {
        spellings.add(alias, Some(*canonical));
    }
    let keys = kinds.iter().flat_map(|kind| kind.keys());
    for tail in keys.chain(FAMILIES.iter().copied()) {
        spellings.add(tail, None);
    }
    spellings
});

impl Spellings {
    /// Adds a tail; what was added first counts.
    fn add(&mut self, tail: &'static str, canonical: Option<&'static str>) {
        match tail.split_once('*') {
            Some((start, end)) => self.patterns.push(Pattern {
                start,
                end,
                canonical,
            }),
            None => {
                self.exact.entry(tail).or_insert(canonical.unwrap_or(tail));
            }
        }
    }

    fn canonical<'a>(&self, tail: &'a str) -> Option<&'a str> {
        if let Some(canonical) = self.exact.get(tail) {
            return Some(canonical);
        }
        let pattern = self.patterns.iter().find(|pattern| pattern.matches(tail))?;
        Some(pattern.canonical.unwrap_or(tail))
    }
}

impl Pattern {
    fn matches(&self, tail: &str) -> bool {
        let name = tail
            .strip_prefix(self.start)
            .and_then(|rest| rest.strip_suffix(self.end));
        name.is_some_and(|name| !name.is_empty() && !name.contains('.'))
    }
}

/// No tail is longer; bounds the work on a hostile key.
const MAX_TAIL_BYTES: usize = 128;

/// Tails of the adapter families found in public files, whether a kind reads them or not: a layer whose
/// kind is not there is still one group. They stay as the file spells them.
const FAMILIES: &[&str] = &[
    "a1.weight",
    "a2.weight",
    "alpha",
    "b1.weight",
    "b2.weight",
    "b_norm",
    "bias_indices",
    "bias_size",
    "bias_values",
    "bm.weight",
    "boft_R",
    "boft_s",
    "diff",
    "diff_b",
    "diff_m",
    "dora_scale",
    "hada_t1",
    "hada_t2",
    "hada_w1_a",
    "hada_w1_b",
    "hada_w2_a",
    "hada_w2_b",
    "ia3_l",
    "lokr_t2",
    "lokr_w1",
    "lokr_w1_a",
    "lokr_w1_b",
    "lokr_w2",
    "lokr_w2_a",
    "lokr_w2_b",
    "lora_A.*.bias",
    "lora_A.bias",
    "lora_E",
    "lora_down",
    "lora_down.weight",
    "lora_embedding_A",
    "lora_embedding_A.*",
    "lora_embedding_B",
    "lora_embedding_B.*",
    "lora_magnitude",
    "lora_magnitude_vector",
    "lora_magnitude_vector.*.weight",
    "lora_magnitude_vector.weight",
    "lora_mid.weight",
    "lora_up",
    "lora_up.bias",
    "lora_up.weight",
    "magnitude",
    "oft_R.weight",
    "oft_blocks",
    "oft_diag",
    "oft_r",
    "oft_s",
    "on_input",
    "rescale",
    "reshape_weight",
    "scale",
    "set_weight",
    "vera_lambda_b",
    "vera_lambda_d",
    "w_norm",
];
