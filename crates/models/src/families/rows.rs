//! One layer in the spellings different programs give it, which may stack what others keep apart.
//!
//! The rows are counted as in the stacked weight. A spelling places ranges of them in its own layers; laid over
//! the spelling a checkpoint has, it gives the pieces of every other.

use std::{collections::BTreeSet, ops::Range};

use overglaze_core::Piece;

use super::{
    Alias, Layers,
    pattern::{filled, indices},
};

/// A layer, or several that are one in some spelling.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    sizes: Sizes,
    spellings: Vec<Spelling>,
}

/// How many rows the parts of a stacked layer have.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sizes {
    /// One part.
    One,
    /// `n` parts alike.
    Alike(usize),
    /// Three parts as wide as the input, and the rest.
    AttentionAndRest,
}

/// The names of a layer in one program, with `{}` for indices.
#[derive(Clone, Debug)]
pub(crate) enum Spelling {
    /// All rows in one layer.
    Whole(String),
    /// All rows in one layer, the second half first.
    HalvesSwapped(String),
    /// A layer for each part.
    Parts(Vec<String>),
    /// The parts of this range stacked in one layer: only ever an adapter's name.
    Stack(String, Range<usize>),
}

/// Rows of the stacked weight, and the layer and row where they begin there.
#[derive(Clone, Debug)]
struct Segment {
    rows: Range<usize>,
    layer: String,
    start: usize,
}

impl Row {
    /// A layer of many names.
    pub(crate) fn same(names: &[&str]) -> Self {
        let whole = |name: &&str| Spelling::Whole((*name).into());
        Self::new(Sizes::One, names.iter().map(whole))
    }

    /// Layers that `stacked` has in one, in equal parts.
    pub(crate) fn fused(stacked: &str, parts: &[&str]) -> Self {
        Self::new(Sizes::Alike(parts.len()), [whole(stacked), apart(parts)])
    }

    /// A layer whose halves stand the other way round in `swapped`.
    pub(crate) fn swapped(name: &str, swapped: &str) -> Self {
        let swapped = Spelling::HalvesSwapped(swapped.into());
        Self::new(Sizes::One, [whole(name), swapped])
    }

    pub(crate) fn new(sizes: Sizes, spellings: impl IntoIterator<Item = Spelling>) -> Self {
        let spellings = spellings.into_iter().collect();
        Self { sizes, spellings }
    }

    /// With another spelling.
    pub(crate) fn or(mut self, spelling: Spelling) -> Self {
        self.spellings.push(spelling);
        self
    }

    /// The names that are not `layers`' own, for every index they have.
    pub(crate) fn aliases(&self, layers: &Layers) -> Vec<Alias> {
        let patterns = self.spellings.iter().flat_map(Spelling::patterns);
        let found: BTreeSet<Vec<&str>> = patterns
            .flat_map(|pattern| layers.keys().filter_map(|path| indices(pattern, path)))
            .collect();
        found
            .iter()
            .flat_map(|indices| self.aliases_at(indices, layers))
            .collect()
    }

    fn aliases_at(&self, indices: &[&str], layers: &Layers) -> Vec<Alias> {
        let own = self.spellings.iter().find_map(|spelling| {
            let sizes = self.sizes_of(spelling, indices, layers)?;
            Some((spelling, sizes))
        });
        let Some((own, sizes)) = own else {
            return Vec::new();
        };
        let mut own_segments = own.segments(&sizes, indices);
        own_segments.sort_by_key(|segment| segment.start);
        let names = self.spellings.iter().flat_map(|spelling| {
            let segments = spelling.segments(&sizes, indices);
            by_layer(segments)
        });
        names
            .filter(|(name, _)| !layers.contains_key(name))
            .map(|(name, segments)| Alias {
                name,
                pieces: overlaps(&own_segments, &segments),
            })
            .collect()
    }

