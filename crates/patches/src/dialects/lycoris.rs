//! Flattened names, as LyCORIS writes them outside sd-scripts; `SimpleTuner` does.
//!
//! `lycoris_<path with dots as underscores>.lokr_w1`, where the path is in diffusers' names or in the
//! model's own. The prefix does not tell a text encoder from the denoiser; the path does.
//!
//! KohakuBlueleaf/LyCORIS, `lycoris/wrapper.py`, `LORA_PREFIX`.

use crate::{Dialect, FileKey, TargetName, dialects::split_suffix};

inventory::submit! { Dialect { name: "lycoris", prefixes: &[PREFIX], parse } }

fn parse(key: &str) -> Option<FileKey> {
    let (path, suffix) = split_suffix(key)?;
    let name = path.strip_prefix(PREFIX)?.trim_matches('_');
    if name.is_empty() || name.contains('.') {
        return None;
    }
    Some(FileKey::by_layer(
        TargetName::Flattened(name.into()),
        suffix,
    ))
}

const PREFIX: &str = "lycoris_";
