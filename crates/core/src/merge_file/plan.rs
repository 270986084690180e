//! What a merge changes in a file, found before anything is written.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fmt,
    sync::Arc,
};

use overglaze_patches::{BaseAccess, BaseLayer, LayerShape, Operator, Patch, PatchError, PatchSet};
use overglaze_stream::{TensorEntry, WeightSource};

use crate::{
    Error, Fitted, KeyOutcome, LayerLimits, LayerShapes, MountReport, MountedPatch, Mounting,
    PatchStack,
    fit::{fit_shapes, nothing_applied},
    source_tensor,
};

use super::{FileLayer, FileLayers, MergedLayer, stored::StoredFloat};

/// The layers that patches are for, and what that makes of the file's tensors.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) layers: Vec<MergedLayer>,
    /// Tensors with other values than before, by name.
    pub(super) changes: BTreeMap<String, Change>,
    /// Tensors of another shape than before, and new ones.
    pub(super) entries: BTreeMap<String, TensorEntry>,
    pub(super) reports: Vec<MountReport>,
}

/// Which parameter a tensor is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    /// Index among the plan's layers.
    pub(super) layer: usize,
    pub(super) parameter: Parameter,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Parameter {
    Weight,
    Bias,
}

/// The layers of a source.
struct Layers<'a> {
    source: &'a dyn WeightSource,
    known: FileLayers<'a>,
}

impl Plan {
    pub(super) fn new(
        source: &dyn WeightSource,
        layers: FileLayers<'_>,
        sets: &[Mounting<'_>],
    ) -> Result<Self, Error> {
        let layers = Layers {
            source,
            known: layers,
        };
        let mut plan = Self::default();
        let mut merged = BTreeMap::<String, MergedLayer>::new();
        for Mounting {
            name,
            set,
            strengths,
            ..
        } in sets
        {
            let strengths =
                strengths.resolve_in(layers.fitted_by(&|path| layers.shape_at(path)), name)?;
            let Fitted { patches, report } = layers.fit(name, set)?;
            for (path, patch) in patches {
                let strength = strengths.at(&path);
                if strength != 0.0 {
                    let layer = layers.layer_in(&mut merged, &path)?;
                    layer.patches.check_replaced(&path, name, &*patch)?;
                    layer.patches.check(name, strength)?;
                    let mounted = MountedPatch::new((*name).into(), patch, strength);
                    layer.patches.push(mounted.into_direct());
                }
            }
            plan.reports.push(report);
        }
        for layer in merged.into_values() {
            plan.add(source, layer)?;
        }
        Ok(plan)
    }

    fn add(&mut self, source: &dyn WeightSource, layer: MergedLayer) -> Result<(), Error> {
        let (index, entry) = (self.layers.len(), &source.entries()[&layer.weight]);
        let change = |parameter| Change {
            layer: index,
            parameter,
        };
        if layer.changes_weight()? {
            self.changes
                .insert(layer.weight.clone(), change(Parameter::Weight));
            if let Some(widened) = layer.widened(entry) {
                self.entries.insert(layer.weight.clone(), widened);
            }
        }
        if layer.changes_bias() {
            self.changes
                .insert(layer.bias.clone(), change(Parameter::Bias));
            if !source.entries().contains_key(&layer.bias) {
                let dims = [layer.shape.d_output()];
                self.entries
                    .insert(layer.bias.clone(), shaped(entry, &dims));
            }
        }
        self.layers.push(layer);
        Ok(())
    }
}

impl MergedLayer {
    fn changes_weight(&self) -> Result<bool, Error> {
        for mounted in self.patches.iter() {
            if changes_weight(&**mounted.patch(), &self.shape)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn changes_bias(&self) -> bool {
        let mut patches = self.patches.iter();
        patches.any(|mounted| mounted.patch().changes_bias())
    }

    /// The weight's entry with as many columns as the widest patch reads, where those are more than the base's.
    fn widened(&self, entry: &TensorEntry) -> Option<TensorEntry> {
        let d_input = self.shape.d_input();
        let reads = self
            .patches
            .iter()
            .map(|mounted| mounted.patch().d_input(&self.shape));
        let widest = reads.max().filter(|widest| *widest > d_input)?;
        let mut dims = entry.shape.clone();
        *dims.get_mut(1)? = widest;
        Some(shaped(entry, &dims))
    }
}

impl Layers<'_> {
    /// The patches of `set` that can be merged.
    fn fit(&self, name: &str, set: &PatchSet) -> Result<Fitted, Error> {
        let mut fitted = fit_shapes(self.fitted_by(&|path| self.shape_at(path)), set)?;
        self.refuse(&mut fitted)?;
        if fitted.patches.is_empty() {
            return Err(nothing_applied(name, &fitted.report));
        }
        Ok(fitted)
    }

    /// What sets are fitted by, with [`shape_at`](Self::shape_at) as `shape`.
    fn fitted_by<'a>(&self, shape: &'a dyn Fn(&str) -> Option<LayerShape>) -> LayerShapes<'a>
    where
        Self: 'a,
    {
        LayerShapes {
            names: self.known.names,
            shape,
            limits: &|_| LayerLimits::default(),
        }
    }

    fn shape_at(&self, path: &str) -> Option<LayerShape> {
        (self.known.layer)(path).map(|layer| layer.shape)
    }

