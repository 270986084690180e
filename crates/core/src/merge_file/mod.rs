//! Baking patch sets into a checkpoint: another file with `W' = W + Σ strength · ΔW`, tensor by tensor.
//!
//! Every ΔW is taken against the base, the sum is made in f32 and rounded once to the type the tensor is stored in.
//! Tensors that nothing applies to are copied bit for bit. A bias that a patch adds to a layer without one becomes a
//! tensor of its own, in the weight's type; a control patch, which reads more columns than the base has, widens the
//! weight. Both are known before the first byte is written.
//!
//! In memory at once: the tables of the file, the patches, and for one tensor its ΔW in f32 and its result (with
//! the base in f32 where a patch reads it). The base itself stays in the mapped file.

mod plan;
mod stored;

use std::{collections::BTreeMap, fmt, io::Write, sync::Arc};

use burn::tensor::{Device, FloatDType, Tensor, TensorData};
use overglaze_patches::{BaseAccess, BaseLayer, LayerShape, Patch, at_strength};
use overglaze_stream::{SafetensorsLayout, SafetensorsWriter, TensorEntry, WeightSource};

use crate::{Error, MountReport, Mounting, NameTable, PatchStack, sums::add_widened};

use self::{
    plan::{Change, Parameter, Plan},
    stored::{Rows, StoredFloat},
};

/// A merge that is planned and checked; nothing is written yet.
#[derive(Debug)]
pub struct FileMerge<'a> {
    source: &'a dyn WeightSource,
    device: Device,
    plan: Plan,
}

/// A layer of a file and the names of its tensors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileLayer {
    /// Operator and logical shape, the same as the weight's in the file.
    pub shape: LayerShape,
    /// The tensor that holds the weight, or a norm's scale.
    pub weight: String,
    /// The tensor that holds the bias, where there is one.
    pub bias: Option<String>,
}

/// The layers of a file that is not loaded.
#[derive(Clone, Copy)]
pub struct FileLayers<'a> {
    /// Names and aliases.
    pub names: &'a NameTable,
    /// The layer at a path.
    pub layer: &'a dyn Fn(&str) -> Option<FileLayer>,
}

impl fmt::Debug for FileLayers<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let num_names = self.names.names().len();
        write!(formatter, "FileLayers({num_names} names)")
    }
}

/// A layer that patches are for, and the tensors of the file that are its parameters.
#[derive(Debug)]
struct MergedLayer {
    shape: LayerShape,
    /// Name of the weight, or of a norm's scale.
    weight: String,
    /// Name of the bias, whether the file has it or not.
    bias: String,
    /// Patches, at strengths of which none is 0.
    patches: PatchStack,
}

