//! Baking patch sets into a checkpoint: another file with `W' = W + Σ strength · ΔW`, tensor by tensor.
//!
//! Every ΔW is taken against the base, the sum is made in f32, in the order of the sets' names, and rounded once to
//! the type the tensor is stored in. So the bytes depend on the sets and not on the order they are given in.
//! Tensors that nothing applies to are copied bit for bit. A bias that a patch adds to a layer without one becomes a
//! tensor of its own, in the weight's type; a control patch, which reads more columns than the base has, widens the
//! weight. Both are known before the first byte is written.
//!
//! In memory at once: the tables of the file, the patches, and for one tensor its ΔW in f32 and its result (with
//! the base in f32 where a patch reads it). The base itself stays in the mapped file.

mod plan;
mod stored;

use std::{collections::BTreeMap, fmt, io::Write};

use burn::tensor::{Device, Tensor, TensorData};
use overglaze_patches::LayerShape;
use overglaze_stream::{SafetensorsLayout, SafetensorsWriter, TensorEntry, WeightSource};

use crate::{
    Error, MountReport, Mounting, NameTable, PatchStack,
    residual::{BaseNeeds, BaseValues, Residual},
};

use self::{
    plan::{Parameter, Plan},
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
    /// Patches that go directly into the weight, at strengths of which none is 0.
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
    /// or [`Error::WrongShape`] where layers and source do not belong together, [`Error::WrongDtype`] where one
    /// target of a set is for tensors of which only some are of a type that can be merged into, or [`Error::Patch`]
    /// when a residual cannot be computed.
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

    /// Tensors that get new values: a weight or a bias that some patch has a residual on, and biases that are added.
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
        let delta = self.delta(layer, change.parameter)?;
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
    fn delta(&self, layer: &MergedLayer, parameter: Parameter) -> Result<Option<Tensor<2>>, Error> {
        let patches = layer.patches.direct_summands(&self.device);
        let base = |needs| self.base_values(layer, needs);
        Ok(match parameter {
            Parameter::Weight => Residual::dense(&patches, &layer.shape, base)?.weight,
            Parameter::Bias => {
                let delta = Residual::bias(&patches, &layer.shape, base)?;
                delta.map(|delta| delta.unsqueeze_dim(1))
            }
        })
    }

    /// The base's parameters as far as patches ask for them, in f32.
    fn base_values(&self, layer: &MergedLayer, needs: BaseNeeds) -> Result<BaseValues, Error> {
        let weight = || self.values(&layer.weight, layer.shape.matrix());
        let bias = || self.values(&layer.bias, [layer.shape.d_output()]);
        let has_bias = self.source.entries().contains_key(&layer.bias);
        Ok(BaseValues {
            weight: needs.weight.then(weight).transpose()?,
            bias: (needs.bias && has_bias).then(bias).transpose()?,
        })
    }

    fn values<const D: usize>(&self, name: &str, shape: [usize; D]) -> Result<Tensor<D>, Error> {
        let tag = &self.source.entries()[name].tag;
        let float = StoredFloat::of_tag(tag).expect("the plan has checked the type");
        let data = TensorData::new(float.values(&self.source.read(name)?), shape);
        Ok(Tensor::from_data(data, &self.device))
    }
}

fn floats(tensor: Tensor<2>) -> Vec<f32> {
    let data = tensor.into_data();
    data.try_into_vec::<f32>().expect("residuals are in f32")
}
