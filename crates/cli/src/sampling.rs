//! One scene, sampled once for each LoRA: the same prompts, noise and schedule each time.

use std::time::Instant;

use burn::tensor::Device;
use indicatif::ProgressBar;
use overglaze_models::{FluxTransformer, PositionIds, SampleOptions, Sigmas, pixels, sample};

use crate::{
    CliError, Console, Latents, args::SceneArgs, demo, loras, model_source::LoadedModel,
    prompts::Prompts, seeded_noise, tensor_file::read_noise,
};

/// What is sampled with every LoRA.
#[derive(Clone, Debug)]
pub struct Scene {
    /// The prompts.
    pub prompts: Prompts,
    /// Starting noise `[prompts, tokens, channels]`.
    pub noise: Latents,
    /// Schedule, guidance and positions.
    pub options: SampleOptions,
    /// Tokens of the images, `[rows, columns]`.
    pub grid: [usize; 2],
    device: Device,
}

/// A result and the time it took.
#[derive(Clone, Debug)]
pub struct Sampled {
    /// Image tokens.
    pub latents: Latents,
    /// Wall-clock time of the sampling divided by the number of images.
    pub seconds_per_image: f64,
}

impl Scene {
    /// The scene that the flags describe.
    ///
    /// # Errors
    /// What is wrong with a flag or a file.
    pub fn new(args: &SceneArgs, model: &LoadedModel, console: &Console) -> Result<Self, CliError> {
        check_settings(args, model)?;
        let grid = grid(args, model);
        let config = model.flux.transformer.config();
        let tokens = grid[0] * grid[1];
        let mu = shift(args, model, tokens)?;
        let prompts = Prompts::of(args, model)?;
        let shape = [prompts.labels.len(), tokens, config.in_channels];
        let noise = match &args.noise {
            Some(path) => read_noise(path, shape)?,
            None => Latents::new(
                seeded_noise(args.seed, shape[0], shape[1] * shape[2]),
                shape,
            ),
        };
        let is_distilled = config.guidance_embeds;
        let has_guidance = prompts.conditioning.guidance().is_some();
        if has_guidance && !is_distilled {
            console.note(&format!(
                "the conditioning file's guidance is not used: {} has no guidance embedding",
                model.label
            ));
        }
        let options = SampleOptions {
            sigmas: Sigmas::new(num_steps(args, model).into(), mu)?,
            guidance: args
                .guidance
                .or((is_distilled && !has_guidance).then_some(GUIDANCE)),
            img_ids: PositionIds::image(grid[0], grid[1])?,
        };
        Ok(Self {
            prompts,
            noise,
            options,
            grid,
            device: model.device.clone(),
        })
    }

    /// Number of images.
    #[must_use]
    pub fn num_images(&self) -> usize {
        self.noise.shape()[0]
    }

    /// Steps that [`sample`](Self::sample) takes in all, over every batch of prompts.
    #[must_use]
    pub fn num_steps(&self) -> u64 {
        let batches = self.num_images().div_ceil(self.batch_len());
        (batches * self.options.sigmas.num_steps()) as u64
    }

    /// Samples every prompt with whatever is mounted on `model`, moving `bar` on by a position a step.
    ///
    /// # Errors
    /// [`CliError::Model`] when a layer fails.
    pub fn sample(&self, model: &FluxTransformer, bar: &ProgressBar) -> Result<Sampled, CliError> {
        let start = Instant::now();
        let mut values = Vec::with_capacity(self.noise.values().len());
        for first in (0..self.num_images()).step_by(self.batch_len()) {
            let rows = first..(first + self.batch_len()).min(self.num_images());
            let noise = self.noise.rows(rows.clone(), &self.device);
            let conditioning = self.prompts.conditioning.rows(rows)?;
            let mut advance = |step: usize, _| bar.inc(u64::from(step > 0));
            let tokens = sample(model, noise, &conditioning, &self.options, &mut advance)?;
            values.extend_from_slice(Latents::from_tensor(tokens)?.values());
        }
        let seconds = start.elapsed().as_secs_f64();
        Ok(Sampled {
            latents: Latents::new(values, self.noise.shape()),
            seconds_per_image: seconds / self.num_images() as f64,
        })
    }

