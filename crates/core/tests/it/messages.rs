//! The message of every error, and its cause.

use std::error::Error as _;

use overglaze_core::Error;
use overglaze_patches::PatchError;
use overglaze_quant::QuantError;
use overglaze_stream::StreamError;

fn misfit() -> PatchError {
    PatchError::DoesNotFit {
        kind: "lora".into(),
        patch: [2, 3],
        base: vec![4, 5],
    }
}

#[expect(clippy::too_many_lines, reason = "a table, one case after another")]
fn cases() -> Vec<(Error, &'static str)> {
    let overflow = QuantError::Overflow {
        format: "f32",
        shape: [1, 2],
    };
    vec![
        (
            Error::Quant {
                tensor: "t".into(),
                source: Box::new(overflow),
            },
            "tensor `t` cannot be read",
        ),
        (
            Error::MissingTensor {
                file: "f".into(),
                tensor: "t".into(),
                hint: "; look at u".into(),
            },
            "f: tensor `t` is missing; look at u",
        ),
        (
            Error::WrongShape {
                file: "f".into(),
                tensor: "t".into(),
                found: vec![1, 2],
                expected: "[2]".into(),
            },
            "f: tensor `t` has shape [1, 2], expected [2]",
        ),
        (
            Error::WrongDtype {
                file: "f".into(),
                tensor: "t".into(),
                found: "I32".into(),
                expected: "F32",
            },
            "f: tensor `t` has dtype I32, expected F32; convert the tensor",
        ),
        (
            Error::NotStarted,
            "the weights are not being streamed yet; call `LayerLoader::finish` before a forward pass",
        ),
        (
            Error::NoWeight,
            "the layer has no weight: its field `weight` was set to `None`; put the parameter back",
        ),
        (
            Error::StillMounted,
            "patches are mounted on this layer; unmount them before `into_inner`",
        ),
        (
            Error::StillMerged,
            "an adapter is merged into this layer; restore the base before `into_inner`",
        ),
        (
            Error::ConflictingName {
                name: "n".into(),
                first: "rows 0..1 of `a`".into(),
                second: "nothing".into(),
            },
            "the layer name `n` stands for rows 0..1 of `a` and cannot stand for nothing as well",
        ),
        (
            Error::InputWidth {
                found: 1,
                expected: 2,
            },
            "the input has 1 features, the layer takes 2",
        ),
        (
            Error::AutocastOff {
                weight: "A".into(),
                input: "B".into(),
            },
            "the weight is on A and the input on B, and autocast is off for this layer; turn it on with \
             `set_autocast(true)` or move one of them",
        ),
        (
            Error::Layer {
                layer: "l".into(),
                source: Box::new(misfit()),
            },
            "the patches for layer `l` cannot be laid side by side",
        ),
        (
            Error::NameTaken { name: "a".into() },
            "an adapter called `a` is mounted already; unmount it first or choose another name",
        ),
        (
            Error::NotMounted {
                name: "a".into(),
                mounted: vec!["b".into()],
            },
            "no adapter called `a` is mounted; mounted: [\"b\"]",
        ),
        (
            Error::NothingApplied {
                name: "a".into(),
                why: "w".into(),
            },
            "adapter `a` does not fit this model: w",
        ),
        (
            Error::BadStrength {
                name: "a".into(),
                strength: f32::NAN,
            },
            "the strength of adapter `a` is NaN, expected a finite number",
        ),
        (
            Error::PatternUnmatched {
                pattern: "a.*".into(),
                nearest: "b".into(),
            },
            "the strength pattern `a.*` matches no layer of the model; nearest: `b`",
        ),
        (
            Error::StrengthSyntax {
                part: "x".into(),
                why: "w",
            },
            "`x` is no strength: w; write a number for all layers and `pattern=number` for some, with commas \
             between, e.g. `1.0,double_blocks.0.*=0.5`",
        ),
        (
            Error::TwoReplacements {
                layer: "l".into(),
                parameter: "bias",
                first: "a".into(),
                second: "b".into(),
            },
            "the adapters `a` and `b` both replace the bias of layer `l`, and only one can; unmount one of them",
        ),
        (
            Error::MergeStreamed { layer: "l".into() },
            "layer `l` is streamed under a budget, so an adapter cannot be merged into it; load the \
             model without a budget, or mount the adapter instead",
        ),
        (
            Error::MergeHidden { layer: "l".into() },
            "the weight of layer `l` cannot be decoded, only multiplied with, so an adapter cannot be merged into \
             it; mount the adapter by sidecar instead",
        ),
        (
            Error::NoValues {
                tensor: "t".into(),
                format: "f",
            },
            "the tensor `t` is packed as f, which cannot be decoded, only multiplied with; it can be the weight of a \
             linear layer in host memory, and nothing else",
        ),
        (
            Error::Reparameterized {
                parameter: "fc.weight".into(),
            },
            "the parameter `fc.weight` has a reparameterization already, and Burn cannot nest them; fold it in \
             with `materialize` first",
        ),
        (
            Error::NotABurnLayer,
            "the layer's weight is packed or streamed, so there is no Burn layer to hand back",
        ),
        (
            Error::AmbiguousName {
                first: "a.b".into(),
                second: "a_b".into(),
                flattened: "a_b".into(),
            },
            "the layer names `a.b` and `a_b` both become `a_b` with underscores",
        ),
    ]
}

#[test]
fn messages_are_one_sentence_with_the_names_in_it() {
    for (error, expected) in cases() {
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn errors_of_the_leaves_pass_through() {
    let unknown = || StreamError::UnknownTensor {
        file: "f".into(),
        tensor: "t".into(),
    };
    assert_eq!(Error::from(unknown()).to_string(), unknown().to_string());
    assert_eq!(Error::from(misfit()).to_string(), misfit().to_string());
}

#[test]
fn causes_are_kept() {
    for (error, expected) in cases() {
        let has_cause = matches!(error, Error::Quant { .. } | Error::Layer { .. });
        assert_eq!(error.source().is_some(), has_cause, "{expected}");
        let cause = error.source().map(ToString::to_string);
        let is_told = cause.is_some_and(|cause| error.to_string().contains(&cause));
        assert!(!is_told, "{expected}: the cause is told once");
    }
}
