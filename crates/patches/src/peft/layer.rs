//! What a configuration says of one layer, and the scale of factors that follows.

/// What a configuration says of one layer.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct LayerConfig {
    /// `peft_type`: the kind of adapter the file was saved as, e.g. `LORA`.
    pub peft_type: Option<String>,
    /// `lora_alpha`, or what `alpha_pattern` says of the layer.
    pub alpha: Option<f64>,
    /// `r`, or what `rank_pattern` says of the layer; the factors in the file may tell otherwise, and rule.
    pub rank: Option<usize>,
    /// The scale is `alpha / sqrt(rank)` instead of `alpha / rank`.
    pub use_rslora: bool,
    /// The layer was trained with a magnitude.
    pub use_dora: bool,
    /// The layer was trained with a bias on its second factor.
    pub lora_bias: bool,
    /// The base keeps the weight as `[d_input, d_output]`.
    pub fan_in_fan_out: bool,
    /// Whether `feedforward_modules` names the layer; `None` without that field.
    pub is_feedforward: Option<bool>,
    /// How rotations are made.
    pub oft: OftConfig,
    /// The initialisation, where it took a part of the base weight (`pissa`).
    pub changed_base: Option<String>,
}

/// How the rotations of orthogonal finetuning are made.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct OftConfig {
    /// `use_cayley_neumann`: by the cut series instead of the exact Cayley transform.
    pub is_series: bool,
    /// `num_cayley_neumann_terms`, the identity among them.
    pub num_terms: usize,
    /// The last term has the factor 1 and not 2: in PEFT from 0.18 on, and in files without a configuration, which
    /// are `OneTrainer`'s.
    pub is_last_term_single: bool,
    /// `coft`: the blocks are limited in norm.
    pub is_constrained: bool,
    /// `eps`: that limit, before the number of blocks counts.
    pub epsilon: f64,
}

impl Default for OftConfig {
    fn default() -> Self {
        Self {
            is_series: true,
            num_terms: 5,
            is_last_term_single: true,
            is_constrained: false,
            epsilon: 6e-5,
        }
    }
}

impl LayerConfig {
    /// The alpha that makes `alpha / rank` the scale of factors of `rank`.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "scales are f32 everywhere else"
    )]
    pub fn effective_alpha(&self, rank: usize) -> Option<f32> {
        // Alpha was not doubled with the rank: the scale is still that of the trained factors.
        let trained = if self.is_converted(rank) {
            rank / 2
        } else {
            rank
        };
        let root = (trained as f64).sqrt();
        let divisor = if self.use_rslora {
            root
        } else {
            trained as f64
        };
        self.alpha
            .map(|alpha| (alpha / divisor * rank as f64) as f32)
    }

    /// Whether the adapter started from a part of the base, and its factors of `rank` were made to fit the original.
    fn is_converted(&self, rank: usize) -> bool {
        let doubled = self.rank.and_then(|rank| rank.checked_mul(2));
        self.changed_base.is_some() && doubled == Some(rank) && rank > 0
    }

    /// Why factors of `rank`, where the kind has one, fit another base than the original; `None` when they do not.
    pub(crate) fn misfit(&self, rank: Option<usize>) -> Option<String> {
        let init = self.changed_base.as_ref()?;
        if rank.is_some_and(|rank| self.is_converted(rank)) {
            return None;
        }
        let rank = rank.map_or_else(String::new, |rank| format!(" of rank {rank}"));
        Some(format!(
            "the configuration has init_lora_weights = \"{init}\", which changed the base in training, and the \
             factors{rank} fit that base; save the adapter with `path_initial_model_for_weight_conversion` to \
             convert it, which doubles its rank"
        ))
    }
}
