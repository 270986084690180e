//! Kind `scaled-identity`: `ΔW = gain · I`, so `y += strength · gain · x` on square layers.
//!
//! Key: `identity_gain` (one number). This file is all it takes; the `mod` line in `main.rs` links it.

use std::sync::Arc;

use burn::tensor::{DType, Device, FloatDType, Tensor};
use overglaze_patches::{BaseLayer, Patch, PatchError, PatchKind, TensorGroup, register_patch};

register_patch! {
    PatchKind::new("scaled-identity", &[&["identity_gain"]], |group, device| {
        Ok(Arc::new(ScaledIdentity::load(group, device)?))
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

    fn check(&self, base: [usize; 2]) -> Result<(), PatchError> {
        let [d_output, _] = base;
        let patch = [d_output, d_output];
        if base == patch {
            return Ok(());
        }
        Err(PatchError::DoesNotFit {
            kind: self.kind().into(),
            patch,
            base,
        })
    }

    fn delta_weight(&self, base: &BaseLayer<'_>) -> Result<Option<Tensor<2>>, PatchError> {
        let identity = Tensor::<2>::eye(base.shape[0], &self.device).cast(DType::F32);
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