impl<'a> FileMerge<'a> {
    /// Finds the layers of `sets` among the `layers` of `source` and checks every shape and type. A set is a
    /// [`Mounting`], whose placement does not matter here, or `(name, set, strength)`. Residuals are computed on
    /// `device`.
    ///
    /// # Errors
    /// [`Error::NameTaken`], [`Error::BadStrength`], [`Error::PatternUnmatched`], [`Error::TwoReplacements`],
    /// [`Error::NothingApplied`] when not one key of a set fits, [`Error::MissingTensor`]
    /// or [`Error::WrongShape`] where layers and source do not belong together, or [`Error::WrongDtype`] where one
    /// target of a set is for tensors of which only some are of a type that can be merged into.
    pub fn plan<'b, M>(
        source: &'a dyn WeightSource,
        layers: FileLayers<'_>,
        sets: &[M],
        device: &Device,
    ) -> Result<Self, Error>
    where
        M: Clone + Into<Mounting<'b>>,
    {
        let sets: Vec<Mounting<'b>> = sets.iter().cloned().map(Into::into).collect();
        Ok(Self {
            source,
            device: device.clone(),
            plan: Plan::new(source, layers, &sets)?,
        })
    }

    /// What becomes of every key, a report a set.
    #[must_use]
    pub fn reports(&self) -> &[MountReport] {
        &self.plan.reports
    }

    /// Tensors of the new file.
    #[must_use]
    pub fn num_tensors(&self) -> usize {
        let known = self.source.entries();
        let added = self
            .plan
            .entries
            .keys()
            .filter(|name| !known.contains_key(*name));
        known.len() + added.count()
    }

    /// Tensors that patches are for.
    #[must_use]
    pub fn num_changed(&self) -> usize {
        self.plan.changes.len()
    }

    /// The file to be written, under `label` in messages.
    ///
    /// # Errors
    /// [`Error::Stream`] when there can be no such file.
    pub fn layout(
        &self,
        label: impl Into<String>,
        metadata: BTreeMap<String, String>,
    ) -> Result<SafetensorsLayout, Error> {
        let mut entries = self.source.entries().clone();
        entries.extend(self.plan.entries.clone());
        let entries = entries.into_iter().map(|(name, entry)| {
            (
                name,
                TensorEntry {
                    file: None,
                    ..entry
                },
            )
        });
        Ok(SafetensorsLayout::new(label, entries, metadata)?)
    }

    /// Writes the file `layout` to `sink`, telling `progress` the bytes of tensors written so far.
    ///
    /// # Errors
    /// [`Error::Stream`] when a tensor cannot be read or written, [`Error::Patch`] when a residual cannot be
    /// computed, or [`Error::MergeOverflow`] when a value does not fit the type it is stored in.
    pub fn write<W: Write>(
        &self,
        layout: SafetensorsLayout,
        sink: W,
        progress: &mut dyn FnMut(u64),
    ) -> Result<W, Error> {
        let tensors = layout.tensors().to_vec();
        let mut writer = SafetensorsWriter::begin(layout, sink)?;
        let mut written = 0;
        for (name, entry) in tensors {
            match self.merged(&name, &entry)? {
                Some(bytes) => writer.tensor(&name, &bytes)?,
                None => writer.tensor(&name, &self.source.read(&name)?)?,
            }
            written += entry.num_bytes;
            progress(written);
        }
        Ok(writer.finish()?)
    }

    /// The tensor's new bytes; `None` where it stays as it is.
    fn merged(&self, name: &str, entry: &TensorEntry) -> Result<Option<Vec<u8>>, Error> {
        let Some(change) = self.plan.changes.get(name) else {
            return Ok(None);
        };
        let layer = &self.plan.layers[change.layer];
        let float = StoredFloat::of_tag(&entry.tag).expect("the plan has checked the type");
        let delta = self.delta(layer, change)?;
        let base = match self.source.entries().contains_key(name) {
            true => Some(self.source.read(name)?),
            false => None,
        };
        let delta = match (delta, &base) {
            (None, Some(_)) => return Ok(None),
            (None, None) => vec![0.0; layer.shape.d_output()],
            (Some(delta), _) => floats(delta),
        };
        let rows = Rows::new(
            layer.shape.d_output(),
            base.as_deref().unwrap_or_default(),
            &delta,
        );
        let merged = rows.merged(float);
        merged.map(Some).ok_or_else(|| Error::MergeOverflow {
            tensor: name.into(),
            dtype: entry.tag.clone(),
        })
    }

    /// The summed residual on one parameter, row by row.
    fn delta(&self, layer: &MergedLayer, change: &Change) -> Result<Option<Tensor<2>>, Error> {
        let patches = layer.on(&self.device);
        let (weight, bias) = self.base_values(layer, &patches)?;
        let base = BaseLayer {
            shape: &layer.shape,
            weight: weight.as_ref(),
            bias: bias.as_ref(),
        };
        let mut sum = None;
        for patch in &patches {
            let delta = match change.parameter {
                Parameter::Weight => patch.delta_weight(&base)?,
                Parameter::Bias => patch.delta_bias(&base)?.map(|delta| delta.unsqueeze_dim(1)),
            };
            if let Some(delta) = delta {
                add_widened(&mut sum, delta);
            }
        }
        Ok(sum)
    }

    /// The base's weight, where a patch reads it, and its bias, in f32.
    fn base_values(
        &self,
        layer: &MergedLayer,
        patches: &[Arc<dyn Patch>],
    ) -> Result<(Option<Tensor<2>>, Option<Tensor<1>>), Error> {
        let needs_weight = patches
            .iter()
            .any(|patch| patch.base_access() == BaseAccess::Weight);
        let weight = match needs_weight {
            true => Some(self.values(&layer.weight, layer.shape.matrix())?),
            false => None,
        };
        let has_bias = self.source.entries().contains_key(&layer.bias);
        let bias = match has_bias && patches.iter().any(|patch| patch.changes_bias()) {
            true => Some(self.values(&layer.bias, [layer.shape.d_output()])?),
            false => None,
        };
        Ok((weight, bias))
    }

    fn values<const D: usize>(&self, name: &str, shape: [usize; D]) -> Result<Tensor<D>, Error> {
        let tag = &self.source.entries()[name].tag;
        let float = StoredFloat::of_tag(tag).expect("the plan has checked the type");
        let data = TensorData::new(float.values(&self.source.read(name)?), shape);
        Ok(Tensor::from_data(data, &self.device))
    }
}

impl MergedLayer {
    /// The patches on `device` in f32, as patches at strength 1.
    fn on(&self, device: &Device) -> Vec<Arc<dyn Patch>> {
        let patches = self.patches.iter();
        patches
            .map(|mounted| {
                let patch = mounted.patch().to_device(device, FloatDType::F32);
                at_strength(&patch, mounted.strength())
            })
            .collect()
    }
}

fn floats(tensor: Tensor<2>) -> Vec<f32> {
    let data = tensor.into_data();
    data.try_into_vec::<f32>().expect("residuals are in f32")
}
