//! The demo's numbers against `PyTorch`'s, through the library.

use std::sync::Arc;

use burn::tensor::Device;
use overglaze_cli::{
    Latents, demo,
    device::{self, DeviceChoice},
};
use overglaze_core::{LayerTree, LoaderConfig, adapter_file, mount, unmount};
use overglaze_models::{
    FluxModel, PositionIds, SampleOptions, Sigmas, flux::FluxLoadOptions, sample,
};

use crate::overglaze::demo_file;
use crate::reference::{assert_close, latents, values, worst};

fn load(config: LoaderConfig) -> FluxModel {
    let options = FluxLoadOptions {
        config: Some(demo::config().expect("it is embedded")),
        loader: config,
    };
    let weights = demo::weights().expect("they are embedded");
    FluxModel::load(weights, options).expect("the demo loads")
}

fn model(device: &Device) -> FluxModel {
    load(LoaderConfig::resident(device.clone()))
}

/// Image tokens of the ten words, from the reference noise.
pub(crate) fn sampled(model: &FluxModel, device: &Device) -> Latents {
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

/// An adapter of the demo that is not embedded, the keys of its file, and what `PyTorch` computed with it.
const MORE: [(&str, usize, &str); 3] = [
    // A LoRA in kohya's names, fused.
    ("negative.safetensors", 66, "out.negative"),
    // A DoRA in diffusers' names.
    ("stripes.safetensors", 117, "out.stripes"),
    // A LoHa as a PEFT folder.
    ("small", 156, "out.small"),
];

/// The CPU devices that are compiled in, each resident and streamed.
fn places() -> Vec<(&'static str, LoaderConfig)> {
    let mut places = Vec::new();
    let names = device::compiled().into_iter();
    for name in names.filter(|name| ["flex", "ndarray"].contains(name)) {
        let choice: DeviceChoice = name.parse().expect("it is a device's name");
        let device = device::resolve(choice).expect("it is compiled in");
        places.push((name, LoaderConfig::resident(device.clone())));
        places.push((name, LoaderConfig::streamed(device, BUDGET_BYTES)));
    }
    places
}

// The base and the outline epochs are compared where they are swept, in `contact_sheet`.
fn check(index: usize) {
    let (file, num_keys, expected) = MORE[index];
    let host = device::host().unwrap();
    let path = demo_file("more").join(file);
    let set = adapter_file::load(&path, &host).expect("it is an adapter");
    for (name, config) in places() {
        let device = config.device.clone();
        let is_streamed = config.budget_bytes.is_some();
        let mut model = load(config);
        let report = mount(&mut model.transformer, file, &set, 1.0).unwrap();
        let keys = (report.keys_applied(), report.keys_unmatched());
        assert_eq!(keys, (num_keys, 0), "{file}");
        let found = sampled(&model, &device);
        assert_close(&found, expected);
        let effect = worst(found.values(), &values("out.base"));
        assert!(
            effect > 0.5,
            "{file} on {name}, streamed {is_streamed}: {effect}"
        );
        unmount(&mut model.transformer, file).unwrap();
        let mut left = 0;
        let network = &model.transformer;
        network.visit_layers(&mut |_, layer| left += layer.num_patches());
        assert_eq!(left, 0);
    }
}

#[test]
fn the_kohya_lora_gives_what_pytorch_gives() {
    check(0);
}

#[test]
fn the_dora_gives_what_pytorch_gives() {
    check(1);
}

#[test]
fn the_loha_folder_gives_what_pytorch_gives() {
    check(2);
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

/// Room for a third of the model.
const BUDGET_BYTES: u64 = 800_000;
