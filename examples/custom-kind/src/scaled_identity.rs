//! Kind `scaled-identity`: `ΔW = gain · I`, so `y += strength · gain · x` on square layers.
//!
//! Key: `identity_gain` (one number). This file is all it takes; the `mod` line in `main.rs` links it.

use std::sync::Arc;

use burn::tensor::{DType, Device, FloatDType, Tensor};
use overglaze_patches::{
    BaseLayer, KindDocs, LayerShape, Operator, Patch, PatchError, PatchKind, TensorGroup,
    register_patch,
};

register_patch! {
    PatchKind::new("scaled-identity", &[&["identity_gain"]], |group, device| {
        Ok(Arc::new(ScaledIdentity::load(group, device)?))
    })
    .with_docs(KindDocs {
        formula: "ΔW = gain · I",
        layers: "square linear",
        strength: "proportional",
        source: "this example",
    })
}

/// A multiple of the identity matrix.
#[derive(Clone, Debug)]
struct ScaledIdentity {
    gain: f32,
    device: Device,
}

impl ScaledIdentity {
    fn load(mut group: TensorGroup, device: &Device) -> Result<Self, PatchError> {
        let missing = PatchError::MissingTensor {
            target: group.target.clone(),
            key: "identity_gain".into(),
        };
        let gain = group.take_scalar("identity_gain")?.ok_or(missing)?;
        Ok(Self {
            gain,
            device: device.clone(),
        })
    }
}

impl Patch for ScaledIdentity {
    fn kind(&self) -> &str {
        "scaled-identity"
    }

    fn check(&self, layer: &LayerShape) -> Result<(), PatchError> {
        let patch = [layer.d_output(), layer.d_output()];
        if layer.operator() == Operator::Linear && layer.matrix() == patch {
            return Ok(());
        }
        Err(PatchError::DoesNotFit {
            kind: self.kind().into(),
            patch,
            base: layer.dims().into(),
        })
    }

    fn delta_weight(&self, base: &BaseLayer<'_>) -> Result<Option<Tensor<2>>, PatchError> {
        let identity = Tensor::<2>::eye(base.shape.d_output(), &self.device).cast(DType::F32);
        Ok(Some(identity.mul_scalar(self.gain)))
    }

    fn sidecar_linear(&self, input: Tensor<2>) -> Option<Tensor<2>> {
        Some(input.mul_scalar(self.gain))
    }

    fn to_device(&self, device: &Device, _dtype: FloatDType) -> Arc<dyn Patch> {
        Arc::new(Self {
            gain: self.gain,
            device: device.clone(),
        })
    }

    fn num_bytes(&self) -> usize {
        size_of::<f32>()
    }
}
