//! The scheduler document of a diffusers pipeline, as far as it shifts the noise levels.
//!
//! Dynamic: `μ = base_shift + (tokens − base)·(max_shift − base_shift)/(max − base)`.
//! Static: `σ′ = shift·σ / (1 + (shift − 1)·σ)`, which is μ = ln(shift).

use serde::Deserialize;

use crate::{ModelError, schedule::checked_mu};

/// diffusers' `scheduler_config.json`; absent fields have diffusers' defaults.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct SchedulerConfig {
    /// Whether the shift depends on the number of tokens.
    pub use_dynamic_shifting: bool,
    /// The static shift.
    pub shift: f64,
    /// μ at `base_image_seq_len` tokens.
    pub base_shift: Option<f64>,
    /// μ at `max_image_seq_len` tokens.
    pub max_shift: Option<f64>,
    /// Tokens at `base_shift`.
    pub base_image_seq_len: Option<u32>,
    /// Tokens at `max_shift`.
    pub max_image_seq_len: Option<u32>,
    /// How μ enters: `exponential` (e^μ) or `linear` (μ itself).
    pub time_shift_type: String,
    /// Stretches the schedule to end elsewhere; not supported.
    pub shift_terminal: Option<f64>,
    /// Another spacing of the levels; not supported.
    pub use_karras_sigmas: Option<bool>,
    /// Another spacing of the levels; not supported.
    pub use_exponential_sigmas: Option<bool>,
    /// Another spacing of the levels; not supported.
    pub use_beta_sigmas: Option<bool>,
    /// Levels from 0 to 1; not supported.
    pub invert_sigmas: Option<bool>,
}

impl Default for SchedulerConfig {
    fn default() -> Self {
        Self {
            use_dynamic_shifting: false,
            shift: 1.0,
            base_shift: None,
            max_shift: None,
            base_image_seq_len: None,
            max_image_seq_len: None,
            time_shift_type: EXPONENTIAL.to_owned(),
            shift_terminal: None,
            use_karras_sigmas: None,
            use_exponential_sigmas: None,
            use_beta_sigmas: None,
            invert_sigmas: None,
        }
    }
}

impl SchedulerConfig {
    /// The configuration of FLUX.1-dev.
    #[must_use]
    pub fn flux_dev() -> Self {
        Self {
            use_dynamic_shifting: true,
            ..Self::default()
        }
    }

    /// Reads the document.
    ///
    /// # Errors
    /// [`ModelError::Json`] when it is not JSON of this form.
    pub fn from_json(json: &[u8]) -> Result<Self, ModelError> {
        serde_json::from_slice(json).map_err(|source| ModelError::Json {
            document: "scheduler_config.json".to_owned(),
            source,
        })
    }

    /// The μ for an image of `num_tokens` tokens; `None` when nothing is shifted.
    ///
    /// # Errors
    /// [`ModelError::Scheduler`] for settings that are not supported or make no sense.
    pub fn mu(&self, num_tokens: usize) -> Result<Option<f64>, ModelError> {
        self.check()?;
        if self.use_dynamic_shifting {
            let mu = self.dynamic_mu(num_tokens)?;
            return self.entering(mu).map(Some);
        }
        let is_shifted = (self.shift - 1.0).abs() > f64::EPSILON;
        is_shifted
            .then(|| logarithm("shift", self.shift))
            .transpose()
    }

    fn dynamic_mu(&self, num_tokens: usize) -> Result<f64, ModelError> {
        let base_tokens = f64::from(self.base_image_seq_len.unwrap_or(256));
        let max_tokens = f64::from(self.max_image_seq_len.unwrap_or(4096));
        if max_tokens <= base_tokens {
            let expected = "more than base_image_seq_len";
            return Err(unsupported("max_image_seq_len", &max_tokens, expected));
        }
        let (base, max) = (
            self.base_shift.unwrap_or(0.5),
            self.max_shift.unwrap_or(1.15),
        );
        let slope = (max - base) / (max_tokens - base_tokens);
        // More tokens than a u32 counts have no meaningful shift; `checked_mu` refuses the result.
        let tokens = u32::try_from(num_tokens).map_or(f64::INFINITY, f64::from);
        checked_mu(base + (tokens - base_tokens) * slope)
    }

    /// The exponent that a dynamic μ stands for.
    fn entering(&self, mu: f64) -> Result<f64, ModelError> {
        match self.time_shift_type.as_str() {
            EXPONENTIAL => Ok(mu),
            LINEAR => logarithm("the linear shift", mu),
            other => Err(unsupported(
                "time_shift_type",
                &other,
                "`exponential` or `linear`",
            )),
        }
    }

    fn check(&self) -> Result<(), ModelError> {
        let switches = [
            ("use_karras_sigmas", self.use_karras_sigmas),
            ("use_exponential_sigmas", self.use_exponential_sigmas),
            ("use_beta_sigmas", self.use_beta_sigmas),
            ("invert_sigmas", self.invert_sigmas),
        ];
        if let Some((field, _)) = switches.into_iter().find(|(_, on)| *on == Some(true)) {
            return Err(unsupported(field, &true, "false"));
        }
        match self.shift_terminal {
            Some(terminal) => Err(unsupported("shift_terminal", &terminal, "null")),
            None => Ok(()),
        }
    }
}

fn logarithm(field: &'static str, shift: f64) -> Result<f64, ModelError> {
    if shift > 0.0 {
        return checked_mu(shift.ln());
    }
    Err(unsupported(field, &shift, "a number above 0"))
}

fn unsupported(field: &'static str, found: &dyn ToString, expected: &'static str) -> ModelError {
    ModelError::Scheduler {
        field,
        found: found.to_string(),
        expected,
    }
}

const EXPONENTIAL: &str = "exponential";

const LINEAR: &str = "linear";