    /// Prompts that run together: as many as keep the activations of a pass small.
    fn batch_len(&self) -> usize {
        let [_, text_tokens, _] = self.prompts.conditioning.encoder_hidden_states().dims();
        let tokens = self.grid[0] * self.grid[1] + text_tokens;
        (MAX_BATCH_TOKENS / tokens).max(1)
    }
}

/// Refuses flags that would be ignored.
fn check_settings(args: &SceneArgs, model: &LoadedModel) -> Result<(), CliError> {
    let refuse = |flag, why| {
        Err(CliError::SettingUnused {
            flag,
            to: model.label.clone(),
            why,
        })
    };
    if model.is_demo() && args.size.is_some() {
        return refuse(
            "--size",
            "its images are always 28 x 28 pixels, so leave it out",
        );
    }
    if args.guidance.is_some() && !model.flux.transformer.config().guidance_embeds {
        return refuse(
            "--guidance",
            "the model has no guidance embedding, so leave it out",
        );
    }
    Ok(())
}

/// Tokens of an image, `[rows, columns]`: FLUX's are 16 x 16 pixels.
fn grid(args: &SceneArgs, model: &LoadedModel) -> [usize; 2] {
    if model.is_demo() {
        return [pixels::GRID; 2];
    }
    let [width, height] = args.size.unwrap_or(SIZE);
    [height / TOKEN_PIXELS, width / TOKEN_PIXELS]
}

/// The shift for images of `tokens` tokens; a size it does not serve is refused with the largest it does.
fn shift(args: &SceneArgs, model: &LoadedModel, tokens: usize) -> Result<Option<f64>, CliError> {
    let is_distilled = model.flux.transformer.config().guidance_embeds;
    let resolve = |tokens| {
        args.shift
            .resolve(model.scheduler.as_ref(), is_distilled, tokens)
    };
    let error = match resolve(tokens) {
        Ok(mu) => return Ok(mu),
        Err(error) => error,
    };
    let squares = (1..=MAX_SIDE / TOKEN_PIXELS).rev();
    let mut served = squares.filter(|side| side * side < tokens && resolve(side * side).is_ok());
    match served.next() {
        None => Err(error.into()),
        Some(side) => {
            let [width, height] = args.size.unwrap_or(SIZE);
            let largest = side * TOKEN_PIXELS;
            Err(CliError::SizeTooLarge {
                width,
                height,
                largest,
            })
        }
    }
}

/// Where the noise is from, in words and as an entry of a file's metadata.
pub(crate) fn noise_origin(args: &SceneArgs) -> (&'static str, String) {
    match &args.noise {
        Some(path) => ("noise", loras::name(path)),
        None => ("seed", args.seed.to_string()),
    }
}

/// Steps as given, or what the kind of model is made for.
pub(crate) fn num_steps(args: &SceneArgs, model: &LoadedModel) -> u16 {
    let is_distilled = model.flux.transformer.config().guidance_embeds;
    let usual = if model.is_demo() || is_distilled {
        demo::NUM_STEPS
    } else {
        SCHNELL_STEPS
    };
    args.steps.unwrap_or(usual)
}

/// Pixels of an image, `[width, height]`, where none are asked for.
const SIZE: [usize; 2] = [1024, 1024];

/// Pixels along an edge of an image at most: the positions of a model serve 2^20 tokens.
pub(crate) const MAX_SIDE: usize = 16_384;

/// Pixels along an edge of a token: 8 in the VAE times 2 in the packing.
const TOKEN_PIXELS: usize = 16;

/// diffusers' default for guidance-distilled models.
const GUIDANCE: f32 = 3.5;

/// Steps FLUX.1-schnell is distilled for.
const SCHNELL_STEPS: u16 = 4;

/// FLUX.1 at 1024 x 1024 with 512 text tokens has 4,608; the widest activation of one such image is 1 GB.
const MAX_BATCH_TOKENS: usize = 8192;
