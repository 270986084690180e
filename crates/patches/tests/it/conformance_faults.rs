//! The conformance test finds each promise that is broken.

use std::{ops::Range, sync::Arc};

use burn::tensor::{DType, Device, FloatDType, Tensor};
use overglaze_patches::{
    BaseAccess, BaseLayer, ConvInput, Feature, LayerShape, LowRank, Patch, PatchError, Replaced,
    conformance::{self, Promise},
};

use crate::conformance::{LINEAR, conv, linear, of};
use crate::fixtures::{device, load, low_rank};

/// A low-rank patch with one fault.
#[derive(Clone, Debug)]
struct Faulty {
    inner: Arc<dyn Patch>,
    fault: Fault,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    AcceptsAll,
    RefusesAll,
    OddReason,
    Panics,
    NoBytes,
    HalfPrecision,
    NotFinite,
    WrongShape,
    OtherFactors,
    OtherSidecar,
    OtherConvolution,
    SecretBias,
    NoBias,
    BiasOfBias,
    ReadsUnasked,
    AsksInVain,
    ReplacesNothing,
    SomeStrengths,
    StrengthOneDiffers,
    StrengthJumps,
    OtherRows,
    RowsDoNotFit,
    OtherCopy,
    CopyOfAnotherKind,
}

impl Faulty {
    fn has(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    fn doubled(&self) -> Arc<dyn Patch> {
        overglaze_patches::at_strength(&self.inner, 2.0)
    }
}

impl Patch for Faulty {
    fn kind(&self) -> &str {
        "faulty"
    }

    fn base_access(&self) -> BaseAccess {
        match self.has(Fault::AsksInVain) {
            true => BaseAccess::Weight,
            false => BaseAccess::Shape,
        }
    }

    fn check(&self, layer: &LayerShape) -> Result<(), PatchError> {
        assert!(
            !self.has(Fault::Panics) || layer.fan_in() > 1,
            "a strange layer"
        );
        match self.fault {
            Fault::AcceptsAll => Ok(()),
            Fault::RefusesAll => self.inner.check(&LayerShape::norm(1)),
            Fault::OddReason if self.inner.check(layer).is_err() => {
                Err(PatchError::BaseUnavailable {
                    kind: "faulty".into(),
                })
            }
            _ => self.inner.check(layer),
        }
    }

    fn replaces(&self) -> Replaced {
        Replaced {
            weight: self.has(Fault::ReplacesNothing),
            bias: false,
        }
    }

    fn at_strength(&self, strength: f32) -> Option<Arc<dyn Patch>> {
        let scaled = overglaze_patches::at_strength(&self.inner, strength);
        let sound = || -> Option<Arc<dyn Patch>> {
            let fault = match strength == 0.0 {
                true => Fault::NoBytes,
                false => self.fault,
            };
            Some(Arc::new(Self {
                inner: scaled.clone(),
                fault,
            }))
        };
        match self.fault {
            Fault::SomeStrengths if strength < 1.0 => Some(scaled.clone()),
            Fault::StrengthOneDiffers => Some(self.doubled()),
            Fault::StrengthJumps if strength < 5e-4 && strength > 0.0 => Some(self.inner.clone()),
            Fault::StrengthJumps => sound(),
            _ => None,
        }
    }

    fn low_rank(&self) -> Option<LowRank> {
        let factors = self.inner.low_rank()?;
        match self.fault {
            Fault::OtherFactors => Some(LowRank {
                up: factors.up.mul_scalar(2.0),
                down: factors.down,
            }),
            Fault::OtherSidecar | Fault::OtherConvolution => None,
            // Only ΔW is asked of these, so that the factors do not give them away.
            Fault::HalfPrecision | Fault::NotFinite | Fault::WrongShape | Fault::ReadsUnasked => {
                None
            }
            _ => Some(factors),
        }
    }

    fn delta_weight(&self, base: &BaseLayer<'_>) -> Result<Option<Tensor<2>>, PatchError> {
        let Some(delta) = self.inner.delta_weight(base)? else {
            return Ok(None);
        };
        Ok(Some(match self.fault {
            Fault::HalfPrecision => delta.cast(DType::F16),
            Fault::NotFinite => delta.div_scalar(0.0),
            Fault::WrongShape => delta.transpose(),
            Fault::ReadsUnasked => match base.weight {
                Some(weight) => delta + weight.clone(),
                None => delta,
            },
            _ => delta,
        }))
    }

    fn changes_bias(&self) -> bool {
        self.has(Fault::NoBias) || self.has(Fault::BiasOfBias)
    }

