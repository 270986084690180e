//! The demo's numbers against `PyTorch`'s, through the library.

use std::sync::Arc;

use burn::tensor::Device;
use bytes::Bytes;
use overglaze_cli::{Latents, demo, device};
use overglaze_core::{LayerTree, adapter_file, mount, unmount};
use overglaze_models::{
    FluxModel, PositionIds, SampleOptions, Sigmas, flux::FluxLoadOptions, sample,
};
use overglaze_patches::PatchSet;
use overglaze_stream::MemorySource;

use crate::reference::{assert_close, latents, values, worst};

fn model(device: &Device) -> FluxModel {
    let options = FluxLoadOptions {
        config: Some(demo::config().expect("it is embedded")),
        ..FluxLoadOptions::resident(device.clone())
    };
    let weights = demo::weights().expect("they are embedded");
    FluxModel::load(weights, options).expect("the demo loads")
}

fn sampled(model: &FluxModel, device: &Device) -> Latents {
    let words = demo::words().expect("they are embedded");
    let conditioning = words.conditioning(words.words(), device);
    let options = SampleOptions {
        sigmas: Sigmas::from_values(values("in.sigmas")).expect("they are levels"),
        guidance: None,
        img_ids: PositionIds::image(8, 8).expect("64 tokens are few"),
    };
    let noise = latents("in.noise").rows(0..10, device);
    let tokens = sample(
        &model.transformer,
        noise,
        &conditioning.expect("it knows its words"),
        &options,
        &mut |_, _| {},
    );
    Latents::from_tensor(tokens.expect("it samples")).expect("it reads back")
}

fn negative(device: &Device) -> PatchSet {
    const FILE: &[u8] = include_bytes!("../../demo/more/negative.safetensors");
    let source = MemorySource::from_safetensors("negative", Bytes::from_static(FILE));
    let source = source.expect("the file is whole");
    adapter_file::from_source("negative", &source, None, device).expect("it is an adapter")
}

// The base and the outline epochs are compared where they are swept, in `contact_sheet`.
#[test]
fn the_kohya_lora_gives_what_pytorch_gives() {
    let device = device::host().unwrap();
    let mut model = model(&device);
    let report = mount(&mut model.transformer, "negative", &negative(&device), 1.0).unwrap();
    assert_eq!((report.keys_applied(), report.keys_unmatched()), (66, 0));
    let found = sampled(&model, &device);
    assert_close(&found, "out.negative");
    assert!(
        worst(found.values(), &values("out.base")) > 0.5,
        "it changes the pictures"
    );
    unmount(&mut model.transformer, "negative").unwrap();
    let mut left = 0;
    model
        .transformer
        .visit_layers(&mut |_, layer| left += layer.num_patches());
    assert_eq!(left, 0);
}

#[test]
fn the_default_schedule_is_the_reference_one() {
    let sigmas = Sigmas::new(demo::NUM_STEPS.into(), None).unwrap();
    // torch.linspace rounds differently in the last place.
    assert!(worst(sigmas.as_slice(), &values("in.sigmas")) < 1e-7);
}

#[test]
fn every_embedded_lora_applies_whole() {
    let device = device::host().unwrap();
    let model = Arc::new(model(&device));
    for (index, name) in demo::LORA_NAMES.into_iter().enumerate() {
        let mut network = model.transformer.clone();
        let set = demo::lora(index, &device).unwrap();
        let report = mount(&mut network, name, &set, 1.0).unwrap();
        assert_eq!(
            (report.keys_applied(), report.keys_unmatched()),
            (78, 0),
            "{name}"
        );
    }
}
