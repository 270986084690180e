//! The noise levels that a rectified flow is walked along, from 1 (noise) to 0 (image).
//!
//! Equal steps, shifted towards noise where an image has many tokens:
//! `σ′ = e^μ / (e^μ + 1/σ − 1)` with `μ = 0.5 + (tokens − 256)·0.65/3840` for FLUX.1.
//! Reference: Esser et al., "Scaling Rectified Flow Transformers", section 5.3.2; origin: diffusers
//! `FlowMatchEulerDiscreteScheduler`.

use std::str::FromStr;

use crate::{ModelError, SchedulerConfig, rounded};

/// Noise levels, each used as the time of one step that ends at the next.
#[derive(Clone, Debug, PartialEq)]
pub struct Sigmas(Vec<f32>);

impl Sigmas {
    /// `num_steps` equal steps from 1 to 0, shifted by `mu` where there is one.
    ///
    /// # Errors
    /// [`ModelError::Schedule`] when there are no steps or too many, or `mu` is not a sane number.
    pub fn new(num_steps: usize, mu: Option<f64>) -> Result<Self, ModelError> {
        let steps = u32::try_from(num_steps)
            .ok()
            .filter(|steps| (1..=MAX_STEPS).contains(steps));
        let Some(steps) = steps else {
            return Err(schedule("the number of steps", &num_steps, "1 to 10,000"));
        };
        let mu = mu.map(checked_mu).transpose()?;
        let level = |step| {
            let sigma = 1.0 - f64::from(step) / f64::from(steps);
            rounded(mu.map_or(sigma, |mu| shifted(sigma, mu)))
        };
        Ok(Self((0..=steps).map(level).collect()))
    }

    /// Given noise levels.
    ///
    /// # Errors
    /// [`ModelError::Schedule`] unless there are at least two, all in 0 to 1.
    pub fn from_values(values: Vec<f32>) -> Result<Self, ModelError> {
        if values.len() < 2 {
            return Err(schedule(
                "the number of noise levels",
                &values.len(),
                "at least 2",
            ));
        }
        if let Some(value) = values.iter().find(|value| !(0.0..=1.0).contains(*value)) {
            return Err(schedule("a noise level", value, "a number from 0 to 1"));
        }
        Ok(Self(values))
    }

    /// Number of steps.
    #[must_use]
    pub fn num_steps(&self) -> usize {
        self.0.len() - 1
    }

    /// The levels: one more than steps.
    #[must_use]
    pub fn as_slice(&self) -> &[f32] {
        &self.0
    }
}

/// How the noise levels are shifted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Shift {
    /// As the scheduler configuration beside the model says; without one, FLUX.1's for
    /// guidance-distilled models and none for others.
    #[default]
    Auto,
    /// Not at all.
    None,
    /// By this μ.
    Mu(f64),
}

impl Shift {
    /// The μ for an image of `num_tokens` tokens; `None` leaves the levels as they are.
    ///
    /// # Errors
    /// [`ModelError::Schedule`] when the given μ is not a sane number, [`ModelError::Scheduler`]
    /// when the configuration asks for another kind of schedule.
    pub fn resolve(
        self,
        scheduler: Option<&SchedulerConfig>,
        is_guidance_distilled: bool,
        num_tokens: usize,
    ) -> Result<Option<f64>, ModelError> {
        match (self, scheduler) {
            (Self::None, _) => Ok(None),
            (Self::Mu(mu), _) => checked_mu(mu).map(Some),
            (Self::Auto, Some(scheduler)) => scheduler.mu(num_tokens),
            (Self::Auto, None) if is_guidance_distilled => {
                SchedulerConfig::flux_dev().mu(num_tokens)
            }
            (Self::Auto, None) => Ok(None),
        }
    }
}

impl FromStr for Shift {
    type Err = ModelError;

    /// Reads `auto`, `none` or a number.
    fn from_str(text: &str) -> Result<Self, ModelError> {
        match text {
            "auto" => Ok(Self::Auto),
            "none" => Ok(Self::None),
            number => match number.parse::<f64>() {
                Ok(mu) => checked_mu(mu).map(Self::Mu),
                Err(_) => Err(schedule("the shift", &text, "`auto`, `none` or a number")),
            },
        }
    }
}

/// `e^μ / (e^μ + 1/σ − 1)`, written so that σ = 0 needs no division by it.
fn shifted(sigma: f64, mu: f64) -> f64 {
    let scaled = mu.exp() * sigma;
    scaled / (scaled + 1.0 - sigma)
}

pub(crate) fn checked_mu(mu: f64) -> Result<f64, ModelError> {
    if mu.is_finite() && mu.abs() <= MAX_MU {
        return Ok(mu);
    }
    Err(schedule("the shift", &mu, "a number from -20 to 20"))
}

fn schedule(what: &'static str, found: &dyn ToString, expected: &'static str) -> ModelError {
    ModelError::Schedule {
        what,
        found: found.to_string(),
        expected,
    }
}

/// A cap against slips of the keyboard.
const MAX_STEPS: u32 = 10_000;

/// Beyond this every level is 0 or 1 in f32.
const MAX_MU: f64 = 20.0;
