//! Prompts: words of the demo, or what text encoders said, read from a file.

use std::path::Path;

use burn::tensor::Device;
use overglaze_models::{Conditioning, WordEmbedding, did_you_mean};
use overglaze_stream::WeightSource;

use crate::{CliError, args::SceneArgs, document, model_source::LoadedModel, tensor_file};

/// Prompts with their conditioning.
#[derive(Clone, Debug)]
pub struct Prompts {
    /// What to call each of them.
    pub labels: Vec<String>,
    /// One row a prompt.
    pub conditioning: Conditioning,
}

impl Prompts {
    /// The prompts that the flags ask for; all words of the demo where they ask for none.
    ///
    /// # Errors
    /// [`CliError::Model`] for an unknown word, [`CliError::NoTextEncoder`], [`CliError::NoConditioning`], or what is wrong
    /// with the file.
    pub fn of(args: &SceneArgs, model: &LoadedModel) -> Result<Self, CliError> {
        if let Some(path) = &args.conditioning {
            return Self::read(path, model);
        }
        let Some(words) = &model.words else {
            let model = model.label.clone();
            let has_text = args.prompts_file.is_some() || !args.prompts.is_empty();
            return Err(match has_text {
                true => CliError::NoTextEncoder { model },
                false => CliError::NoConditioning { model },
            });
        };
        match &args.prompts_file {
            Some(path) => Self::of_file(words, path, &model.device),
            None if args.prompts.is_empty() => {
                Self::of_words(words, words.words().to_vec(), &model.device)
            }
            None => Self::of_words(words, args.prompts.clone(), &model.device),
        }
    }

    fn of_file(words: &WordEmbedding, path: &Path, device: &Device) -> Result<Self, CliError> {
        let lines = lines(path)?;
        for (line, prompt) in &lines {
            words
                .conditioning(&[prompt], device)
                .map_err(|source| CliError::PromptLine {
                    path: path.to_owned(),
                    line: *line,
                    source: Box::new(source),
                })?;
        }
        let labels = lines.into_iter().map(|(_, prompt)| prompt).collect();
        Self::of_words(words, labels, device)
    }

    fn of_words(
        words: &WordEmbedding,
        labels: Vec<String>,
        device: &Device,
    ) -> Result<Self, CliError> {
        let conditioning = words.conditioning(&labels, device)?;
        Ok(Self {
            labels,
            conditioning,
        })
    }

    fn read(path: &Path, model: &LoadedModel) -> Result<Self, CliError> {
        let source = tensor_file::open(path)?;
        let config = model.flux.transformer.config();
        let widths = [config.joint_attention_dim, config.pooled_projection_dim];
        for ((tensor, expected), width) in CONDITIONING.into_iter().zip(widths) {
            check_tensor(&*source, (tensor, expected), width)?;
        }
        let conditioning = Conditioning::read(&*source, &model.device)?;
        let labels = labels(&*source, conditioning.num_prompts());
        Ok(Self {
            labels,
            conditioning,
        })
    }
}

/// Before the model is hashed and run: the tensor is there, and as wide as the model takes it.
fn check_tensor(
    source: &dyn WeightSource,
    (tensor, expected): (&str, &'static str),
    width: usize,
) -> Result<(), CliError> {
    let Some(entry) = source.entries().get(tensor) else {
        return Err(CliError::TensorMissing {
            file: source.label(),
            tensor: tensor.into(),
            hint: did_you_mean(tensor, source.entries().keys().map(String::as_str)),
            expected,
        });
    };
    if entry.shape.last() == Some(&width) {
        return Ok(());
    }
    Err(CliError::TensorShape {
        file: source.label(),
        tensor: tensor.into(),
        found: entry.shape.clone(),
        expected: format!("{expected}, and the model's width is {width}"),
    })
}

/// Names in the metadata entry `prompts` (a JSON list), else numbers.
fn labels(source: &dyn WeightSource, num_prompts: usize) -> Vec<String> {
    let written = source.metadata().get("prompts");
    let written = written.and_then(|json| serde_json::from_str::<Vec<String>>(json).ok());
    match written.filter(|written| written.len() == num_prompts) {
        Some(written) => written,
        None => (1..=num_prompts)
            .map(|number| format!("prompt {number}"))
            .collect(),
    }
}

/// Every line that is not blank, with its number from 1.
fn lines(path: &Path) -> Result<Vec<(usize, String)>, CliError> {
    let text = document::read(path, document::MAX_TEXT_BYTES)?;
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&text);
    let mut lines = Vec::new();
    for (line, bytes) in (1..).zip(text.split(|byte| *byte == b'\n')) {
        let prompt = std::str::from_utf8(bytes).map_err(|_| CliError::PromptEncoding {
            path: path.to_owned(),
            line,
        })?;
        if !prompt.trim().is_empty() {
            lines.push((line, prompt.trim().to_owned()));
        }
    }
    match lines.is_empty() {
        true => Err(CliError::NoPrompts {
            path: path.to_owned(),
        }),
        false => Ok(lines),
    }
}

/// What some editors put before UTF-8 text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Tensors that a conditioning file must have.
const CONDITIONING: [(&str, &str); 2] = [
    (
        "encoder_hidden_states",
        "what the text encoder says, [prompts, tokens, width]",
    ),
    (
        "pooled_projections",
        "the pooled projections, [prompts, width]",
    ),
];
