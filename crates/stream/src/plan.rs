//! Which weights stay resident and how much is left for the rest: a pure function of sizes and budget.
//!
//! A forward pass is a cycle over the weights. Least-recently-used scores zero on a cycle that does not
//! fit: it always evicts the weight that is wanted next. So the plan is static: a *prefix* of the model
//! stays resident once loaded, the other weights pass through a *ring*, in order, wrapping from the last
//! to the first of the next cycle. A cycle then loads
//! streamed weights only, and each at most once.
//!
//! With sizes `s`, budget `B` and `k` resident weights, the ring must hold any two neighbours in streaming
//! order, so that one loads while one computes:
//!
//! ```text
//! ring(k) = max { s[i] + s[next(i)] : i in k..n },  next(n-1) = k
//! k       = max { k : s[0] + … + s[k-1] + ring(k) <= B }
//! ```
//!
//! Without look-ahead, or where not even `ring(0)` fits, nothing overlaps and the ring holds the largest
//! single weight. A look-ahead over 1 gets no larger ring: it would cost resident weights, which are loaded
//! once instead of once a cycle. A prefix is not always the best set (with uneven layers a spread one can
//! hide more of the link); choosing by simulation from measured times needs those times first.

use serde::Serialize;

/// Static residency for one model and one budget.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Plan {
    /// Weights in the cycle.
    pub num_weights: usize,
    /// The first weights stay resident once loaded; this is how many.
    pub num_resident: usize,
    /// Bytes of all weights.
    pub model_bytes: u64,
    /// Bytes of the resident weights.
    pub resident_bytes: u64,
    /// Bytes left for weights that pass through; 0 where all are resident.
    pub ring_bytes: u64,
    /// Bytes loaded in each cycle after the first, at most.
    pub streamed_bytes: u64,
    /// Whether any streamed weight can be loaded while the one before it computes.
    pub overlaps: bool,
}

impl Plan {
    /// Whether the weight stays once loaded.
    #[must_use]
    pub fn is_resident(&self, index: usize) -> bool {
        index < self.num_resident
    }

    fn new(sizes: &[u64], num_resident: usize, budget_bytes: u64, overlaps: bool) -> Self {
        let resident_bytes = sum(&sizes[..num_resident]);
        let streamed_bytes = sum(&sizes[num_resident..]);
        let is_streaming = num_resident < sizes.len();
        Self {
            num_weights: sizes.len(),
            num_resident,
            model_bytes: resident_bytes.saturating_add(streamed_bytes),
            resident_bytes,
            ring_bytes: if is_streaming {
                budget_bytes.saturating_sub(resident_bytes)
            } else {
                0
            },
            streamed_bytes,
            overlaps,
        }
    }
}

/// Chooses what stays resident of weights of these sizes, in execution order, under a budget.
///
/// `lookahead` is as in [`StreamerConfig`](crate::StreamerConfig): at 0 nothing is loaded ahead, so the ring
/// need not hold two weights.
///
/// A weight larger than the budget is not an error here: [`Streamer::new`](crate::Streamer::new) refuses it.
///
/// ```
/// let plan = overglaze_stream::plan(&[4, 4, 4, 4, 4], 12, 1);
/// assert_eq!((plan.num_resident, plan.ring_bytes), (1, 8)); // one stays, two in the ring
/// assert!(plan.overlaps);
/// ```
#[must_use]
pub fn plan(sizes: &[u64], budget_bytes: u64, lookahead: usize) -> Plan {
    if sum(sizes) <= budget_bytes {
        return Plan::new(sizes, sizes.len(), budget_bytes, true);
    }
    let pair = || longest_prefix(sizes, &pair_rings(sizes), budget_bytes);
    if let Some(num_resident) = (lookahead > 0).then(pair).flatten() {
        return Plan::new(sizes, num_resident, budget_bytes, true);
    }
    let single = longest_prefix(sizes, &single_rings(sizes), budget_bytes);
    Plan::new(sizes, single.unwrap_or(0), budget_bytes, false)
}

/// The largest `k` whose prefix fits beside its ring.
fn longest_prefix(sizes: &[u64], rings: &[u64], budget_bytes: u64) -> Option<usize> {
    let mut prefix_bytes = 0_u64;
    let mut longest = None;
    for (index, (size, ring)) in sizes.iter().zip(rings).enumerate() {
        if prefix_bytes.saturating_add(*ring) <= budget_bytes {
            longest = Some(index);
        }
        prefix_bytes = prefix_bytes.saturating_add(*size);
    }
    longest
}

/// `ring(k)` for every `k`: the largest two neighbours among the weights from `k` on, as a cycle.
fn pair_rings(sizes: &[u64]) -> Vec<u64> {
    let Some(&last) = sizes.last() else {
        return Vec::new();
    };
    let mut largest = 0_u64;
    let mut rings = vec![last; sizes.len()];
    for first in (0..sizes.len() - 1).rev() {
        largest = largest.max(sizes[first].saturating_add(sizes[first + 1]));
        rings[first] = largest.max(last.saturating_add(sizes[first]));
    }
    rings
}

/// The largest weight from `k` on, for every `k`.
fn single_rings(sizes: &[u64]) -> Vec<u64> {
    let mut rings = sizes.to_vec();
    for first in (1..rings.len()).rev() {
        rings[first - 1] = rings[first - 1].max(rings[first]);
    }
    rings
}

fn sum(sizes: &[u64]) -> u64 {
    sizes
        .iter()
        .fold(0, |total, size| total.saturating_add(*size))
}
