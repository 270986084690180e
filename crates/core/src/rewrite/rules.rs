//! Which weights of a checkpoint are quantized, and why the others stay as they are.
//!
//! What llama.cpp, bitsandbytes' users and the converters for `ComfyUI` agree on: matrices in the middle of the network are
//! packed; norms, biases, embeddings and the first and last layers, which are few bytes and much of the error, are not.

use std::fmt;

use overglaze_quant::Encode;

/// Which weights are packed.
#[derive(Clone, Debug, Default)]
pub struct PackRules {
    /// Patterns of names that stay as they are, in which `*` stands for any characters.
    pub keep: Vec<String>,
    /// Patterns of names that are packed whatever the built-in rules say; what cannot be packed stays.
    pub pack: Vec<String>,
}

/// Why a weight is not packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeptFor {
    /// It is no matrix: a bias, a norm's scale, a single number.
    NoMatrix,
    /// It has no numbers that can be read.
    NoNumbers,
    /// Its name is that of a norm.
    Norm,
    /// Its name is that of an embedding.
    Embedding,
    /// It is one of the first or last layers.
    Ends,
    /// Its shape is none the format takes: no whole number of blocks, or no matrix but a kernel.
    Shape,
    /// A pattern of the caller keeps it.
    Asked,
}

impl KeptFor {
    /// In words, as a noun phrase in the plural.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::NoMatrix => "vectors and single numbers",
            Self::NoNumbers => "tensors that no format reads",
            Self::Norm => "norms",
            Self::Embedding => "embeddings",
            Self::Ends => "first and last layers",
            Self::Shape => "of shapes the format does not take",
            Self::Asked => "kept by a pattern",
        }
    }
}

impl fmt::Display for KeptFor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.text())
    }
}

impl PackRules {
    /// The patterns that none of `names` matches.
    #[must_use]
    pub fn unmatched<'a>(&'a self, names: &[&str]) -> Vec<&'a str> {
        let patterns = self.keep.iter().chain(&self.pack).map(String::as_str);
        patterns
            .filter(|pattern| !names.iter().any(|name| matches(pattern, name)))
            .collect()
    }

    /// Why the weight `name` of `shape` is not packed by `encoder`; `None` where it is.
    #[must_use]
    pub fn kept_for(&self, name: &str, shape: &[usize], encoder: &dyn Encode) -> Option<KeptFor> {
        if shape.len() < 2 || !name.ends_with("weight") || shape.contains(&0) {
            return Some(KeptFor::NoMatrix);
        }
        if !encoder.takes(shape) {
            return Some(KeptFor::Shape);
        }
        let is_named = |patterns: &[String]| patterns.iter().any(|pattern| matches(pattern, name));
        if is_named(&self.keep) {
            return Some(KeptFor::Asked);
        }
        if is_named(&self.pack) {
            return None;
        }
        let module = name.rsplit('.').nth(1).unwrap_or(name);
        if module.contains("norm") || module.starts_with("ln") {
            return Some(KeptFor::Norm);
        }
        if is_any_in(name, EMBEDDING_WORDS) {
            return Some(KeptFor::Embedding);
        }
        is_at_an_end(name).then_some(KeptFor::Ends)
    }
}

fn is_any_in(name: &str, words: &[&str]) -> bool {
    words.iter().any(|word| name.contains(word))
}

/// Whether the weight is of a layer at the top of the network, through which everything enters or leaves.
fn is_at_an_end(name: &str) -> bool {
    let prefix = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix));
    let path = prefix.unwrap_or(name);
    END_LAYERS.iter().any(|layer| {
        let rest = path.strip_prefix(layer);
        rest.is_some_and(|rest| rest.starts_with('.'))
    })
}

/// Whether `name` matches `pattern`, in which `*` stands for any characters, also none. What stands between two stars is taken
/// where it first occurs, which leaves most to what follows.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    let inner = name.strip_prefix(start);
    let Some(inner) = inner.and_then(|inner| inner.strip_suffix(end)) else {
        return false;
    };
    let mut pieces = middle.split('*');
    let left = pieces.try_fold(inner, |left, piece| Some(left.split_once(piece)?.1));
    left.is_some()
}

const EMBEDDING_WORDS: &[&str] = &["embed", "pos_emb", "wte", "wpe"];
/// What stands before a denoiser's own names in checkpoints of whole pipelines.
const PREFIXES: &[&str] = &["model.diffusion_model.", "diffusion_model.", "transformer."];
/// Layers at both ends, in the spellings of the model families read here.
const END_LAYERS: &[&str] = &[
    "img_in",
    "txt_in",
    "time_in",
    "vector_in",
    "guidance_in",
    "final_layer",
    "norm_out",
    "proj_out",
    "conv_in",
    "conv_out",
    "conv_norm_out",
    "input_blocks.0",
    "out",
    "output",
    "lm_head",
    "head",
];

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_star_is_any_characters() {
        for (pattern, name, expected) in [
            ("fc.weight", "fc.weight", true),
            ("fc", "fc.weight", false),
            ("*", "", true),
            ("fc*", "fc.weight", true),
            ("*weight", "fc.weight", true),
            ("*weight", "fc.weights", false),
            ("ab*b", "ab", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("a*b*b", "ab", false),
            ("a**b", "ab", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
        assert!(!matches(&("*a".repeat(1000) + "*b"), &"a".repeat(5000)));
    }
}
