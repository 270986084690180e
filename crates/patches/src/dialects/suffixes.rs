//! The tails of adapter keys: where a layer's name ends and the tensor's name begins.
//!
//! Dots do not tell: `….to_out.0.lora_A.default.weight` ends in three pieces, `….lora_magnitude_vector`
//! in one. A key is split at the longest tail in a table made of the aliases below, every key a
//! registered kind names, and the tails known from the adapter families, so that a layer whose kind
//! is not there is still one group, reported with all its keys. The table holds spellings only.

use std::{collections::HashSet, sync::LazyLock};

use burn::tensor::TensorData;

use crate::{TensorGroup, registry};

/// Splits a key into the layer's path and the tensor's canonical suffix, at the longest known
/// suffix; `None` when no known suffix ends the key.
///
/// Aliases are resolved (`lora_A.weight` to `lora_down.weight`) and the name that PEFT writes between
/// (`lora_A.default.weight`) is dropped.
#[must_use]
pub fn split_suffix(key: &str) -> Option<(&str, String)> {
    key.match_indices('.').find_map(|(dot, _)| {
        let tail = &key[dot + 1..];
        if dot == 0 || tail.len() > MAX_TAIL_BYTES {
            return None;
        }
        let suffix = canonical(tail).or_else(|| canonical(&without_adapter_name(tail)?))?;
        Some((&key[..dot], suffix.into()))
    })
}

/// Rank of a group's low-rank factors, for the scales that depend on it; `None` without such factors.
pub(crate) fn rank_rows(group: &TensorGroup) -> Option<usize> {
    let rows = |data: &TensorData| data.shape().first().copied();
    RANK_ROWS
        .iter()
        .find_map(|key| group.tensors.get(*key).and_then(rows))
}

fn canonical(tail: &str) -> Option<&'static str> {
    let alias = ALIASES.iter().find(|(alias, _)| *alias == tail);
    alias
        .map(|(_, canonical)| *canonical)
        .or_else(|| KNOWN.get(tail).copied())
}

/// `lora_A.default.weight -> lora_A.weight`, `lora_embedding_A.default -> lora_embedding_A`.
fn without_adapter_name(tail: &str) -> Option<String> {
    let (head, rest) = tail.split_once('.')?;
    if !NAMED.contains(&head) {
        return None;
    }
    match rest.split_once('.') {
        Some((_name, last)) => Some(format!("{head}.{last}")),
        None => Some(head.into()),
    }
}

static KNOWN: LazyLock<HashSet<&'static str>> = LazyLock::new(|| {
    let registered = registry::kinds().into_iter().flat_map(|kind| kind.keys());
    registered.chain(FAMILIES.iter().copied()).collect()
});

/// No tail is longer; bounds the work on a hostile key.
const MAX_TAIL_BYTES: usize = 128;

/// Spellings of one tensor, and the one that kinds see.
const ALIASES: &[(&str, &str)] = &[
    ("lora_A", "lora_down.weight"),
    ("lora_A.weight", "lora_down.weight"),
    ("lora.down.weight", "lora_down.weight"),
    ("lora_linear_layer.down.weight", "lora_down.weight"),
    ("lora_B", "lora_up.weight"),
    ("lora_B.weight", "lora_up.weight"),
    ("lora.up.weight", "lora_up.weight"),
    ("lora_linear_layer.up.weight", "lora_up.weight"),
    ("lora_B.bias", "lora_up.bias"),
    ("lora_magnitude_vector.weight", "lora_magnitude_vector"),
];

/// Heads after which PEFT may write the adapter's name.
const NAMED: &[&str] = &[
    "lora_A",
    "lora_B",
    "lora_magnitude_vector",
    "lora_embedding_A",
    "lora_embedding_B",
];

/// Factors whose first dimension is the rank, most telling first.
const RANK_ROWS: &[&str] = &["lora_down.weight", "hada_w1_b", "lokr_w2_b", "lokr_w1_b"];

/// Tails of the adapter families found in public files.
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
    "lora_E",
    "lora_down",
    "lora_down.weight",
    "lora_embedding_A",
    "lora_embedding_B",
    "lora_magnitude",
    "lora_magnitude_vector",
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
