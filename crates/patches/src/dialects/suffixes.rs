//! The tails of adapter keys: where a layer's name ends and the tensor's name begins.
//!
//! Dots do not tell: `….to_out.0.lora_A.default.weight` ends in three pieces, `….lora_magnitude_vector`
//! in one. A key is split at the longest tail in a table made of every key and alias a registered kind
//! names, and of the tails known from the adapter families. Kinds bring their own spellings.
//!
//! Two tails are a checkpoint's as well, `weight` of any layer and `scale` of a norm. No key is split at
//! them: whether it is an adapter's, the other keys of its file tell.

use std::{collections::HashMap, sync::LazyLock};

use crate::{dialects::families::tails, registry};

/// Splits a key into the layer's path and the tensor's canonical suffix, at the longest known
/// suffix; `None` when no known suffix ends the key.
///
/// The aliases of the kinds are resolved (`lora_A.weight` to `lora_down.weight`).
#[must_use]
pub fn split_suffix(key: &str) -> Option<(&str, String)> {
    let (path, tail) = split(key)?;
    Some((path, tail.canonical.into()))
}

/// The name of the adapter that PEFT writes into a key (`default` in `….lora_A.default.weight`); `None`
/// when the key has none.
pub(crate) fn adapter_name(key: &str) -> Option<&str> {
    split(key)?.1.adapter
}

fn split(key: &str) -> Option<(&str, Tail<'_>)> {
    key.match_indices('.').find_map(|(dot, _)| {
        let (path, tail) = (&key[..dot], &key[dot + 1..]);
        if path.is_empty() || tail.len() > MAX_TAIL_BYTES || tail == SCALE && is_norm(path) {
            return None;
        }
        Some((path, SPELLINGS.find(tail)?))
    })
}

/// Whether the layer at `path` is a norm by its name.
pub(crate) fn is_norm(path: &str) -> bool {
    NORMS.iter().any(|end| path.ends_with(end))
}

/// A tail that is known.
struct Tail<'a> {
    canonical: &'a str,
    /// The piece that may be any name.
    adapter: Option<&'a str>,
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
    let known = keys.chain(tails()).filter(|tail| *tail != WEIGHT);
    known.for_each(|tail| spellings.add(tail, None));
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

    fn find<'a>(&self, tail: &'a str) -> Option<Tail<'a>> {
        if let Some(canonical) = self.exact.get(tail) {
            return Some(Tail {
                canonical,
                adapter: None,
            });
        }
        self.patterns.iter().find_map(|pattern| {
            Some(Tail {
                adapter: Some(pattern.name(tail)?),
                canonical: pattern.canonical.unwrap_or(tail),
            })
        })
    }
}

impl Pattern {
    fn name<'a>(&self, tail: &'a str) -> Option<&'a str> {
        any_name(tail, self.start, self.end)
    }
}

/// The piece between `start` and `end` when it is one.
pub(super) fn any_name<'a>(tail: &'a str, start: &str, end: &str) -> Option<&'a str> {
    let name = tail.strip_prefix(start)?.strip_suffix(end)?;
    (!name.is_empty() && !name.contains('.')).then_some(name)
}

const WEIGHT: &str = "weight";
const NORMS: [&str; 2] = [".norm", "_norm"];
const SCALE: &str = "scale";
/// No tail is longer; bounds the work on a hostile key.
const MAX_TAIL_BYTES: usize = 128;
