//! The check that the base is what it was; one flipped byte makes it fail.

use std::sync::Arc;

use bytes::Bytes;
use overglaze_cli::{
    CliError, Exit, Latents, demo, device,
    restoration::{BaseState, Restoration},
};
use overglaze_core::fingerprint::{Fingerprint, fingerprint};
use overglaze_models::{FluxModel, flux::FluxLoadOptions};
use overglaze_stream::{MemorySource, WeightSource};

fn state(bytes: &[u8], output: Vec<f32>) -> BaseState {
    let len = output.len();
    BaseState {
        fingerprint: Fingerprint::of(bytes),
        output: Latents::new(output, [1, 1, len]),
    }
}

#[test]
fn a_single_flipped_bit_counts() {
    let before = state(&[1, 2, 3], vec![0.5, 0.0]);
    let between = |after| Restoration::between(&before, &after);
    assert_eq!(
        between(state(&[1, 2, 3], vec![0.5, 0.0])),
        Restoration::Identical
    );
    assert_eq!(
        between(state(&[1, 2, 2], vec![0.5, 0.0])),
        Restoration::BytesChanged
    );
    // -0.0 == 0.0, but not bit for bit; nor is the next number after 0.5.
    assert_eq!(
        between(state(&[1, 2, 3], vec![0.5, -0.0])),
        Restoration::OutputChanged
    );
    assert_eq!(
        between(state(&[1, 2, 3], vec![0.5_f32.next_up(), 0.0])),
        Restoration::OutputChanged
    );
    assert_eq!(
        between(state(&[1, 2, 3], vec![0.5])),
        Restoration::OutputChanged
    );
}

#[test]
fn a_changed_base_fails_the_run() {
    let what = Restoration::BytesChanged.difference().unwrap();
    let error = CliError::BaseChanged { what };
    assert_eq!(error.exit(), Exit::Failed);
    assert_eq!(
        error.to_string(),
        "the base is not restored: the hash of its stored bytes differs from before the first mount; this is a \
         bug, please report it with the table above"
    );
    assert_eq!(Restoration::OutputChanged.difference(), Some("its output"));
    assert_eq!(Restoration::Identical.difference(), None);
}

#[test]
fn a_base_that_gives_no_numbers_can_still_be_the_same() {
    let before = state(&[], vec![f32::NAN]);
    assert_eq!(
        Restoration::between(&before, &before),
        Restoration::Identical
    );
}

#[test]
fn one_flipped_byte_of_the_demos_weights_changes_its_fingerprint() {
    let hash = |source: Arc<dyn WeightSource>| {
        let options = FluxLoadOptions {
            config: Some(demo::config().unwrap()),
            ..FluxLoadOptions::resident(device::host().unwrap())
        };
        let model = FluxModel::load(source, options).unwrap();
        fingerprint(&model.transformer, &mut |_| {}).unwrap()
    };
    let file = std::fs::read(crate::overglaze::demo_file(
        "transformer/diffusion_pytorch_model.safetensors",
    ));
    let mut file = file.unwrap();
    let source = |file: &[u8]| {
        let file = Bytes::copy_from_slice(file);
        Arc::new(MemorySource::from_safetensors("copy", file).unwrap()) as Arc<dyn WeightSource>
    };
    let before = hash(source(&file));
    assert_eq!(before, hash(demo::weights().unwrap()));
    let middle = file.len() / 2;
    file[middle] ^= 1;
    assert_ne!(before, hash(source(&file)));
}
