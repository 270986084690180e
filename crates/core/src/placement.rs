//! Where a patch is laid: beside its layer, or into a copy of the layer's weight.

use overglaze_quant::format_by_name;

use crate::{Error, PatchStack, PatchedLayer};

/// How an adapter is laid over its layers.
///
/// By sidecar the base is left alone and every pass adds the residual. Directly the layer gets a merged copy of
/// its weight, computed in f32 from the *base* and all of the layer's direct patches and rounded once to the base's
/// float dtype, to f32 where it is quantized. A pass costs then what it costs over such a weight without patches, and
/// the copy costs its bytes. The base stays in place below it. Sidecars over a merged copy are residuals against the
/// base all the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// A residual that every forward pass adds. It works on any base, and costs no copy of the weight.
    #[default]
    Sidecar,
    /// Into a merged copy of the weight. A layer whose weight is streamed, or cannot be decoded, cannot have one.
    Direct,
    /// By sidecar where the base is streamed, where it is stored quantized, and where sidecars are mounted already;
    /// directly elsewhere.
    Automatic,
}

impl Placement {
    /// Whether a patch goes directly into the layer `path`, beside those of `stack`.
    ///
    /// # Errors
    /// [`Error::MergeStreamed`] or [`Error::MergeHidden`] where it has to and cannot.
    pub(crate) fn is_direct(
        self,
        path: &str,
        layer: &dyn PatchedLayer,
        stack: &PatchStack,
    ) -> Result<bool, Error> {
        match self {
            Self::Sidecar => Ok(false),
            Self::Direct if !layer.is_resident() => {
                Err(Error::MergeStreamed { layer: path.into() })
            }
            Self::Direct if !layer.limits().shows_values => {
                Err(Error::MergeHidden { layer: path.into() })
            }
            Self::Direct => Ok(true),
            Self::Automatic => {
                let carries_sidecars = stack.iter().any(|patch| !patch.is_direct());
                Ok(layer.is_resident() && has_float_values(layer) && !carries_sidecars)
            }
        }
    }
}

/// Whether the base weight is stored as the values of a float dtype, and not quantized. What it is stored as counts
/// and not what it is in memory: on a device of its own a quantized weight is decoded.
fn has_float_values(layer: &dyn PatchedLayer) -> bool {
    let [weight, _] = layer.base_formats();
    format_by_name(weight).is_ok_and(|format| format.dense_dtype().is_some())
}
