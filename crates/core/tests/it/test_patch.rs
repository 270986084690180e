//! A patch of the tests' own: `ΔW = weight + gain · W`, no sidecar, and a record of how it was used.

use std::sync::{
    Arc, Mutex, Weak,
    atomic::{AtomicUsize, Ordering},
};

use burn::tensor::{Device, FloatDType, Tensor};
use overglaze_patches::{
    BaseAccess, BaseLayer, LayerShape, Patch, PatchError, Replaced, tensor_bytes,
};

use crate::numbers::values;

/// What happened to a patch and its copies.
#[derive(Debug, Default)]
pub(crate) struct Uses {
    /// Calls of `delta_weight`.
    pub(crate) num_deltas: AtomicUsize,
    /// Base values each of them was shown.
    pub(crate) seen: Mutex<Vec<Vec<f32>>>,
    /// Copies made, dead or alive.
    pub(crate) copies: Mutex<Vec<Weak<()>>>,
}

#[derive(Clone, Debug)]
pub(crate) struct TestPatch {
    pub(crate) weight: Option<Tensor<2>>,
    pub(crate) bias: Option<Tensor<1>>,
    pub(crate) gain: Option<f32>,
    replaced: Replaced,
    pub(crate) uses: Arc<Uses>,
    #[expect(dead_code, reason = "it is only there to be dropped")]
    life: Arc<()>,
}

impl TestPatch {
    pub(crate) fn new(weight: Option<Tensor<2>>, bias: Option<Tensor<1>>) -> Self {
        Self {
            weight,
            bias,
            gain: None,
            replaced: Replaced::default(),
            uses: Arc::default(),
            life: Arc::default(),
        }
    }

    /// `ΔW = gain · W`: it needs the base's values.
    pub(crate) fn gain(gain: f32) -> Self {
        Self::new(None, None).with_gain(gain)
    }

    pub(crate) fn with_gain(mut self, gain: f32) -> Self {
        self.gain = Some(gain);
        self
    }

    /// The same, said to replace these parameters.
    pub(crate) fn replacing(mut self, replaced: Replaced) -> Self {
        self.replaced = replaced;
        self
    }

    pub(crate) fn shared(&self) -> Arc<dyn Patch> {
        Arc::new(self.clone())
    }
}

impl Uses {
    pub(crate) fn num_deltas(&self) -> usize {
        self.num_deltas.load(Ordering::SeqCst)
    }

    pub(crate) fn seen(&self) -> Vec<Vec<f32>> {
        self.seen.lock().expect("no test panics here").clone()
    }

    /// Copies made, and how many of them live.
    pub(crate) fn num_copies(&self) -> (usize, usize) {
        let copies = self.copies.lock().expect("no test panics here");
        let alive = copies.iter().filter(|copy| copy.strong_count() > 0);
        (copies.len(), alive.count())
    }
}

impl Patch for TestPatch {
    fn kind(&self) -> &str {
        "test"
    }

    fn base_access(&self) -> BaseAccess {
        match self.gain {
            Some(_) => BaseAccess::Weight,
            None => BaseAccess::Shape,
        }
    }

    fn check(&self, layer: &LayerShape) -> Result<(), PatchError> {
        match &self.weight {
            Some(weight) if weight.dims() != layer.matrix() => Err(PatchError::DoesNotFit {
                kind: self.kind().into(),
                patch: weight.dims(),
                base: layer.dims().into(),
            }),
            _ => Ok(()),
        }
    }

    fn replaces(&self) -> Replaced {
        self.replaced
    }

    fn delta_weight(&self, base: &BaseLayer<'_>) -> Result<Option<Tensor<2>>, PatchError> {
        self.uses.num_deltas.fetch_add(1, Ordering::SeqCst);
        let Some(gain) = self.gain else {
            return Ok(self.weight.clone());
        };
        let unavailable = || PatchError::BaseUnavailable {
            kind: self.kind().into(),
        };
        let weight = base.weight.ok_or_else(unavailable)?;
        let seen = &self.uses.seen;
        seen.lock()
            .expect("no test panics here")
            .push(values(weight));
        Ok(Some(weight.clone().mul_scalar(gain)))
    }

    fn changes_bias(&self) -> bool {
        self.bias.is_some()
    }

    fn delta_bias(&self, _base: &BaseLayer<'_>) -> Result<Option<Tensor<1>>, PatchError> {
        Ok(self.bias.clone())
    }

    fn to_device(&self, device: &Device, _dtype: FloatDType) -> Arc<dyn Patch> {
        let life = Arc::default();
        let mut copies = self.uses.copies.lock().expect("no test panics here");
        copies.push(Arc::downgrade(&life));
        Arc::new(Self {
            weight: self.weight.clone().map(|weight| weight.to_device(device)),
            bias: self.bias.clone().map(|bias| bias.to_device(device)),
            gain: self.gain,
            replaced: self.replaced,
            uses: Arc::clone(&self.uses),
            life,
        })
    }

    fn num_bytes(&self) -> usize {
        self.weight.as_ref().map_or(0, tensor_bytes) + self.bias.as_ref().map_or(0, tensor_bytes)
    }
}
