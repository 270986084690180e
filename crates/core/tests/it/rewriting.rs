//! Weights written in every format that can be, and read again.

use std::{io::Write, path::Path, sync::Arc};

use burn::tensor::FloatDType;
use bytes::Bytes;
use overglaze_core::{Container, FileRewrite, Outcome, PackRules, open, packed_weight};
use overglaze_quant::{Encode, QuantizedTensor, encoder_by_name, encoders_by_name};
use overglaze_stream::{MemorySource, WeightSource};

const SAFETENSORS: (Container, FloatDType) = (Container::Safetensors, FloatDType::F32);
const WEIGHT: &str = "blocks.0.fc.weight";

/// A matrix, a bias beside it, a convolution's kernel and a norm.
fn source(shape: [usize; 2]) -> MemorySource {
    let mut source = MemorySource::new("a model");
    let mut insert = |name: &str, shape: &[usize]| {
        let bytes = values(shape.iter().product())
            .into_iter()
            .flat_map(f32::to_le_bytes);
        source
            .insert(name, "F32", shape.to_vec(), bytes.collect::<Bytes>())
            .expect("it can be");
    };
    insert(WEIGHT, &shape);
    insert("blocks.0.proj.weight", &shape);
    insert("blocks.0.fc.bias", &shape[..1]);
    insert("blocks.0.conv.weight", &[16, 6, 3, 4]);
    insert("blocks.0.norm.weight", &[96, 2]);
    source
}

fn values(len: usize) -> Vec<f32> {
    (0..len)
        .map(|index| (index * 37 % 101) as f32 / 25.0 - 2.0)
        .collect()
}

/// `rewrite` as a file in `folder`, opened.
fn written(rewrite: &FileRewrite<'_>, folder: &Path) -> Arc<dyn WeightSource> {
    let file = match rewrite.check_gguf() {
        Ok(()) => {
            let layout = rewrite.gguf_layout("new", Vec::new()).expect("it can be");
            (
                folder.join("new.gguf"),
                rewrite.write_gguf(layout, Vec::new(), &mut |_| {}),
            )
        }
        Err(_) => {
            rewrite.check_safetensors().expect("it can be");
            let layout = rewrite.safetensors_layout("new").expect("it can be");
            let written = rewrite.write_safetensors(layout, Vec::new(), &mut |_| {});
            (folder.join("new.safetensors"), written)
        }
    };
    let (path, bytes) = file;
    std::fs::File::create(&path)
        .expect("it can be")
        .write_all(&bytes.expect("it can be"))
        .expect("it can be");
    open(&path).expect("it can be")
}

fn decoded(source: &dyn WeightSource, name: &str) -> (Vec<f32>, Vec<usize>) {
    let (weight, shape) = packed_weight(source, name).expect("it can be");
    let values = weight.decoded(FloatDType::F32);
    (values.try_to_vec().expect("it can be"), shape)
}

fn packed(encoder: &'static dyn Encode, shape: [usize; 2]) -> Vec<f32> {
    let parts = encoder.encode(&values(shape[0] * shape[1]), shape);
    let packed = QuantizedTensor::new(encoder.format(), shape, parts).expect("it can be");
    packed
        .decoded(FloatDType::F32)
        .try_to_vec()
        .expect("it can be")
}

