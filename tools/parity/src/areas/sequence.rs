//! A model of a case's layers, one after another, and what a patched case asks of it.

use burn::tensor::{Device, TensorData};
use overglaze_core::{
    LayerTree, LoaderConfig, NameTable, PatchedLayer, merge, mount, restore, unmount,
};
use overglaze_patches::PatchSet;

use super::{Refusal, against, layers::check_dtype};
use crate::{AnyLayer, Case, Comparison, ModuleCase};

/// Layers that run one after another.
pub(super) struct Sequence {
    layers: Vec<(String, AnyLayer)>,
    names: NameTable,
}

/// Adapters and the outputs expected with them.
pub(super) struct Expected<'a> {
    /// The sets and their strengths, in mounting order.
    pub(super) sets: &'a [(PatchSet, f32)],
    /// Names of the outputs.
    pub(super) outputs: Vec<&'a str>,
    /// Names of the merged parameters of the first layer, which end in `.weight` or `.bias`.
    pub(super) merged: Vec<&'a str>,
    /// The type outputs must have.
    pub(super) dtype: OutputDtype,
}

/// The type of an output.
#[derive(Clone, Copy, Debug)]
pub(super) enum OutputDtype {
    /// As the case states it.
    OfCase,
    /// That of the input; the case states f32, in which its values were computed.
    OfInput,
}

