//! The keys of public files, set by set: an adapter's are all read, a checkpoint's are none.

use burn::tensor::TensorData;
use overglaze_patches::{PatchError, PatchSet, dialects::dialects};

use crate::fixtures::device;

type Set<'a> = (&'a str, Vec<(&'a str, usize)>);

/// The sets of a table, with their names: every key and the number of its dimensions.
fn sets(table: &str) -> Vec<Set<'_>> {
    let mut sets: Vec<Set<'_>> = Vec::new();
    for line in table.lines() {
        if let Some(name) = line.strip_prefix("# ") {
            sets.push((name, Vec::new()));
            continue;
        }
        let (key, num_dims) = line.split_once(' ').unwrap_or((line, "0"));
        let num_dims = num_dims.parse().expect("a number");
        let (_, keys) = sets.last_mut().expect("a set has a name");
        keys.push((key, num_dims));
    }
    sets.retain(|(_, keys)| !keys.is_empty());
    sets
}

/// Reads the keys with one element each.
fn read((name, keys): &Set<'_>) -> Result<PatchSet, PatchError> {
    let tensors = keys.iter().map(|(key, num_dims)| {
        let data = TensorData::new(vec![1.0_f32], vec![1; *num_dims]);
        ((*key).into(), data)
    });
    PatchSet::from_tensors(name, tensors, None, &device())
}

/// Keys that a checkpoint may have too, which the rest of their file makes an adapter's.
fn is_shared(key: &str) -> bool {
    let is_scale = key.ends_with("_norm.scale");
    is_scale || key == "lora_unet_double_blocks_1_img_attn_proj.weight"
}

#[test]
fn every_key_of_an_adapter_is_read_by_one_dialect() {
    let sets = sets(ADAPTERS);
    assert_eq!(sets.len(), 113);
    for set in sets {
        let (name, keys) = &set;
        for (key, _) in keys {
            let readers = dialects()
                .into_iter()
                .filter(|dialect| (dialect.parse)(key).is_some());
            let expected = usize::from(!is_shared(key));
            assert_eq!(readers.count(), expected, "`{key}` of {name}");
        }
        let set = read(&set).expect("an adapter");
        assert_eq!(set.unread, [""; 0], "{name}");
        assert_eq!(set.num_keys(), keys.len(), "{name}");
    }
}

/// Whether the keys of a layer are a kind's is told before any tensor is looked at.
#[test]
fn every_layer_of_an_adapter_has_a_kind_or_a_family() {
    let mut num_layers = 0;
    let sets = sets(ADAPTERS).into_iter();
    for set in sets.filter(|(name, _)| *name != OF_SEVERAL_FILES) {
        let (name, set) = (set.0, read(&set).expect("an adapter"));
        num_layers += set.entries.len() + set.refused.len();
        let unknown = set.refused.iter().filter(|group| match &group.error {
            PatchError::Unrecognized { families, .. } => families.is_empty(),
            PatchError::Incomplete { .. } | PatchError::Ambiguous { .. } => true,
            _ => false,
        });
        let unknown: Vec<_> = unknown.map(|group| group.error.to_string()).collect();
        let is_expected = match name {
            LACKS_A_HALF => {
                unknown.len() == 1 && unknown[0].contains("[\"lora_up.weight\"] missing")
            }
            _ => unknown.is_empty(),
        };
        assert!(is_expected, "{name}: {unknown:#?}");
    }
    assert_eq!(num_layers, 426);
}

#[test]
fn no_checkpoint_is_an_adapter() {
    let sets = sets(CHECKPOINTS);
    assert_eq!(sets.len(), 17);
    for set in sets {
        let (name, keys) = &set;
        let error = read(&set).expect_err("no adapter");
        let is_expected = matches!(error, PatchError::NoAdapterTensors { num_keys, .. }
            if num_keys == keys.len());
        assert!(is_expected, "{name}: {error}");
    }
}

/// A list of names in files of two kinds, which gives the layers the keys of both.
const OF_SEVERAL_FILES: &str = "names_lorainspector_sd15_sdxl_lokr_loha_oft";
/// Made without the other half of a pair, on purpose.
const LACKS_A_HALF: &str = "invoketest__test_krea2_lora_conversion_utils__test_incomplete_peft_pair_raises_descriptive_error";
const ADAPTERS: &str = include_str!("../data/adapter_keys.txt");
const CHECKPOINTS: &str = include_str!("../data/checkpoint_keys.txt");
