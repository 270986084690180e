//! The check that the base is what it was; one flipped byte makes it fail.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use clap::Parser;
use overglaze_cli::{
    CliError, Console, Exit, Latents,
    args::{Cli, Command},
    commands::sweep::sweep_model,
    demo, device,
    model_source::LoadedModel,
    restoration::{BaseState, Restoration},
};
use overglaze_core::{
    LoaderConfig,
    fingerprint::{Fingerprint, fingerprint},
};
use overglaze_models::{FluxModel, flux::FluxLoadOptions};
use overglaze_stream::{MemorySource, StreamError, TensorEntry, WeightSource};

use crate::overglaze::text;

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

/// The demo's weights; from the second time on that one tensor is loaded, one bit of it is another.
#[derive(Debug)]
struct Decaying {
    source: Arc<dyn WeightSource>,
    tensor: &'static str,
    loaded: Mutex<BTreeSet<String>>,
}

impl WeightSource for Decaying {
    fn entries(&self) -> &BTreeMap<String, TensorEntry> {
        self.source.entries()
    }

    fn metadata(&self) -> &BTreeMap<String, String> {
        self.source.metadata()
    }

    fn label(&self) -> String {
        self.source.label()
    }

    fn read(&self, name: &str) -> Result<Bytes, StreamError> {
        self.source.read(name)
    }

    fn read_into(&self, name: &str, buffer: &mut [u8]) -> Result<(), StreamError> {
        self.source.read_into(name, buffer)?;
        let mut loaded = self.loaded.lock().expect("no test panics while it loads");
        let is_first = loaded.insert(name.into());
        if !is_first && name == self.tensor {
            buffer[0] ^= 1;
        }
        Ok(())
    }
}

/// Sweeps the demo from `tensor` on decaying weights, under a budget that has every pass load them again.
fn swept_while_decaying(tensor: &'static str, folder: &Path) -> Result<Exit, CliError> {
    let sheet = folder.join("sheet.png");
    let line = [
        "overglaze",
        "sweep",
        "--quiet",
        "--prompt",
        "bag",
        "--steps",
        "1",
        "-o",
        text(&sheet),
    ];
    let cli = Cli::try_parse_from(line).expect("the arguments are right");
    let Command::Sweep(args) = &cli.command else {
        panic!("sweep is a sweep")
    };
    let device = device::host().expect("a CPU is compiled in");
    let source = Decaying {
        source: demo::weights()?,
        tensor,
        loaded: Mutex::default(),
    };
    let options = FluxLoadOptions {
        config: Some(demo::config()?),
        loader: LoaderConfig::streamed(device.clone(), 300_000),
    };
    let model = LoadedModel {
        flux: FluxModel::load(Arc::new(source), options)?,
        label: demo::NAME.into(),
        notes: Vec::new(),
        words: Some(demo::words()?),
        scheduler: None,
        device,
    };
    let sweep = sweep_model(model, args, &Console::new(&cli.global))?;
    assert_eq!(sweep.report.base_restored, sweep.check().is_ok());
    sweep.check()
}

#[test]
fn a_byte_that_changes_between_the_hashes_fails_the_sweep() {
    let folder = tempfile::tempdir().unwrap();
    let ended = swept_while_decaying("proj_out.weight", folder.path());
    let error = ended.map(|_| ()).unwrap_err();
    assert_eq!((error.exit(), error.exit().code()), (Exit::Failed, 1));
    assert_eq!(
        error.to_string(),
        "the base is not restored: the hash of its stored bytes differs from before the first mount; this is a \
         bug, please report it with the table above"
    );
    let ended = swept_while_decaying("no such tensor", folder.path());
    assert_eq!(
        ended.unwrap(),
        Exit::Done,
        "sound weights pass the same check"
    );
}
