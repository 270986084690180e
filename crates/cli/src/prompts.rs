//! Prompts: words of the demo, or what text encoders said, read from a file.

use std::path::Path;

use burn::tensor::Device;
use overglaze_models::{Conditioning, WordEmbedding, did_you_mean};
use overglaze_stream::WeightSource;

use crate::{CliError, args::SceneArgs, model_source, model_source::LoadedModel, tensor_file};

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
        let given = match &args.prompts_file {
            Some(path) => Some(lines(path)?),
            None => (!args.prompts.is_empty()).then(|| args.prompts.clone()),
        };
        match (&model.words, given) {
            (Some(words), given) => Self::of_words(
                words,
                given.unwrap_or_else(|| words.words().to_vec()),
                &model.device,
            ),
            (None, Some(_)) => Err(CliError::NoTextEncoder {
                model: model.label.clone(),
            }),
            (None, None) => Err(CliError::NoConditioning {
                model: model.label.clone(),
            }),
        }
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

fn lines(path: &Path) -> Result<Vec<String>, CliError> {
    let text = model_source::read(path)?;
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<String> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .map(String::from)
        .collect();
    match lines.is_empty() {
        true => Err(CliError::NoPrompts {
            path: path.to_owned(),
        }),
        false => Ok(lines),
    }
}

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