    /// Rows of each part, when all layers of `spelling` are there.
    fn sizes_of(
        &self,
        spelling: &Spelling,
        indices: &[&str],
        layers: &Layers,
    ) -> Option<Vec<usize>> {
        let shape = |pattern: &String| layers.get(&filled(pattern, indices));
        match spelling {
            Spelling::Whole(name) | Spelling::HalvesSwapped(name) => {
                let shape = shape(name)?;
                self.sizes.of(shape.d_output(), shape.fan_in())
            }
            Spelling::Parts(names) => names
                .iter()
                .map(|name| Some(shape(name)?.d_output()))
                .collect(),
            Spelling::Stack(..) => None,
        }
    }
}

impl Sizes {
    fn of(self, rows: usize, d_input: usize) -> Option<Vec<usize>> {
        match self {
            Self::One => Some(vec![rows]),
            Self::Alike(parts) => rows
                .is_multiple_of(parts)
                .then(|| vec![rows / parts; parts]),
            Self::AttentionAndRest => {
                let rest = rows.checked_sub(3 * d_input)?;
                Some(vec![d_input, d_input, d_input, rest])
            }
        }
    }
}

impl Spelling {
    fn patterns(&self) -> &[String] {
        match self {
            Self::Whole(name) | Self::HalvesSwapped(name) => std::slice::from_ref(name),
            Self::Parts(names) => names,
            Self::Stack(..) => &[],
        }
    }

    /// Where this spelling has the rows whose parts have these sizes.
    fn segments(&self, sizes: &[usize], indices: &[&str]) -> Vec<Segment> {
        let start_of = |part: usize| sizes.iter().take(part).sum::<usize>();
        let total = start_of(sizes.len());
        let segment = |name: &str, rows: Range<usize>, start| Segment {
            rows,
            layer: filled(name, indices),
            start,
        };
        match self {
            Self::Whole(name) => vec![segment(name, 0..total, 0)],
            Self::HalvesSwapped(name) => {
                let half = total / 2;
                vec![segment(name, 0..half, half), segment(name, half..total, 0)]
            }
            Self::Stack(name, parts) => {
                vec![segment(name, start_of(parts.start)..start_of(parts.end), 0)]
            }
            Self::Parts(names) => names
                .iter()
                .enumerate()
                .map(|(part, name)| segment(name, start_of(part)..start_of(part + 1), 0))
                .collect(),
        }
    }
}

pub(crate) fn whole(name: &str) -> Spelling {
    Spelling::Whole(name.into())
}

pub(crate) fn apart(names: &[&str]) -> Spelling {
    Spelling::Parts(names.iter().map(|name| (*name).into()).collect())
}

/// The aliases of every row.
pub(crate) fn aliases_of(rows: &[Row], layers: &Layers) -> Vec<Alias> {
    rows.iter().flat_map(|row| row.aliases(layers)).collect()
}

fn by_layer(segments: Vec<Segment>) -> Vec<(String, Vec<Segment>)> {
    let mut layers: Vec<(String, Vec<Segment>)> = Vec::new();
    for segment in segments {
        match layers.iter_mut().find(|(name, _)| *name == segment.layer) {
            Some((_, known)) => known.push(segment),
            None => layers.push((segment.layer.clone(), vec![segment])),
        }
    }
    layers
}

/// The rows that both have, as pieces of the first.
fn overlaps(own: &[Segment], other: &[Segment]) -> Vec<Piece> {
    let pairs = own
        .iter()
        .flat_map(|ours| other.iter().map(move |theirs| (ours, theirs)));
    let piece = |(ours, theirs): (&Segment, &Segment)| {
        let start = ours.rows.start.max(theirs.rows.start);
        let end = ours.rows.end.min(theirs.rows.end);
        let num_rows = end.checked_sub(start).filter(|rows| *rows > 0)?;
        let layer_start = ours.start + start - ours.rows.start;
        let target_start = theirs.start + start - theirs.rows.start;
        Some(Piece {
            layer: ours.layer.clone(),
            layer_rows: layer_start..layer_start + num_rows,
            target_rows: target_start..target_start + num_rows,
        })
    };
    pairs.filter_map(piece).collect()
}
