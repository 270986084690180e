//! Which tensors of a pickle are the weights, and their names.
//!
//! A dictionary without tensors of its own that holds one under a name that trainers use ([`WRAPPERS`]) stands for
//! that one, and so on inward; what lies beside it, an optimizer's state among it, is left out. In what is found,
//! tensors of nested dictionaries are named by their path, joined by `.`. Entries that are no tensors, lists and
//! what has no text as its key are skipped and counted.

use super::{
    PickleError,
    cursor::Cursor,
    values::{Id, Pickled, Tensor, Value, Values},
};

/// First match wins: averaged weights before those of the last step.
const WRAPPERS: [&str; 6] = [
    "state_dict",
    "model_state_dict",
    "model",
    "module",
    "params_ema",
    "params",
];

const MAX_DEPTH: usize = 32;
const MAX_ENTRIES: usize = 1 << 20;
const MAX_TENSORS: usize = 1 << 17;
const MAX_NAME_BYTES: usize = 512;

/// The weights of a pickle.
#[derive(Debug)]
pub(super) struct StateDict<'p> {
    pub(super) tensors: Vec<(String, &'p Tensor)>,
    pub(super) num_skipped: usize,
}

/// Finds the weights; the cursor says in errors where the pickle is from.
pub(super) fn find<'p>(
    pickled: &'p Pickled<'_>,
    cursor: &'p Cursor<'_>,
) -> Result<StateDict<'p>, PickleError> {
    let mut walk = Walk {
        values: &pickled.values,
        cursor,
        name: String::new(),
        num_entries: 0,
        found: StateDict {
            tensors: Vec::new(),
            num_skipped: 0,
        },
    };
    let mut root = pickled.root;
    for _ in 0..MAX_DEPTH {
        let Some(inner) = wrapped(&pickled.values, root) else {
            break;
        };
        walk.found.num_skipped += num_pairs(&pickled.values, root) - 1;
        root = inner;
    }
    walk.dict(root, 0)?;
    Ok(walk.found)
}

fn num_pairs(values: &Values<'_>, dict: Id) -> usize {
    match values.at(dict) {
        Value::Dict(pairs) => pairs.len(),
        _ => 0,
    }
}

fn wrapped(values: &Values<'_>, dict: Id) -> Option<Id> {
    if holds(values, dict, |value| matches!(value, Value::Tensor(_))) {
        return None;
    }
    WRAPPERS
        .iter()
        .filter_map(|name| values.entry(dict, name))
        .find(|inner| {
            holds(values, *inner, |value| {
                matches!(value, Value::Tensor(_) | Value::Dict(_))
            })
        })
}

fn holds(values: &Values<'_>, dict: Id, is_wanted: impl Fn(&Value<'_>) -> bool) -> bool {
    match values.at(dict) {
        Value::Dict(pairs) => pairs.iter().any(|(_, value)| is_wanted(values.at(*value))),
        _ => false,
    }
}

struct Walk<'p, 'a> {
    values: &'p Values<'a>,
    cursor: &'p Cursor<'a>,
    /// Of the entry that is being visited.
    name: String,
    num_entries: usize,
    found: StateDict<'p>,
}

impl Walk<'_, '_> {
    fn dict(&mut self, dict: Id, depth: usize) -> Result<(), PickleError> {
        let Value::Dict(pairs) = self.values.at(dict) else {
            return Ok(());
        };
        if depth == MAX_DEPTH {
            return Err(self
                .cursor
                .limit("dictionaries inside each other", MAX_DEPTH));
        }
        let prefix_bytes = self.name.len();
        for &(key, value) in pairs {
            self.count_entry()?;
            self.entry(key, value, depth)?;
            self.name.truncate(prefix_bytes);
        }
        Ok(())
    }

    fn count_entry(&mut self) -> Result<(), PickleError> {
        self.num_entries += 1;
        if self.num_entries > MAX_ENTRIES {
            return Err(self
                .cursor
                .limit("entries in its dictionaries", MAX_ENTRIES));
        }
        Ok(())
    }

    fn entry(&mut self, key: Id, value: Id, depth: usize) -> Result<(), PickleError> {
        let Some(key) = self.values.text(key) else {
            self.found.num_skipped += 1;
            return Ok(());
        };
        match self.values.at(value) {
            Value::Tensor(tensor) => {
                self.enter(key)?;
                if self.found.tensors.len() == MAX_TENSORS {
                    return Err(self.cursor.limit("tensors", MAX_TENSORS));
                }
                self.found.tensors.push((self.name.clone(), tensor));
                Ok(())
            }
            Value::Dict(_) => {
                self.enter(key)?;
                self.dict(value, depth + 1)
            }
            _ => {
                self.found.num_skipped += 1;
                Ok(())
            }
        }
    }

    fn enter(&mut self, key: &str) -> Result<(), PickleError> {
        if self.name.len() + key.len() >= MAX_NAME_BYTES {
            return Err(self
                .cursor
                .limit("bytes in a tensor's name", MAX_NAME_BYTES));
        }
        if !self.name.is_empty() {
            self.name.push('.');
        }
        self.name.push_str(key);
        Ok(())
    }
}
