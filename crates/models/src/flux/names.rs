//! The name table of a FLUX model: its own layers, and the other naming and trainers' names as aliases of their
//! rows.

use overglaze_core::{NameTable, Piece};
use overglaze_patches::LayerShape;

use crate::{
    ModelError,
    checkpoint::TensorShapes,
    families::{Alias, Layers, trainer_aliases},
    flux::{
        FluxConfig, FluxConfigFile, Naming,
        map::{Arrangement, FluxMap, LinearMap, Part},
    },
};

/// The name table of the transformer whose tensors these are; no weight is needed for it.
///
/// # Errors
/// As [`FluxConfig::infer`] and [`Naming::detect`].
pub fn name_table(
    tensors: &TensorShapes,
    file: Option<&FluxConfigFile>,
) -> Result<NameTable, ModelError> {
    let (naming, prefix) = Naming::detect(tensors)?;
    let config = FluxConfig::infer(&tensors.below(prefix), naming, file)?;
    table(&FluxMap::new(&config), naming)
}

/// The name table of a checkpoint in `naming`.
pub(crate) fn table(map: &FluxMap, naming: Naming) -> Result<NameTable, ModelError> {
    let mut table = NameTable::default();
    for linear in map.linears() {
        match naming {
            Naming::Diffusers => add_split(&mut table, linear)?,
            Naming::Bfl => add_fused(&mut table, linear)?,
        }
    }
    for norm in map.norms() {
        let (own, other) = match naming {
            Naming::Diffusers => (&norm.diffusers, &norm.bfl),
            Naming::Bfl => (&norm.bfl, &norm.diffusers),
        };
        table.add_layer(own, norm.width)?;
        table.add_alias(other, vec![piece(own, [0, 0], norm.width)])?;
    }
    for Alias { name, pieces } in trainer_aliases(&layers(map, naming)) {
        table.add_alias(&name, pieces)?;
    }
    Ok(table)
}

/// The linear layers of a checkpoint in `naming`.
fn layers(map: &FluxMap, naming: Naming) -> Layers {
    let own = |linear: &LinearMap| match naming {
        Naming::Diffusers => linear
            .parts
            .iter()
            .map(|part| (part.path.clone(), part.rows))
            .collect(),
        Naming::Bfl => vec![(linear.bfl.clone(), linear.rows())],
    };
    map.linears()
        .flat_map(|linear| own(linear).into_iter().map(|layer| (layer, linear.d_input)))
        .map(|((path, rows), d_input)| (path, LayerShape::linear(rows, d_input)))
        .collect()
}

/// diffusers' layers, and the BFL layer as an alias that stacks them.
fn add_split(table: &mut NameTable, map: &LinearMap) -> Result<(), ModelError> {
    for part in &map.parts {
        table.add_layer(&part.path, part.rows)?;
    }
    let pieces = placed(map).flat_map(|(part, start)| match map.arrangement {
        Arrangement::Stacked => vec![piece(&part.path, [0, start], part.rows)],
        Arrangement::HalvesSwapped => swapped(&part.path, part.rows),
    });
    table.add_alias(&map.bfl, pieces.collect())?;
    Ok(())
}

/// The BFL layer, and each of diffusers' layers as an alias of some of its rows.
fn add_fused(table: &mut NameTable, map: &LinearMap) -> Result<(), ModelError> {
    table.add_layer(&map.bfl, map.rows())?;
    for (part, start) in placed(map) {
        let pieces = match map.arrangement {
            Arrangement::Stacked => vec![piece(&map.bfl, [start, 0], part.rows)],
            Arrangement::HalvesSwapped => swapped(&map.bfl, part.rows),
        };
        table.add_alias(&part.path, pieces)?;
    }
    Ok(())
}

/// The parts with the row at which each starts in the stack.
fn placed(map: &LinearMap) -> impl Iterator<Item = (&Part, usize)> {
    map.parts.iter().scan(0, |start, part| {
        let first = *start;
        *start += part.rows;
        Some((part, first))
    })
}

fn swapped(layer: &str, rows: usize) -> Vec<Piece> {
    let half = rows / 2;
    vec![piece(layer, [0, half], half), piece(layer, [half, 0], half)]
}

/// `rows` rows of `layer` from `layer_start` on are those of the alias from `target_start` on.
fn piece(layer: &str, [layer_start, target_start]: [usize; 2], rows: usize) -> Piece {
    Piece {
        layer: layer.to_owned(),
        layer_rows: layer_start..layer_start + rows,
        target_rows: target_start..target_start + rows,
    }
}
