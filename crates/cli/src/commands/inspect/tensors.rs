//! The tensors of a file: types, bits, shapes and totals.

use std::collections::BTreeMap;

use overglaze_stream::{TensorEntry, WeightSource};
use serde::Serialize;

use crate::{residency::grouped, shown, table};

/// Every tensor, and totals by type.
#[derive(Serialize)]
pub(super) struct Tensors {
    num_tensors: usize,
    num_values: u64,
    num_bytes: u64,
    types: BTreeMap<String, Total>,
    tensors: BTreeMap<String, Stored>,
}

#[derive(Default, Serialize)]
struct Total {
    num_tensors: usize,
    num_bytes: u64,
}

#[derive(Serialize)]
struct Stored {
    #[serde(rename = "type")]
    tag: String,
    bits_per_value: f64,
    shape: Vec<usize>,
    num_bytes: u64,
}

impl Tensors {
    pub(super) fn of(source: &dyn WeightSource) -> Self {
        let entries = source.entries();
        let mut types: BTreeMap<String, Total> = BTreeMap::new();
        for entry in entries.values() {
            let total = types.entry(entry.tag.clone()).or_default();
            total.num_tensors += 1;
            total.num_bytes += entry.num_bytes;
        }
        Self {
            num_tensors: entries.len(),
            num_values: entries
                .values()
                .map(num_values)
                .fold(0, u64::saturating_add),
            num_bytes: entries.values().map(|entry| entry.num_bytes).sum(),
            types,
            tensors: entries
                .iter()
                .map(|(name, entry)| (name.clone(), Stored::of(entry)))
                .collect(),
        }
    }

    /// Totals on one line.
    pub(super) fn totals(&self) -> String {
        let types: Vec<_> = self
            .types
            .iter()
            .map(|(tag, total)| {
                format!(
                    "{} {} ({} bytes)",
                    total.num_tensors,
                    shown::name(tag),
                    grouped(total.num_bytes)
                )
            })
            .collect();
        format!(
            "  {} tensors, {} values, {} bytes: {}",
            self.num_tensors,
            grouped(self.num_values),
            grouped(self.num_bytes),
            types.join(", ")
        )
    }

    pub(super) fn table(&self) -> String {
        let rows: Vec<_> = self
            .tensors
            .iter()
            .map(|(name, stored)| stored.row(name))
            .collect();
        table::of_numbers(&["Tensor", "type", "bits", "shape", "bytes"], &rows)
    }
}

impl Stored {
    fn of(entry: &TensorEntry) -> Self {
        let bits = entry.num_bytes as f64 * 8.0 / num_values(entry).max(1) as f64;
        Self {
            tag: entry.tag.clone(),
            bits_per_value: bits,
            shape: entry.shape.clone(),
            num_bytes: entry.num_bytes,
        }
    }

    fn row(&self, name: &str) -> Vec<String> {
        let bits = format!("{:.2}", self.bits_per_value);
        let bits = bits.trim_end_matches('0').trim_end_matches('.').to_owned();
        let (shape, bytes) = (format!("{:?}", self.shape), grouped(self.num_bytes));
        vec![name.into(), self.tag.clone(), bits, shape, bytes]
    }
}

fn num_values(entry: &TensorEntry) -> u64 {
    entry
        .shape
        .iter()
        .fold(1, |product, size| product.saturating_mul(*size as u64))
}
