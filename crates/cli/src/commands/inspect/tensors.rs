//! The tensors of a file: types, bits, shapes and totals.

use std::collections::BTreeMap;

use overglaze_core::{StoredWeight, stored_weights};
use overglaze_stream::WeightSource;
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
    /// The tensors of a weight that is several, its own first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    parts: Vec<String>,
}

impl Tensors {
    pub(super) fn of(source: &dyn WeightSource) -> Self {
        let tensors: BTreeMap<_, _> = stored_weights(source)
            .into_iter()
            .map(|(name, weight)| (name, Stored::of(weight)))
            .collect();
        let mut types: BTreeMap<String, Total> = BTreeMap::new();
        for stored in tensors.values() {
            let total = types.entry(stored.tag.clone()).or_default();
            total.num_tensors += 1;
            total.num_bytes += stored.num_bytes;
        }
        let num_values = tensors.values().map(Stored::num_values);
        Self {
            num_tensors: tensors.len(),
            num_values: num_values.fold(0, u64::saturating_add),
            num_bytes: source.entries().values().map(|entry| entry.num_bytes).sum(),
            types,
            tensors,
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
    fn of(weight: StoredWeight) -> Self {
        // One tensor is of the container's type; several are of the format's making.
        let is_whole = weight.tensors.len() == 1;
        let tag = match weight.format.filter(|_| !is_whole) {
            Some(format) => format.name().to_owned(),
            None => weight.tag,
        };
        let mut stored = Self {
            tag,
            bits_per_value: 0.0,
            shape: weight.shape,
            num_bytes: weight.num_bytes,
            parts: if is_whole { Vec::new() } else { weight.tensors },
        };
        let num_values = stored.num_values().max(1);
        stored.bits_per_value = stored.num_bytes as f64 * 8.0 / num_values as f64;
        stored
    }

    fn num_values(&self) -> u64 {
        let sizes = self.shape.iter();
        sizes.fold(1, |product, size| product.saturating_mul(*size as u64))
    }

    fn row(&self, name: &str) -> Vec<String> {
        let bits = format!("{:.2}", self.bits_per_value);
        let bits = bits.trim_end_matches('0').trim_end_matches('.').to_owned();
        let (shape, bytes) = (format!("{:?}", self.shape), grouped(self.num_bytes));
        vec![name.into(), self.tag.clone(), bits, shape, bytes]
    }
}
