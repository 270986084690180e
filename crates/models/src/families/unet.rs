//! The U-Net of Stable Diffusion 1, 2 and XL in Stability's (LDM, sgm) and diffusers naming.
//!
//! Stability counts blocks from end to end, three a level: two of a residual layer and perhaps an attention, and
//! one that changes the resolution. diffusers names the level. The attention's own layers are called alike.

use super::{Alias, Family, Layers, Part};

pub(super) const FAMILY: Family = Family {
    name: "Stable Diffusion U-Net",
    architecture: "sdxl",
    part: Part::Denoiser,
    markers: &[
        &["input_blocks.0.0.weight", "time_embed.0.weight"],
        &["conv_in.weight", "time_embedding.linear_1.weight"],
    ],
    open_inputs: &[],
    aliases,
};

fn aliases(layers: &Layers) -> Vec<Alias> {
    let other = |path: &String| {
        let name = to_diffusers(path).or_else(|| to_stability(path, layers))?;
        Alias::whole(name, path, layers)
    };
    layers.keys().filter_map(other).collect()
}

/// The diffusers name of a layer in Stability's naming.
fn to_diffusers(path: &str) -> Option<String> {
    if let Some((_, other)) = ENDS.iter().find(|(own, _)| *own == path) {
        return Some((*other).to_owned());
    }
    let mut pieces = path.splitn(4, '.');
    let (part, block) = (pieces.next()?, pieces.next()?);
    let block: usize = block.parse().ok()?;
    if part == "middle_block" {
        let rest = path.splitn(3, '.').nth(2)?;
        return match block {
            0 | 2 => Some(format!(
                "mid_block.resnets.{}.{}",
                block / 2,
                residual(rest)?
            )),
            1 => Some(format!("mid_block.attentions.0.{rest}")),
            _ => None,
        };
    }
    let (layer, rest) = (pieces.next()?, pieces.next()?);
    let (side, position, resize) = match part {
        "input_blocks" => ("down_blocks", block.checked_sub(1)?, "downsamplers.0.conv"),
        "output_blocks" => ("up_blocks", block, "upsamplers.0.conv"),
        _ => return None,
    };
    let (level, index) = (position / 3, position % 3);
    Some(match (layer, rest) {
        (_, "op") | ("1" | "2", "conv") => format!("{side}.{level}.{resize}"),
        ("0", rest) => format!("{side}.{level}.resnets.{index}.{}", residual(rest)?),
        (_, rest) => format!("{side}.{level}.attentions.{index}.{rest}"),
    })
}

/// Stability's name of a layer in diffusers naming.
fn to_stability(path: &str, layers: &Layers) -> Option<String> {
    if let Some((other, _)) = ENDS.iter().find(|(_, own)| *own == path) {
        return Some((*other).to_owned());
    }
    if let Some(rest) = path.strip_prefix("mid_block.attentions.0.") {
        return Some(format!("middle_block.1.{rest}"));
    }
    if let Some(rest) = path.strip_prefix("mid_block.resnets.") {
        let (index, rest) = rest.split_once('.')?;
        let block = 2 * index.parse::<usize>().ok()?;
        return Some(format!(
            "middle_block.{block}.{}",
            stability_residual(rest)?
        ));
    }
    let mut pieces = path.splitn(5, '.');
    let (side, level) = (pieces.next()?, pieces.next()?);
    let (layer, index, rest) = (pieces.next()?, pieces.next()?, pieces.next()?);
    let (level, index): (usize, usize) = (level.parse().ok()?, index.parse().ok()?);
    let (part, first) = match side {
        "down_blocks" => ("input_blocks", 1),
        "up_blocks" => ("output_blocks", 0),
        _ => return None,
    };
    let block = 3_usize
        .checked_mul(level)?
        .checked_add(first)?
        .checked_add(index)?;
    Some(match layer {
        "resnets" => format!("{part}.{block}.0.{}", stability_residual(rest)?),
        "attentions" => format!("{part}.{block}.1.{rest}"),
        "downsamplers" => format!("{part}.{}.0.op", block + 2),
        "upsamplers" => {
            let attention = format!("up_blocks.{level}.attentions.");
            let has_attention = layers.keys().any(|path| path.starts_with(&attention));
            format!(
                "{part}.{}.{}.conv",
                block + 2,
                1 + usize::from(has_attention)
            )
        }
        _ => return None,
    })
}

/// The diffusers name of a residual block's layer.
fn residual(name: &str) -> Option<&'static str> {
    let found = RESIDUAL.iter().find(|(own, _)| *own == name)?;
    Some(found.1)
}

fn stability_residual(name: &str) -> Option<&'static str> {
    let found = RESIDUAL.iter().find(|(_, own)| *own == name)?;
    Some(found.0)
}

/// Stability's and diffusers' names of the layers outside the blocks.
const ENDS: &[(&str, &str)] = &[
    ("time_embed.0", "time_embedding.linear_1"),
    ("time_embed.2", "time_embedding.linear_2"),
    ("label_emb.0.0", "add_embedding.linear_1"),
    ("label_emb.0.2", "add_embedding.linear_2"),
    ("input_blocks.0.0", "conv_in"),
    ("out.0", "conv_norm_out"),
    ("out.2", "conv_out"),
];

const RESIDUAL: &[(&str, &str)] = &[
    ("in_layers.0", "norm1"),
    ("in_layers.2", "conv1"),
    ("out_layers.0", "norm2"),
    ("out_layers.3", "conv2"),
    ("emb_layers.1", "time_emb_proj"),
    ("skip_connection", "conv_shortcut"),
];