/// Rows of 2048 are whole blocks and groups of every format, those of 96 are not of some.
#[test]
fn every_format_reads_what_is_written_in_it() {
    for shape in [[4, 2048], [64, 96], [3, 64]] {
        for encoder in encoders_by_name() {
            let source = source(shape);
            let rules = PackRules::default();
            let container = match encoder.format().ggml_type() {
                Some(_) => Container::Gguf,
                None => Container::Safetensors,
            };
            let target = (container, FloatDType::F32);
            let rewrite = FileRewrite::packed(&source, encoder, &rules, target);
            let is_packed =
                |name: &str| matches!(rewrite.weights()[name].outcome, Outcome::Packed(_));
            assert_eq!(
                is_packed(WEIGHT),
                encoder.takes(&shape),
                "{}",
                encoder.encoding()
            );
            assert!(!is_packed("blocks.0.norm.weight") && !is_packed("blocks.0.fc.bias"));
            let folder = tempfile::tempdir().unwrap();
            let new = written(&rewrite, folder.path());
            for (name, weight) in rewrite.weights() {
                let stored = &weight.stored.shape;
                let matrix = [stored[0], stored[1..].iter().product()];
                let (found, found_shape) = decoded(&*new, name);
                let expected = match is_packed(name) {
                    true => packed(encoder, matrix),
                    false => decoded(&source, name).0,
                };
                assert_eq!(found_shape, *stored, "{name} in {}", encoder.encoding());
                assert_eq!(found, expected, "{name} in {}", encoder.encoding());
                assert!(found.iter().any(|value| *value != 0.0));
            }
        }
    }
}

/// A file's word about its packed weights follows them.
#[test]
fn the_description_of_packed_weights_is_that_of_the_new_file() {
    let encoder = |name| encoder_by_name(name).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (plain, rules) = (source([64, 96]), PackRules::default());
    let config = |source: &dyn WeightSource| source.metadata().get("quantization_config").cloned();

    let rewrite = FileRewrite::packed(&plain, encoder("sdnq_uint4"), &rules, SAFETENSORS);
    let uint4 = written(&rewrite, folder.path());
    let text = config(&*uint4).unwrap();
    assert!(text.contains(r#""weights_dtype":"uint4""#), "{text}");
    assert!(
        text.contains(r#""blocks.0.conv""#) && !text.contains("bias"),
        "{text}"
    );

    // What stays packed would be read as the new type: it is decoded.
    let keep = PackRules {
        keep: vec![WEIGHT.into()],
        ..PackRules::default()
    };
    let others = tempfile::tempdir().unwrap();
    let rewrite = FileRewrite::packed(&*uint4, encoder("sdnq_int8"), &keep, SAFETENSORS);
    let kept = written(&rewrite, others.path());
    assert_eq!(decoded(&*kept, WEIGHT), decoded(&*uint4, WEIGHT));
    assert!(
        config(&*kept)
            .unwrap()
            .contains(r#""weights_dtype":"int8""#)
    );

    // Nothing is left to describe.
    let rewrite = FileRewrite::decoded(&*uint4, FloatDType::F32);
    assert_eq!(config(&*written(&rewrite, others.path())), None);

    // One that is packed so already goes over, with its description.
    let rewrite = FileRewrite::packed(&*uint4, encoder("sdnq_uint4"), &rules, SAFETENSORS);
    assert!(matches!(rewrite.weights()[WEIGHT].outcome, Outcome::Copied));
    let copied = written(&rewrite, others.path());
    assert_eq!(decoded(&*copied, WEIGHT), decoded(&*uint4, WEIGHT));
}

/// A GGUF file holds one tensor a weight, of types it has numbers for: others are decoded, also where they were kept.
#[test]
fn what_gguf_cannot_hold_is_decoded_for_it() {
    let (plain, rules) = (source([64, 96]), PackRules::default());
    let folder = tempfile::tempdir().unwrap();
    let fp8 = encoder_by_name("fp8").unwrap();
    let packed = FileRewrite::packed(&plain, fp8, &rules, SAFETENSORS);
    let packed = written(&packed, folder.path());
    let keep = PackRules {
        keep: vec![WEIGHT.into()],
        ..PackRules::default()
    };
    let q8_0 = encoder_by_name("q8_0").unwrap();
    let target = (Container::Gguf, FloatDType::F32);
    let rewrite = FileRewrite::packed(&*packed, q8_0, &keep, target);
    rewrite.check_gguf().unwrap();
    let gguf = written(&rewrite, folder.path());
    assert_eq!(decoded(&*gguf, WEIGHT), decoded(&*packed, WEIGHT));
}
