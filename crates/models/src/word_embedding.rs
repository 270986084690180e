//! The demo's text encoder: a table of words. A prompt is one word; its row is the whole encoder
//! sequence `[1, width]` and the pooled projection `[width]` as well.

use burn::tensor::{DType, Device, Tensor, TensorData};
use overglaze_stream::WeightSource;

use crate::{Conditioning, ModelError, dense::read_floats, nearest::did_you_mean};

/// Words and their vectors.
#[derive(Clone, Debug)]
pub struct WordEmbedding {
    words: Vec<String>,
    /// `[words, width]`, row by row.
    vectors: Vec<f32>,
    width: usize,
}

impl WordEmbedding {
    /// Reads `embedding.weight` `[words, width]` and the list of words in the metadata entry `words`.
    ///
    /// # Errors
    /// [`ModelError::MissingMetadata`], [`ModelError::Json`], [`ModelError::TensorShape`], or as
    /// [`read_floats`](crate::read_floats).
    pub fn read(source: &dyn WeightSource) -> Result<Self, ModelError> {
        let words: Vec<String> = Self::words_of(source)?;
        let (vectors, shape) = read_floats(source, TENSOR)?;
        match shape[..] {
            [rows, width] if rows == words.len() && rows > 0 && width > 0 => Ok(Self {
                words,
                vectors,
                width,
            }),
            _ => Err(ModelError::TensorShape {
                file: source.label(),
                tensor: TENSOR.to_owned(),
                found: shape,
                expected: format!("[{}, width], one row for each word", words.len()),
            }),
        }
    }

    /// The words it knows.
    #[must_use]
    pub fn words(&self) -> &[String] {
        &self.words
    }

    /// The conditioning of a batch of one-word prompts; case and surrounding blanks do not matter.
    ///
    /// # Errors
    /// [`ModelError::UnknownWord`], or [`ModelError::NoPrompts`] when there is none.
    pub fn conditioning(
        &self,
        prompts: &[impl AsRef<str>],
        device: &Device,
    ) -> Result<Conditioning, ModelError> {
        if prompts.is_empty() {
            return Err(ModelError::NoPrompts);
        }
        let mut rows = Vec::with_capacity(prompts.len() * self.width);
        for prompt in prompts {
            rows.extend_from_slice(self.vector(prompt.as_ref())?);
        }
        let data = TensorData::new(rows, [prompts.len(), self.width]);
        let pooled: Tensor<2> = Tensor::from_data(data, (device, DType::F32));
        Conditioning::new(pooled.clone().unsqueeze_dim(1), pooled, None)
    }

    fn vector(&self, prompt: &str) -> Result<&[f32], ModelError> {
        let word = prompt.trim().to_lowercase();
        let index = self
            .words
            .iter()
            .position(|known| known.to_lowercase() == word);
        let index = index.ok_or_else(|| ModelError::UnknownWord {
            word: prompt.to_owned(),
            hint: did_you_mean(&word, self.words.iter().map(String::as_str)),
            known: self.words.join(", "),
        })?;
        Ok(&self.vectors[index * self.width..(index + 1) * self.width])
    }

    fn words_of(source: &dyn WeightSource) -> Result<Vec<String>, ModelError> {
        let words = source
            .metadata()
            .get(WORDS)
            .ok_or_else(|| ModelError::MissingMetadata {
                file: source.label(),
                key: WORDS,
                expected: "a JSON list of words",
            })?;
        serde_json::from_str(words).map_err(|source| ModelError::Json {
            document: format!("the metadata entry `{WORDS}`"),
            source,
        })
    }
}

const TENSOR: &str = "embedding.weight";

const WORDS: &str = "words";
