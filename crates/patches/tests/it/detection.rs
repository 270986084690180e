//! Finding the kind from the keys, with kinds registered by this test binary.

use std::sync::Arc;

use burn::tensor::{Device, FloatDType, Tensor};
use overglaze_patches::{
    BaseAccess, BaseLayer, LayerShape, Patch, PatchError, PatchKind, TensorGroup, register_patch,
    registry,
};

use crate::fixtures::{load, message, wave};

/// A third party's kind: `ΔW = test_full`, without a sidecar or a cut of its own.
#[derive(Clone, Debug)]
struct Full(Tensor<2>);

impl Patch for Full {
    fn kind(&self) -> &str {
        "test-full"
    }

    fn check(&self, layer: &LayerShape) -> Result<(), PatchError> {
        let patch = self.0.dims();
        if patch == layer.matrix() {
            return Ok(());
        }
        Err(PatchError::DoesNotFit {
            kind: self.kind().into(),
            patch,
            base: layer.dims().into(),
        })
    }

    fn delta_weight(&self, _base: &BaseLayer<'_>) -> Result<Option<Tensor<2>>, PatchError> {
        Ok(Some(self.0.clone()))
    }

    fn to_device(&self, device: &Device, dtype: FloatDType) -> Arc<dyn Patch> {
        Arc::new(Self(self.0.clone().cast(dtype).to_device(device)))
    }

    fn num_bytes(&self) -> usize {
        overglaze_patches::tensor_bytes(&self.0)
    }
}

/// A kind that doubles the base, and so reads it.
#[derive(Clone, Debug)]
struct Double;

impl Patch for Double {
    fn kind(&self) -> &str {
        "test-double"
    }

    fn base_access(&self) -> BaseAccess {
        BaseAccess::Weight
    }

    fn check(&self, _layer: &LayerShape) -> Result<(), PatchError> {
        Ok(())
    }

    fn delta_weight(&self, base: &BaseLayer<'_>) -> Result<Option<Tensor<2>>, PatchError> {
        match base.weight {
            Some(weight) => Ok(Some(weight.clone())),
            None => Err(PatchError::BaseUnavailable {
                kind: self.kind().into(),
            }),
        }
    }

    fn to_device(&self, _device: &Device, _dtype: FloatDType) -> Arc<dyn Patch> {
        Arc::new(self.clone())
    }

    fn num_bytes(&self) -> usize {
        0
    }
}

/// With `alpha`, the values are scaled by `alpha / rows`.
fn load_full(mut group: TensorGroup, device: &Device) -> Result<Arc<dyn Patch>, PatchError> {
    let values: Tensor<2> = group.take("test_full", device)?;
    let rows = values.dims()[0] as f32;
    let alpha = group.take_scalar("alpha")?.unwrap_or(rows);
    Ok(Arc::new(Full(values.mul_scalar(alpha / rows))))
}

fn load_double(_group: TensorGroup, _device: &Device) -> Result<Arc<dyn Patch>, PatchError> {
    Ok(Arc::new(Double))
}

register_patch!(
    PatchKind::new("test-full", &[&["test_full"]], load_full)
        .with_optional(&["test_extra", "alpha"])
        .with_aliases(&[("test_f", "test_full"), ("test_f.*.values", "test_full")])
        .with_rank_key("test_full")
);
// It has a rank, but no use for an alpha.
register_patch!(
    PatchKind::new(
        "test-double",
        &[&["test_double"], &["test_double_a", "test_double_b"]],
        load_double,
    )
    .with_rank_key("test_double")
);
register_patch!(
    PatchKind::new(
        "test-twin-a",
        &[&["test_twin", "test_twin_a"], &["test_twin"]],
        load_double,
    )
    .with_optional(&["alpha"])
);
register_patch!(
    PatchKind::new("test-twin-b", &[&["test_twin"]], load_double).with_optional(&["alpha"])
);

// Two wrappers that share a key, and one beside.
register_patch!(PatchKind::wrapper(
    "test-wrap-a",
    &[&["test_wrap", "test_wrap_a"]],
    wrap_none
));
register_patch!(PatchKind::wrapper(
    "test-wrap-b",
    &[&["test_wrap"]],
    wrap_none
));
register_patch!(PatchKind::wrapper(
    "test-wrap-c",
    &[&["test_wrap_c"]],
    wrap_none
));

fn wrap_none(
    patch: Arc<dyn Patch>,
    _group: TensorGroup,
    _device: &Device,
) -> Result<Arc<dyn Patch>, PatchError> {
    Ok(patch)
}

fn load_keys(keys: &[&str]) -> Result<Arc<dyn Patch>, PatchError> {
    load(
        &keys
            .iter()
            .map(|key| (*key, wave(&[4, 4], 1)))
            .collect::<Vec<_>>(),
    )
}