    fn delta_bias(&self, base: &BaseLayer<'_>) -> Result<Option<Tensor<1>>, PatchError> {
        let has_bias = match self.fault {
            Fault::BiasOfBias => base.bias.is_some(),
            fault => fault == Fault::SecretBias,
        };
        let rows = base.shape.d_output();
        Ok(has_bias.then(|| Tensor::ones([rows], &device())))
    }

    fn sidecar_linear(&self, input: Tensor<2>) -> Option<Tensor<2>> {
        let LowRank { up, down } = self.inner.low_rank()?;
        let output = input.matmul(down.transpose()).matmul(up.transpose());
        self.has(Fault::OtherSidecar)
            .then(|| output.add_scalar(1.0))
    }

    fn sidecar_conv(&self, input: &ConvInput) -> Option<Feature> {
        let LowRank { up, .. } = self.inner.low_rank()?;
        let is_asked = self.has(Fault::OtherConvolution);
        is_asked.then(|| {
            input
                .feature()
                .clone()
                .channels(0..1)
                .pointwise(up.slice_dim(1, 0..1))
        })
    }

    fn slice_rows(&self, rows: Range<usize>) -> Option<Arc<dyn Patch>> {
        match self.fault {
            Fault::OtherRows if rows.start > 0 && rows.end <= 8 => {
                self.inner.slice_rows(rows.start - 1..rows.end - 1)
            }
            Fault::RowsDoNotFit => Some(self.inner.clone()),
            _ => None,
        }
    }

    fn to_device(&self, _device: &Device, _dtype: FloatDType) -> Arc<dyn Patch> {
        match self.fault {
            Fault::OtherCopy => Arc::new(Self {
                inner: self.doubled(),
                fault: self.fault,
            }),
            Fault::CopyOfAnotherKind => self.inner.clone(),
            _ => Arc::new(self.clone()),
        }
    }

    fn num_bytes(&self) -> usize {
        usize::from(!self.has(Fault::NoBytes))
    }
}

#[test]
fn every_broken_promise_is_found() {
    let on_linear = [
        (Fault::AcceptsAll, Promise::Check),
        (Fault::RefusesAll, Promise::Check),
        (Fault::OddReason, Promise::Check),
        (Fault::Panics, Promise::NoPanic),
        (Fault::NoBytes, Promise::NumBytes),
        (Fault::HalfPrecision, Promise::DeltaWeight),
        (Fault::NotFinite, Promise::DeltaWeight),
        (Fault::WrongShape, Promise::DeltaWeight),
        (Fault::OtherFactors, Promise::LowRank),
        (Fault::OtherSidecar, Promise::SidecarLinear),
        (Fault::SecretBias, Promise::DeltaBias),
        (Fault::NoBias, Promise::DeltaBias),
        (Fault::BiasOfBias, Promise::DeltaBias),
        (Fault::ReadsUnasked, Promise::BaseAccess),
        (Fault::AsksInVain, Promise::BaseAccess),
        (Fault::ReplacesNothing, Promise::Replaces),
        (Fault::SomeStrengths, Promise::AtStrength),
        (Fault::StrengthOneDiffers, Promise::AtStrength),
        (Fault::StrengthJumps, Promise::AtStrength),
        (Fault::OtherRows, Promise::SliceRows),
        (Fault::RowsDoNotFit, Promise::SliceRows),
        (Fault::OtherCopy, Promise::ToDevice),
        (Fault::CopyOfAnotherKind, Promise::ToDevice),
    ];
    for (fault, promise) in on_linear {
        check_found(low_rank(LINEAR, 2, 1), fault, promise, &linear());
    }
    let factors = of(&[
        ("lora_up.weight", &[8, 2, 1, 1]),
        ("lora_down.weight", &[2, 6, 3, 3]),
    ]);
    let inner = load(&factors).expect("a patch");
    check_found(
        inner,
        Fault::OtherConvolution,
        Promise::SidecarConv,
        &conv(),
    );
}

fn check_found(inner: Arc<dyn Patch>, fault: Fault, promise: Promise, fitting: &[LayerShape]) {
    let patch: Arc<dyn Patch> = Arc::new(Faulty { inner, fault });
    let unfitting = [LayerShape::linear(9, 6)];
    let found = conformance::check(&patch, fitting, &unfitting, &device());
    let found = found.expect_err("a promise is broken");
    assert_eq!(
        (found.promise, &*found.kind),
        (promise, "faulty"),
        "{fault:?}: {found}"
    );
    let start = format!("a faulty patch on {} breaks the promise of ", found.layer);
    let message = found.to_string();
    assert!(
        message.starts_with(&start) && message.ends_with(&found.found),
        "{message}"
    );
}
