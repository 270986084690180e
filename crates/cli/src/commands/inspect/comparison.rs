//! How two files differ in names, shapes and values.

use std::collections::BTreeMap;

use burn::tensor::FloatDType;
use overglaze_core::{StoredWeight, packed_weight, stored_weights};
use overglaze_stream::WeightSource;
use serde::Serialize;

use crate::{CliError, Console, progress, shown};

/// The difference to another file.
#[derive(Serialize)]
pub(super) struct Comparison {
    with: String,
    num_common: usize,
    only_here: Vec<String>,
    only_there: Vec<String>,
    /// Common names whose shapes differ: here, there.
    shapes: BTreeMap<String, [Vec<usize>; 2]>,
    /// Common weights of one shape whose bytes differ.
    values: BTreeMap<String, Difference>,
    /// The same over all of them together; absent where no values differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<Difference>,
}

/// How far values here are from those there.
#[derive(Clone, Copy, Serialize)]
struct Difference {
    /// ‖here − there‖ / ‖there‖ over the finite values; absent where there all are zero.
    #[serde(skip_serializing_if = "Option::is_none")]
    relative_rms: Option<f64>,
    /// The largest |here − there| of finite values.
    largest: f64,
    /// Places where one is NaN or infinite and the other is not the same.
    num_not_finite: u64,
}

/// Sums over the values compared so far.
#[derive(Clone, Copy, Default)]
struct Sums {
    squared_error: f64,
    squared: f64,
    largest: f64,
    num_not_finite: u64,
}

type Weights = BTreeMap<String, StoredWeight>;

impl Comparison {
    pub(super) fn of(
        here: &dyn WeightSource,
        there: &dyn WeightSource,
        console: &Console,
    ) -> Result<Self, CliError> {
        let (ours, theirs) = (stored_weights(here), stored_weights(there));
        let common = || {
            let ours = ours.iter();
            ours.filter_map(|(name, weight)| Some((name, weight, theirs.get(name)?)))
        };
        let is_same = |a: &StoredWeight, b: &StoredWeight| a.shape == b.shape;
        let alike = common().filter(|(_, a, b)| is_same(a, b));
        let (values, total) = differences([here, there], alike, console)?;
        Ok(Self {
            with: there.label(),
            num_common: common().count(),
            only_here: missing_in(&theirs, &ours),
            only_there: missing_in(&ours, &theirs),
            shapes: common()
                .filter(|(_, a, b)| !is_same(a, b))
                .map(|(name, a, b)| (name.clone(), [a.shape.clone(), b.shape.clone()]))
                .collect(),
            values,
            total,
        })
    }

    pub(super) fn text(&self) -> String {
        let mut lines = vec![format!(
            "  against {}: {} names in both, {} only here, {} only there, {} with another shape, {} with other values",
            self.with,
            self.num_common,
            self.only_here.len(),
            self.only_there.len(),
            self.shapes.len(),
            self.values.len()
        )];
        if let Some(total) = &self.total {
            lines.push(format!("    those values together  {}", total.text()));
        }
        let named = |what: &str, name: &String| format!("    {what}  {}", shown::name(name));
        lines.extend(self.only_here.iter().map(|name| named("only here ", name)));
        lines.extend(self.only_there.iter().map(|name| named("only there", name)));
        let shapes = self.shapes.iter();
        lines.extend(shapes.map(|(name, [a, b])| named(&format!("{a:?} here, {b:?} there"), name)));
        let values = self.values.iter();
        lines.extend(values.map(|(name, difference)| named(&difference.text(), name)));
        lines.join("\n")
    }
}

impl Difference {
    fn text(self) -> String {
        let relative = self.relative_rms.map_or_else(
            || "all zero there".to_owned(),
            |error| format!("{:.3} % off", error * 100.0),
        );
        let error = format!("{relative}, at most {:.2e}", self.largest);
        match self.num_not_finite {
            0 => error,
            num => format!("{error}, and {num} NaN or infinite on one side"),
        }
    }
}

impl Sums {
    fn add(&mut self, here: &[f32], there: &[f32]) {
        for (here, there) in here.iter().zip(there) {
            if !here.is_finite() || !there.is_finite() {
                // They have no distance: a sum with one of them would tell nothing of the others.
                self.num_not_finite += u64::from(here.to_bits() != there.to_bits());
                continue;
            }
            let (here, there) = (f64::from(*here), f64::from(*there));
            let error = (here - there).abs();
            self.squared_error += error * error;
            self.squared += there * there;
            self.largest = self.largest.max(error);
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            squared_error: self.squared_error + other.squared_error,
            squared: self.squared + other.squared,
            largest: self.largest.max(other.largest),
            num_not_finite: self.num_not_finite + other.num_not_finite,
        }
    }

    fn difference(self) -> Difference {
        let has_values = self.squared > 0.0;
        Difference {
            relative_rms: has_values.then(|| (self.squared_error / self.squared).sqrt()),
            largest: self.largest,
            num_not_finite: self.num_not_finite,
        }
    }

    fn is_nothing(self) -> bool {
        self.largest == 0.0 && self.num_not_finite == 0
    }
}

/// The weights whose values differ, and all of them together.
fn differences<'a>(
    sources: [&dyn WeightSource; 2],
    weights: impl Iterator<Item = (&'a String, &'a StoredWeight, &'a StoredWeight)> + Clone,
    console: &Console,
) -> Result<(BTreeMap<String, Difference>, Option<Difference>), CliError> {
    let sizes = weights
        .clone()
        .map(|(_, here, there)| here.num_bytes + there.num_bytes);
    let bar = progress::bytes(console, sizes.sum());
    bar.set_message("comparing");
    let (mut differences, mut total) = (BTreeMap::new(), Sums::default());
    for (name, here, there) in weights {
        if let Some(sums) = compared(sources, name, [here, there])? {
            total = total.plus(sums);
            differences.insert(name.clone(), sums.difference());
        }
        bar.inc(here.num_bytes + there.num_bytes);
    }
    bar.finish_and_clear();
    let is_equal = differences.is_empty();
    Ok((differences, (!is_equal).then(|| total.difference())))
}

/// The sums over the weight `name`; `None` where its bytes are the same, or it has no values.
fn compared(
    [here, there]: [&dyn WeightSource; 2],
    name: &str,
    [ours, theirs]: [&StoredWeight; 2],
) -> Result<Option<Sums>, CliError> {
    let is_readable = |weight: &StoredWeight| weight.format.is_some_and(|f| f.has_values());
    if !is_readable(ours) || !is_readable(theirs) {
        return Ok(None);
    }
    let is_one = ours.tensors.len() == 1 && theirs.tensors.len() == 1;
    if is_one && ours.tag == theirs.tag && here.read(name)? == there.read(name)? {
        return Ok(None);
    }
    let (a, _) = packed_weight(here, name)?;
    let (b, _) = packed_weight(there, name)?;
    let (a, b) = (a.decoded(FloatDType::F32), b.decoded(FloatDType::F32));
    let mut sums = Sums::default();
    let values = |data| burn::tensor::TensorData::as_slice::<f32>(data).expect("it is f32");
    sums.add(values(&a), values(&b));
    Ok((!sums.is_nothing()).then_some(sums))
}

/// Names of `weights` that `other` does not have.
fn missing_in(other: &Weights, weights: &Weights) -> Vec<String> {
    let names = weights.keys();
    names
        .filter(|name| !other.contains_key(*name))
        .cloned()
        .collect()
}