#[test]
fn one_kind_accepts_exactly_the_keys() {
    for (keys, kind) in [
        (&["lora_up.weight", "lora_down.weight"][..], "lora"),
        (&["test_full"], "test-full"),
        (&["test_full", "test_extra"], "test-full"),
        (&["test_double_b", "test_double_a"], "test-double"),
        (&["test_double"], "test-double"),
    ] {
        assert_eq!(load_keys(keys).expect("a patch").kind(), kind);
    }
    let named_first = load_keys(&["test_twin_a", "test_twin"]).expect("only one has this key");
    assert_eq!(named_first.kind(), "test-double");
}

#[test]
fn kinds_are_listed_by_name() {
    let names: Vec<_> = registry::kinds().iter().map(|kind| kind.name).collect();
    assert!(names.is_sorted(), "{names:?}");
    for name in [
        "lora",
        "test-double",
        "test-full",
        "test-twin-a",
        "test-twin-b",
    ] {
        let count = names.iter().filter(|known| **known == name).count();
        assert_eq!(count, 1, "{name} in {names:?}");
    }
}

/// What the page of kinds is made of.
#[test]
fn every_built_in_kind_is_described() {
    let kinds = registry::kinds();
    for kind in kinds.iter().filter(|kind| !kind.name.starts_with("test-")) {
        let docs = kind.docs;
        for text in [docs.formula, docs.layers, docs.strength, docs.source] {
            assert!(!text.is_empty(), "{}", kind.name);
        }
    }
}

#[test]
fn an_alias_has_one_meaning() {
    let kinds = registry::kinds();
    let mut aliases: Vec<_> = kinds.iter().flat_map(|kind| kind.aliases).collect();
    assert!(aliases.len() > 10, "the low-rank kind has some");
    aliases.sort_unstable();
    aliases.dedup();
    assert!(
        aliases.windows(2).all(|pair| pair[0].0 != pair[1].0),
        "{aliases:?}"
    );
}

#[test]
fn no_kind_accepts_the_keys() {
    let names: Vec<_> = registry::kinds().iter().map(|kind| kind.name).collect();
    let expected = format!(
        "layer `layer`: no patch kind accepts the keys [\"lora_E\", \"lora_down.weight\"]; these are the keys of \
         AdaLoRA: its factors come with singular values and a mask of their own; merge it into its model with PEFT; \
         known kinds: {names:?}"
    );
    assert_eq!(
        message(load_keys(&["lora_down.weight", "lora_E"])),
        expected
    );
    assert!(
        message(load_keys(&["alpha"]))
            .contains("no patch kind accepts the keys [\"alpha\"]; known")
    );
    assert!(message(load_keys(&[])).contains("no patch kind accepts the keys []"));
}

#[test]
fn half_a_pair_names_the_other_half() {
    let expected = "layer `layer`: [\"lora_up.weight\"] missing beside [\"alpha\", \"lora_down.weight\"], \
                    which a lora patch needs; is the file complete?";
    assert_eq!(message(load_keys(&["lora_down.weight", "alpha"])), expected);
}

#[test]
fn two_kinds_accept_the_keys() {
    let expected = "layer `layer`: the patch kinds [\"test-twin-a\", \"test-twin-b\"] all accept the keys \
                    [\"alpha\", \"test_twin\"]";
    assert_eq!(message(load_keys(&["test_twin", "alpha"])), expected);
}

#[test]
fn two_wrappers_take_one_key() {
    let found = message(load_keys(&["test_full", "test_wrap", "test_wrap_a"]));
    let expected = "layer `layer`: the patch kinds [\"test-wrap-a\", \"test-wrap-b\"] all accept the keys \
                    [\"test_full\", \"test_wrap\", \"test_wrap_a\"]";
    assert_eq!(found, expected);
    for keys in [&["test_wrap"][..], &["test_wrap", "test_wrap_c"]] {
        let keys = [&["test_full"], keys].concat();
        assert!(load_keys(&keys).is_ok(), "{keys:?}");
    }
}

#[test]
fn keys_of_a_known_family_are_named() {
    let low_rank = ["lora_up.weight", "lora_down.weight"];
    for (keys, families) in [
        (&["vera_lambda_b", "vera_lambda_d"][..], &["VeRA"][..]),
        (&["vera_lambda_b", low_rank[0], low_rank[1]], &["VeRA"]),
        (&["lora_E", low_rank[0], low_rank[1]], &["AdaLoRA"]),
        (&["lora_E", "vera_lambda_d"], &["AdaLoRA", "VeRA"]),
    ] {
        let found = message(load_keys(keys));
        let named: Vec<_> = found
            .split("; these are the keys of ")
            .skip(1)
            .filter_map(|family| family.split_once(": "))
            .collect();
        let labels: Vec<_> = named.iter().map(|(label, _)| *label).collect();
        assert_eq!(labels, families);
        assert!(
            named
                .iter()
                .all(|(_, remedy)| remedy.contains("merge it into its model"))
        );
    }
    // These tails are a kind's own here, or nobody's.
    for keys in [&["alpha", "scale"][..], &["test_full", "lora_up.weight"]] {
        let found = message(load_keys(keys));
        assert!(!found.contains("these are the keys"), "{found}");
    }
}
