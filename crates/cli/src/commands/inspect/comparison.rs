//! How two files differ in names and shapes.

use std::collections::BTreeMap;

use overglaze_stream::WeightSource;
use serde::Serialize;

use crate::shown;

/// The difference to another file.
#[derive(Serialize)]
pub(super) struct Comparison {
    with: String,
    num_common: usize,
    only_here: Vec<String>,
    only_there: Vec<String>,
    /// Common names whose shapes differ: here, there.
    shapes: BTreeMap<String, [Vec<usize>; 2]>,
}

impl Comparison {
    pub(super) fn of(here: &dyn WeightSource, there: &dyn WeightSource) -> Self {
        let common = || {
            let entries = here.entries().iter();
            entries.filter_map(|(name, entry)| Some((name, entry, there.entries().get(name)?)))
        };
        Self {
            with: there.label(),
            num_common: common().count(),
            only_here: missing_in(there, here),
            only_there: missing_in(here, there),
            shapes: common()
                .filter(|(_, a, b)| a.shape != b.shape)
                .map(|(name, a, b)| (name.clone(), [a.shape.clone(), b.shape.clone()]))
                .collect(),
        }
    }

    pub(super) fn text(&self) -> String {
        let mut lines = vec![format!(
            "  against {}: {} names in both, {} only here, {} only there, {} with another shape",
            self.with,
            self.num_common,
            self.only_here.len(),
            self.only_there.len(),
            self.shapes.len()
        )];
        lines.extend(
            self.only_here
                .iter()
                .map(|name| format!("    only here   {}", shown::name(name))),
        );
        lines.extend(
            self.only_there
                .iter()
                .map(|name| format!("    only there  {}", shown::name(name))),
        );
        let shapes = self.shapes.iter();
        lines.extend(
            shapes.map(|(name, [a, b])| {
                format!("    {a:?} here, {b:?} there  {}", shown::name(name))
            }),
        );
        lines.join("\n")
    }
}

/// Names of `source` that `other` does not have.
fn missing_in(other: &dyn WeightSource, source: &dyn WeightSource) -> Vec<String> {
    source
        .entries()
        .keys()
        .filter(|name| !other.entries().contains_key(*name))
        .cloned()
        .collect()
}
