//! Names of FLUX attention processors, as x-flux of `XLabs` writes them.
//!
//! `double_blocks.N.processor.qkv_lora1.down.weight`, where 1 is the image's stream and 2 the text's, and
//! `single_blocks.N.processor.{qkv,proj}_lora.up.weight`; merged files have `diffusion_model.` before. The
//! target keeps the processor's name: which rows of which layer it stands for is the name table's to say.
//! There is no alpha: the scale is 1.
//!
//! XLabs-AI/x-flux, `src/flux/modules/layers.py`.

use crate::{Dialect, FileKey, TargetName};

inventory::submit! { Dialect { name: "xlabs", prefixes: &[], parse } }

fn parse(key: &str) -> Option<FileKey> {
    let (path, suffix) = SUFFIXES
        .iter()
        .find_map(|(tail, suffix)| Some((key.strip_suffix(tail)?, *suffix)))?;
    let path = path.strip_prefix("diffusion_model.").unwrap_or(path);
    let (block, projection) = path.rsplit_once(".processor.")?;
    let is_one = !block.is_empty() && PROJECTIONS.contains(&projection);
    is_one.then(|| FileKey::denoiser(TargetName::Dotted(path.into()), suffix))
}

const SUFFIXES: [(&str, &str); 2] = [
    (".down.weight", "lora_down.weight"),
    (".up.weight", "lora_up.weight"),
];
const PROJECTIONS: [&str; 6] = [
    "qkv_lora1",
    "qkv_lora2",
    "proj_lora1",
    "proj_lora2",
    "qkv_lora",
    "proj_lora",
];