    /// The layer at `path` in `merged`, put there when it is met first.
    fn layer_in<'a>(
        &self,
        merged: &'a mut BTreeMap<String, MergedLayer>,
        path: &str,
    ) -> Result<&'a mut MergedLayer, Error> {
        Ok(match merged.entry(path.to_owned()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(self.layer(path)?),
        })
    }

    /// The layer at `path`, with nothing on it yet.
    fn layer(&self, path: &str) -> Result<MergedLayer, Error> {
        let FileLayer {
            shape,
            weight,
            bias,
        } = self.at(path);
        self.check_shape(&weight, shape.dims(), || format!("that of {shape}"))?;
        if let Some(bias) = &bias {
            let dims = [shape.d_output()];
            self.check_shape(bias, &dims, || format!("{dims:?}, a value for each output"))?;
        }
        Ok(MergedLayer {
            bias: bias.unwrap_or_else(|| bias_beside(&weight)),
            shape,
            weight,
            patches: PatchStack::default(),
        })
    }

    /// That the tensor `name` has the dimensions `dims`, which `expected` puts in words.
    fn check_shape(
        &self,
        name: &str,
        dims: &[usize],
        expected: impl FnOnce() -> String,
    ) -> Result<(), Error> {
        let found = source_tensor::found(self.source, name)?.shape;
        if found == dims {
            return Ok(());
        }
        Err(source_tensor::wrong_shape(
            self.source,
            name,
            &found,
            expected(),
        ))
    }

    fn at(&self, path: &str) -> FileLayer {
        (self.known.layer)(path).expect("the fit has found the layer")
    }

    /// Takes the patches out that cannot be merged, and says so in the report.
    fn refuse(&self, fitted: &mut Fitted) -> Result<(), Error> {
        let mut refused = BTreeMap::new();
        for (path, patch) in &fitted.patches {
            if let Some(obstacle) = self.obstacle(path, patch)? {
                refused.insert(path.clone(), obstacle);
            }
        }
        fitted.patches.retain(|path, _| !refused.contains_key(path));
        for target in &mut fitted.report.targets {
            let KeyOutcome::Applied { layers } = &target.outcome else {
                continue;
            };
            let mut obstacles = layers.iter().filter_map(|layer| refused.get(layer));
            let Some(first) = obstacles.next() else {
                continue;
            };
            if obstacles.count() + 1 < layers.len() {
                return Err(first.error(self.source));
            }
            let why = first.to_string();
            target.outcome = KeyOutcome::Refused { why };
        }
        Ok(())
    }

    /// Why `patch` cannot be merged into the layer at `path`.
    fn obstacle(&self, path: &str, patch: &Arc<dyn Patch>) -> Result<Option<Obstacle>, Error> {
        let layer = self.at(path);
        let weight = source_tensor::entry(self.source, &layer.weight)?;
        if let Some(obstacle) = Obstacle::of(&layer.weight, weight) {
            return Ok(Some(obstacle));
        }
        if !patch.changes_bias() {
            return Ok(None);
        }
        Ok(match layer.bias {
            Some(bias) => Obstacle::of(&bias, source_tensor::entry(self.source, &bias)?),
            None if layer.shape.operator() == Operator::Norm => Some(Obstacle::NoShift {
                bias: bias_beside(&layer.weight),
            }),
            None => None,
        })
    }
}

/// Why a layer of a file takes no patch.
#[derive(Debug)]
enum Obstacle {
    /// The tensor is of a type that a sum cannot be rounded to.
    Dtype { tensor: String, found: String },
    /// A shift for a norm that the model gives none.
    NoShift { bias: String },
}

impl Obstacle {
    fn of(tensor: &str, entry: &TensorEntry) -> Option<Self> {
        let tag = &entry.tag;
        StoredFloat::of_tag(tag).is_none().then(|| Self::Dtype {
            tensor: tensor.into(),
            found: tag.clone(),
        })
    }

    fn error(&self, source: &dyn WeightSource) -> Error {
        match self {
            Self::Dtype { tensor, found } => Error::WrongDtype {
                file: source.label(),
                tensor: tensor.clone(),
                found: found.clone(),
                expected: MERGEABLE,
            },
            Self::NoShift { bias } => source_tensor::missing(source, bias),
        }
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dtype { tensor, found } => write!(
                formatter,
                "tensor `{tensor}` has dtype {found}, and patches are merged into {MERGEABLE} only; convert the \
                 checkpoint first"
            ),
            Self::NoShift { bias } => write!(
                formatter,
                "the norm has no `{bias}`, and a model that has none would not read one"
            ),
        }
    }
}

/// Whether `patch` has a ΔW; it is computed only for a patch that changes the bias and may change nothing else.
fn changes_weight(patch: &dyn Patch, shape: &LayerShape) -> Result<bool, PatchError> {
    let reads_weight = patch.base_access() == BaseAccess::Weight;
    if !patch.changes_bias() || reads_weight || patch.low_rank().is_some() {
        return Ok(true);
    }
    Ok(patch.delta_weight(&BaseLayer::of_shape(shape))?.is_some())
}

/// An entry of the same type with other dimensions.
fn shaped(entry: &TensorEntry, dims: &[usize]) -> TensorEntry {
    let elements = |dims: &[usize]| dims.iter().map(|dim| *dim as u64).product::<u64>();
    let element_bytes = entry.num_bytes / elements(&entry.shape).max(1);
    TensorEntry {
        shape: dims.into(),
        num_bytes: elements(dims) * element_bytes,
        ..entry.clone()
    }
}

/// Name of the bias that belongs to the tensor `weight`.
fn bias_beside(weight: &str) -> String {
    let path = ["weight", "scale"]
        .iter()
        .find_map(|end| weight.strip_suffix(end));
    match path {
        Some(path) => format!("{path}bias"),
        None => format!("{weight}.bias"),
    }
}

/// Types that can be merged into.
const MERGEABLE: &str = "F32, F16 and BF16";
