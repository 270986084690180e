//! The transformer against diffusers in f32, block by block, in both namings.

use overglaze_models::{FluxTransformer, PositionIds, flux::BlockKind};

use crate::golden::{self, CHECKPOINTS};

/// As the case's metadata: f32 on both sides, sums of at most 320 products, four blocks deep.
const ABSOLUTE: f32 = 2e-5;
const RELATIVE: f32 = 1e-4;

fn assert_close(what: &str, found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    assert!(
        expected.iter().any(|value| value.abs() > 0.1),
        "{what} is all but zero"
    );
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = (found - expected).abs();
        let bound = ABSOLUTE + RELATIVE * expected.abs();
        assert!(
            error <= bound,
            "{what}[{index}]: {found}, expected {expected} ± {bound}"
        );
    }
}

#[test]
fn every_block_agrees_with_diffusers() {
    let case = golden::source("base.safetensors");
    let expected = |name: &str| golden::read(case.as_ref(), name).0;
    for checkpoint in CHECKPOINTS {
        let model = golden::model(checkpoint);
        let mut num_blocks = 0;
        let mut observer = |block: overglaze_models::flux::BlockOutput| {
            let kind = match block.kind {
                BlockKind::Double => "double",
                BlockKind::Single => "single",
            };
            let name = format!("out.{kind}_{}", block.index);
            for (stream, found) in [("img", block.img), ("txt", block.txt)] {
                let tensor = format!("{name}.{stream}");
                let what = format!("{checkpoint} {tensor}");
                assert_close(&what, &golden::values(found), &expected(&tensor));
            }
            num_blocks += 1;
        };
        let output = model
            .transformer
            .forward_observed(golden::inputs(), &mut observer)
            .unwrap();
        assert_eq!(num_blocks, 4);
        assert_close(checkpoint, &golden::values(output), &expected("out.sample"));
    }
}

#[test]
fn a_clone_and_a_second_run_give_the_same_bits() {
    let model = golden::model(CHECKPOINTS[1]);
    let first = golden::values(model.transformer.forward(golden::inputs()).unwrap());
    let clone = model.transformer.clone();
    drop(model);
    assert_eq!(
        golden::values(clone.forward(golden::inputs()).unwrap()),
        first
    );
}

/// Clones share their rotary tables, whichever sizes run in whichever order, also at once.
#[test]
fn runs_of_several_sizes_share_the_rotary_tables() {
    let model = golden::model(CHECKPOINTS[0]).transformer;
    // Of the image's twelve tokens, so many rows of four.
    let cut = |rows: usize| {
        let mut inputs = golden::inputs();
        inputs.hidden_states = inputs.hidden_states.narrow(1, 0, rows * 4);
        inputs.img_ids = PositionIds::image(rows, 4).unwrap();
        inputs
    };
    let run = |model: &FluxTransformer, rows| golden::values(model.forward(cut(rows)).unwrap());
    let expected = [1, 2, 3].map(|rows| run(&golden::model(CHECKPOINTS[0]).transformer, rows));
    assert_ne!(expected[1][..8], expected[2][..8]);
    std::thread::scope(|scope| {
        for first in 0..3 {
            let (model, run, expected) = (model.clone(), &run, &expected);
            scope.spawn(move || {
                for index in (0..6).map(|turn| (first + turn) % 3) {
                    assert_eq!(run(&model, index + 1), expected[index]);
                }
            });
        }
    });
}

#[test]
fn a_row_of_a_batch_does_not_depend_on_the_others() {
    let model = golden::model(CHECKPOINTS[0]);
    let both = golden::values(model.transformer.forward(golden::inputs()).unwrap());
    let mut inputs = golden::inputs();
    inputs.hidden_states = inputs.hidden_states.narrow(0, 1, 1);
    inputs.encoder_hidden_states = inputs.encoder_hidden_states.narrow(0, 1, 1);
    inputs.pooled_projections = inputs.pooled_projections.narrow(0, 1, 1);
    inputs.timestep.remove(0);
    inputs.guidance.as_mut().unwrap().remove(0);
    let second = golden::values(model.transformer.forward(inputs).unwrap());
    assert_close("second row", &second, &both[both.len() / 2..]);
}