/// Every form the case's layers can have: over its bytes in place, streamed, and over Burn layers.
pub(super) fn forms(
    modules: &[(String, ModuleCase<'_>)],
    device: &Device,
) -> Result<Vec<Sequence>, Refusal> {
    // A weight that is stored `[d_input, d_output]` is in Burn's layout and in no file's.
    let is_stored_by_output = !modules.iter().any(|(_, module)| module.is_transposed());
    let mut forms = vec![Sequence::new(modules, |module| module.over_burn(device))?];
    if is_stored_by_output {
        forms.extend(forms_over_bytes(modules, device)?);
    }
    Ok(forms)
}

/// The case's layers over its bytes, in place and streamed.
pub(super) fn forms_over_bytes(
    modules: &[(String, ModuleCase<'_>)],
    device: &Device,
) -> Result<Vec<Sequence>, Refusal> {
    let configs = [
        LoaderConfig::resident(device.clone()),
        LoaderConfig::streamed(device.clone(), BUDGET_BYTES),
    ];
    let forms = configs.map(|config| Sequence::new(modules, |module| module.load(config.clone())));
    forms.into_iter().collect()
}

impl Sequence {
    fn new(
        modules: &[(String, ModuleCase<'_>)],
        build: impl Fn(&ModuleCase<'_>) -> Result<AnyLayer, String>,
    ) -> Result<Self, Refusal> {
        let (mut layers, mut names) = (Vec::new(), NameTable::default());
        for (path, module) in modules {
            if !module.is_supported() {
                let kind = module.kind();
                return Err(Refusal::Unsupported(format!("module `{kind}`")));
            }
            let layer = build(module)?;
            let d_output = layer.layer().layer_shape().d_output();
            names.add_layer(path, d_output).map_err(in_words)?;
            layers.push((path.clone(), layer));
        }
        Ok(Self { layers, names })
    }

    /// The first layer's input may be wider than its base: what gives a control patch its meaning.
    pub(super) fn with_open_input(mut self) -> Self {
        if let Some((_, AnyLayer::Linear(layer))) = self.layers.first_mut() {
            *layer = layer.clone().with_open_input();
        }
        self
    }

    /// Runs `expected` by sidecar and, where the base is in place, merged; afterwards everything must be as before.
    pub(super) fn run(
        mut self,
        case: &Case,
        expected: &Expected<'_>,
        device: &Device,
    ) -> Result<Comparison, Refusal> {
        let input = case.data("in.x")?;
        let unpatched = self.forward(&input, device);
        for (set, strength) in expected.sets {
            mount(&mut self, &set.name, set, *strength).map_err(in_words)?;
        }
        let mut comparison = self.compared(case, &input, expected, device)?;
        for (set, _) in expected.sets {
            unmount(&mut self, &set.name).map_err(in_words)?;
        }
        if self
            .layers
            .iter()
            .all(|(_, layer)| layer.layer().is_resident())
        {
            comparison = comparison.worst(self.run_merged(case, &input, expected, device)?);
        }
        match (unpatched, self.forward(&input, device)) {
            (Ok(before), Ok(after)) if before.as_bytes() != after.as_bytes() => Err(
                Refusal::Failed("the base output changed by mounting or merging".into()),
            ),
            (Ok(_), Err(why)) => Err(why.into()),
            // Without its control patch the layer has its old width again.
            (Err(_), Ok(_)) => Err(Refusal::Failed("the layer kept a wider input".into())),
            _ => Ok(comparison),
        }
    }

    fn run_merged(
        &mut self,
        case: &Case,
        input: &TensorData,
        expected: &Expected<'_>,
        device: &Device,
    ) -> Result<Comparison, Refusal> {
        let named: Vec<_> = expected
            .sets
            .iter()
            .map(|(set, strength)| (&*set.name, set, *strength))
            .collect();
        merge(self, &named).map_err(in_words)?;
        let mut comparison = self.compared(case, input, expected, device)?;
        for name in &expected.merged {
            let found = self.merged_parameter(case, name, device)?;
            comparison = comparison.worst(against(case, name, &found)?);
        }
        restore(self);
        Ok(comparison)
    }

    /// The merged parameter of the first layer in the shape the case states it in.
    fn merged_parameter(
        &self,
        case: &Case,
        name: &str,
        device: &Device,
    ) -> Result<TensorData, Refusal> {
        let (_, layer) = &self.layers[0];
        let (weight, bias) = layer.layer().effective_values(device).map_err(in_words)?;
        let found = match name.rsplit('.').next() {
            Some("weight" | "scale") => weight.into_data(),
            Some("bias") => {
                let bias = bias.ok_or_else(|| "the merged layer has no bias".to_owned())?;
                bias.into_data()
            }
            _ => return Err(Refusal::Unsupported(format!("merged parameter `{name}`"))),
        };
        let shape = case.data(name)?.shape().to_vec();
        let (bytes, dtype) = (found.as_bytes().to_vec(), found.dtype());
        if found.num_elements() != shape.iter().product::<usize>() {
            let why = format!("{name} has shape {:?}, expected {shape:?}", found.shape());
            return Err(Refusal::Failed(why));
        }
        Ok(TensorData::from_bytes_vec(bytes, shape, dtype))
    }

    fn compared(
        &self,
        case: &Case,
        input: &TensorData,
        expected: &Expected<'_>,
        device: &Device,
    ) -> Result<Comparison, Refusal> {
        let found = self.forward(input, device)?;
        let mut worst: Option<Comparison> = None;
        for name in &expected.outputs {
            match expected.dtype {
                OutputDtype::OfCase => check_dtype(case, (name, &found), device)?,
                OutputDtype::OfInput if !device.supports_dtype(input.dtype()) => {}
                OutputDtype::OfInput if found.dtype() == input.dtype() => {}
                OutputDtype::OfInput => {
                    let (found, wanted) = (found.dtype(), input.dtype());
                    let why = format!("output dtype {found:?}, expected {wanted:?}");
                    return Err(Refusal::Failed(why));
                }
            }
            let comparison = against(case, name, &found)?;
            worst = Some(worst.map_or(comparison, |worst| worst.worst(comparison)));
        }
        worst.ok_or_else(|| Refusal::Failed("nothing to compare".into()))
    }

    fn forward(&self, input: &TensorData, device: &Device) -> Result<TensorData, String> {
        let mut values = input.clone();
        for (_, layer) in &self.layers {
            values = layer.forward(&values, device)?;
        }
        Ok(values)
    }
}

impl LayerTree for Sequence {
    fn visit_layers(&self, visitor: &mut dyn FnMut(&str, &dyn PatchedLayer)) {
        for (path, layer) in &self.layers {
            visitor(path, layer.layer());
        }
    }

    fn visit_layers_mut(&mut self, visitor: &mut dyn FnMut(&str, &mut dyn PatchedLayer)) {
        for (path, layer) in &mut self.layers {
            visitor(path, layer.layer_mut());
        }
    }

    fn names(&self) -> &NameTable {
        &self.names
    }
}

/// The error and its causes, as one sentence.
pub(super) fn in_words(error: impl std::error::Error) -> Refusal {
    let (mut words, mut cause) = (error.to_string(), error.source());
    while let Some(error) = cause {
        words = format!("{words}: {error}");
        cause = error.source();
    }
    Refusal::Failed(words)
}

/// Enough for any one of a case's layers.
const BUDGET_BYTES: u64 = 1 << 20;
