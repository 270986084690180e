//! A packed weight in every registered format: written by the format's own encoders, and as the golden cases have them.

use std::{fs, path::Path};

use burn::tensor::{FloatDType, TensorData};
use bytes::Bytes;
use overglaze_core::packed_weight;
use overglaze_quant::{Encode, QuantFormat, StoredContent, encoders_by_name, formats_by_name};
use overglaze_stream::{MemorySource, WeightSource};

use crate::{closed_format, numbers::wave};

/// A linear layer over a packed weight.
pub(crate) struct PackedCase {
    /// Where it comes from.
    pub(crate) name: String,
    /// Name of its format.
    pub(crate) format: &'static str,
    pub(crate) source: MemorySource,
    /// The layer's name in the source.
    pub(crate) path: String,
    /// `[d_output, d_input]`.
    pub(crate) shape: [usize; 2],
    /// What the weight stands for, `[d_output, d_input]`.
    pub(crate) values: Vec<f32>,
}

/// Every case; there are some of each format.
pub(crate) fn packed_cases() -> Vec<PackedCase> {
    let formats = formats_by_name();
    let written = encoders_by_name().into_iter().map(written);
    let plain = formats.iter().filter_map(|format| plain(*format));
    let mut cases: Vec<_> = written.chain(plain).collect();
    cases.push(closed());
    for area in ["quant_bnb", "quant_fp8", "quant_gguf", "quant_sdnq"] {
        cases.extend(golden(area));
    }
    for format in formats {
        let name = format.name();
        let is_there = cases.iter().any(|case| case.format == name);
        assert!(is_there, "no weight is packed as {name}");
    }
    cases
}

/// A weight of waves, written by `encoder`.
fn written(encoder: &dyn Encode) -> PackedCase {
    let (mut source, name) = (MemorySource::new(encoder.encoding()), "fc.weight");
    let values: Vec<f32> = wave(&SHAPE, 1).iter().collect();
    let parts = encoder.encode(&values, SHAPE);
    for tensor in encoder.stored_as(name, &SHAPE) {
        let bytes = match tensor.content {
            StoredContent::Part(part) => parts.get(part).expect("it is written").bytes.clone(),
            StoredContent::Bytes(bytes) => bytes,
        };
        insert(&mut source, &tensor.name, tensor.tag, &tensor.shape, bytes);
    }
    if let Some((key, text)) = encoder.file_text(&[]) {
        source.set_metadata(key, text);
    }
    let case = case(format!("written as {}", encoder.encoding()), source, "fc");
    let case = case.expect("the weight is a matrix");
    assert_eq!(case.format, encoder.format().name(), "{}", case.name);
    case
}

/// A weight of waves in the numbers of a float type, where `format` is one.
fn plain(format: &dyn QuantFormat) -> Option<PackedCase> {
    let dtype = format.dense_dtype().filter(|dtype| dtype.is_float())?;
    let (data, mut source) = (
        wave(&SHAPE, 1).convert_dtype(dtype),
        MemorySource::new("plain"),
    );
    let bytes = data.as_bytes().to_vec().into();
    insert(&mut source, "fc.weight", format.tags()[0], &SHAPE, bytes);
    case("plain".into(), source, "fc")
}

/// The one that only its own product can read.
fn closed() -> PackedCase {
    let values: Vec<f32> = wave(&SHAPE, 2).iter().collect();
    let (mut source, bytes) = (MemorySource::new("closed"), closed_format::closed(&values));
    insert(&mut source, "fc.weight", closed_format::TAG, &SHAPE, bytes);
    PackedCase {
        name: "written".into(),
        format: "closed",
        source,
        path: "fc".into(),
        shape: SHAPE,
        values,
    }
}

/// The linear layers in the golden cases of `area`.
fn golden(area: &str) -> Vec<PackedCase> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cases");
    let files = fs::read_dir(folder.join(area)).expect("the cases are part of the repository");
    let paths = files.map(|file| file.expect("it can be listed").path());
    let is_case = |path: &std::path::PathBuf| path.extension().is_some_and(|e| e == "safetensors");
    let mut paths: Vec<_> = paths.filter(is_case).collect();
    paths.sort_unstable();
    paths.iter().flat_map(|path| golden_file(path)).collect()
}

fn golden_file(path: &Path) -> Vec<PackedCase> {
    let name = path.file_stem().expect("it is a file").to_string_lossy();
    let bytes = fs::read(path).expect("it can be read");
    let source = MemorySource::from_safetensors(&*name, bytes.into()).expect("it is a case");
    if let Some(blocks) = blocks(&source) {
        return case(name.into(), blocks, "param").into_iter().collect();
    }
    if source.metadata().contains_key("layout") {
        // The values beside a GGUF file.
        return Vec::new();
    }
    let weights = source.entries().keys().filter_map(|tensor| {
        let path = tensor.strip_suffix(".weight")?;
        path.starts_with("param").then(|| path.to_owned())
    });
    let cases = weights.filter_map(|path| case(name.to_string(), source.clone(), &path));
    cases.collect()
}

/// A case's bare blocks, under the type it names.
fn blocks(source: &MemorySource) -> Option<MemorySource> {
    let tag = source.metadata().get("qtype")?;
    let shape = &source.entries().get("out.f32")?.shape;
    let bytes = source.read("param.raw").ok()?;
    let mut blocks = MemorySource::new(source.label());
    insert(&mut blocks, "param.weight", tag, shape, bytes);
    Some(blocks)
}

/// The layer `path` of `source`, where its weight is a matrix.
fn case(name: String, source: MemorySource, path: &str) -> Option<PackedCase> {
    let packed = packed_weight(&source, &format!("{path}.weight"));
    let (packed, shape) = packed.unwrap_or_else(|error| panic!("{name}, {path}: {error}"));
    let values: TensorData = packed.decoded(FloatDType::F32);
    (shape.len() == 2).then(|| PackedCase {
        name,
        format: packed.format().name(),
        source,
        path: path.into(),
        shape: packed.shape(),
        values: values.iter().collect(),
    })
}

fn insert(source: &mut MemorySource, name: &str, tag: &str, shape: &[usize], bytes: Bytes) {
    let inserted = source.insert(name, tag, shape, bytes);
    inserted.expect("the bytes are of that shape");
}

/// Rows of two blocks of 256.
const SHAPE: [usize; 2] = [8, 512];
