//! Conditioning from files and from the demo's words.

use burn::tensor::{Device, Tensor};
use bytes::Bytes;
use half::{bf16, f16};
use overglaze_models::{Conditioning, WordEmbedding};
use overglaze_stream::MemorySource;

use crate::golden;

fn f32_bytes(values: &[f32]) -> Bytes {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect::<Vec<_>>()
        .into()
}

/// A conditioning file of 2 prompts, 1 token each; `tag` is the type of the pooled projections.
fn file(tag: &str, pooled: &[usize], guidance: Option<usize>) -> MemorySource {
    let mut source = MemorySource::new("prompts.safetensors");
    let sequences = f32_bytes(&[1.0, 2.0, 3.0, 4.0]);
    source
        .insert("encoder_hidden_states", "F32", [2, 1, 2], sequences)
        .unwrap();
    let count = pooled.iter().product();
    let values: Bytes = match tag {
        "BF16" => (0..count)
            .flat_map(|i| bf16::from_f32(i as f32).to_le_bytes())
            .collect(),
        "F16" => (0..count)
            .flat_map(|i| f16::from_f32(i as f32).to_le_bytes())
            .collect(),
        "F32" => (0..count).flat_map(|i| (i as f32).to_le_bytes()).collect(),
        _ => Bytes::from(vec![0; count * 8]),
    };
    source
        .insert("pooled_projections", tag, pooled, values)
        .unwrap();
    if let Some(rows) = guidance {
        source
            .insert("guidance", "F32", [rows], f32_bytes(&vec![3.5; rows]))
            .unwrap();
    }
    source
}

fn read(source: &MemorySource) -> Result<Conditioning, String> {
    Conditioning::read(source, &Device::flex()).map_err(|error| error.to_string())
}

#[test]
fn files_are_read_in_any_float_type() {
    for tag in ["F32", "F16", "BF16"] {
        let conditioning = read(&file(tag, &[2, 3], Some(2))).unwrap();
        assert_eq!(conditioning.num_prompts(), 2);
        assert_eq!(conditioning.guidance(), Some(&[3.5, 3.5][..]));
        let pooled = golden::values(conditioning.pooled_projections().clone());
        assert_eq!(pooled, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        let second = conditioning.rows(1..9).unwrap();
        assert_eq!(
            golden::values(second.encoder_hidden_states().clone()),
            [3.0, 4.0]
        );
        assert_eq!(
            golden::values(second.pooled_projections().clone()),
            [3.0, 4.0, 5.0]
        );
        assert_eq!(second.guidance(), Some(&[3.5][..]));
        assert!(conditioning.rows(2..3).is_err());
    }
}

#[test]
fn files_that_do_not_fit_are_refused() {
    let cases = [
        (
            file("I64", &[2, 3], None),
            "`pooled_projections` has type I64, expected F32, F16 or BF16",
        ),
        (
            file("F32", &[3, 3], None),
            "`pooled_projections` has shape [3, 3], expected 2 rows",
        ),
        (
            file("F32", &[2, 3, 1], None),
            "`pooled_projections` has shape [2, 3, 1], expected 2 dim",
        ),
        (
            file("F32", &[2, 3], Some(1)),
            "`guidance` has shape [1], expected 2 rows",
        ),
        (
            MemorySource::new("empty"),
            "empty has no tensor `encoder_hidden_states`",
        ),
    ];
    for (source, expected) in cases {
        let message = read(&source).map(|_| ()).unwrap_err();
        assert!(message.contains(expected), "{message}");
    }
    for not_finite in [f32::NAN, f32::INFINITY] {
        let mut source = MemorySource::new("prompts.safetensors");
        for (name, shape, values) in [
            ("encoder_hidden_states", vec![1, 1, 2], [1.0, 2.0]),
            ("pooled_projections", vec![1, 2], [0.0, not_finite]),
        ] {
            source
                .insert(name, "F32", shape, f32_bytes(&values))
                .unwrap();
        }
        let expected = format!(
            "prompts.safetensors: tensor `pooled_projections` holds {not_finite}, expected finite numbers"
        );
        assert_eq!(read(&source).map(|_| ()), Err(expected));
    }
    let none = Conditioning::new(
        Tensor::zeros([0, 1, 2], &Device::flex()),
        Tensor::zeros([0, 2], &Device::flex()),
        None,
    );
    assert!(none.is_err());
}

/// Three words of width 2.
fn embedding(words: Option<&str>, shape: &[usize]) -> MemorySource {
    let metadata = words.map(|words| serde_json::json!({ "words": words }));
    let count: usize = shape.iter().product();
    let mut header = serde_json::json!({
        "embedding.weight": {"dtype": "F32", "shape": shape, "data_offsets": [0, count * 4]},
    });
    if let Some(metadata) = metadata {
        header["__metadata__"] = metadata;
    }
    let header = header.to_string();
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend((0..count).flat_map(|index| (index as f32).to_le_bytes()));
    MemorySource::from_safetensors("words.safetensors", bytes.into()).unwrap()
}

const WORDS: &str = r#"["boot", "bag", "T-shirt"]"#;

#[test]
fn a_prompt_is_one_word() {
    let embedding = WordEmbedding::read(&embedding(Some(WORDS), &[3, 2])).unwrap();
    assert_eq!(embedding.words(), ["boot", "bag", "T-shirt"]);
    let conditioning = embedding
        .conditioning(&["t-shirt", " Boot "], &Device::flex())
        .unwrap();
    assert_eq!(conditioning.encoder_hidden_states().dims(), [2, 1, 2]);
    assert_eq!(
        golden::values(conditioning.pooled_projections().clone()),
        [4.0, 5.0, 0.0, 1.0]
    );
    let message = embedding
        .conditioning(&["boat"], &Device::flex())
        .unwrap_err()
        .to_string();
    let expected = "the demo does not know the prompt word `boat` (did you mean `boot`?); it knows: boot, bag, T-shirt";
    assert_eq!(message, expected);
    assert!(embedding.conditioning(&[""; 0], &Device::flex()).is_err());
}

#[test]
fn damaged_embeddings_are_refused() {
    let cases = [
        (
            embedding(None, &[3, 2]),
            "words.safetensors has no metadata entry `words`",
        ),
        (
            embedding(Some("boot"), &[3, 2]),
            "the metadata entry `words` is not JSON",
        ),
        (
            embedding(Some(WORDS), &[2, 2]),
            "has shape [2, 2], expected [3, width]",
        ),
        (
            embedding(Some(WORDS), &[3]),
            "has shape [3], expected [3, width]",
        ),
        (
            embedding(Some("[]"), &[0, 2]),
            "has shape [0, 2], expected [0, width]",
        ),
    ];
    for (source, expected) in cases {
        let message = WordEmbedding::read(&source).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
}
