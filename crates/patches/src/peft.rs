//! PEFT's adapter configuration, as far as it changes numbers.
//!
//! It stands in `adapter_config.json`, or in a safetensors file's metadata under
//! `lora_adapter_metadata`, as JSON whose keys start with the component's name (`transformer.r`).
//! Files with such a configuration carry no alpha of their own: scale = `lora_alpha / rank`, or
//! `lora_alpha / sqrt(rank)` with `use_rslora` (Kalajdzievski 2023).
//!
//! `r` and `rank_pattern` say what ranks the factors were made with; the factors in the file have them, and where
//! the two disagree, the file's own rank rules. Only an adapter whose initialisation took a part of the base is told
//! by it: converted to the original base, its factors have twice the rank.

mod layer;
mod raw;

use std::path::Path;

use regex_lite::{Regex, RegexBuilder};
use serde_json::Value;

use crate::{Component, PatchError, RefusedGroup};
pub use layer::{LayerConfig, OftConfig};
use raw::{Entries, Names, RawConfig};

/// A PEFT adapter configuration.
#[derive(Clone, Debug)]
pub struct AdapterConfig {
    /// By the component's name; empty in an `adapter_config.json`.
    components: Vec<(&'static str, ComponentConfig)>,
}

/// What the configuration says of the layers of one component.
#[derive(Clone, Debug)]
struct ComponentConfig {
    /// What it says of layers that no pattern is for.
    layer: LayerConfig,
    alpha_pattern: Vec<(Pattern, f64)>,
    rank_pattern: Vec<(Pattern, usize)>,
    feedforward: Option<Feedforward>,
    modules_to_save: Vec<String>,
}

/// A name of layers, as PEFT matches them: the whole path, or its end after a dot.
#[derive(Clone, Debug)]
struct Pattern {
    key: String,
    regex: Regex,
}

/// A layer's path as a target has it, and with each name that a target leaves out of it: PEFT matches patterns
/// against the path inside the model that was wrapped, which may be the whole pipeline.
struct Spellings([String; 1 + WRAPPED.len()]);

impl Spellings {
    fn of(path: &str) -> Self {
        let [transformer, unet, diffusion_model] = WRAPPED.map(|name| format!("{name}.{path}"));
        Self([path.into(), transformer, unet, diffusion_model])
    }

    fn any(&self, matches: impl Fn(&str) -> bool) -> bool {
        self.0.iter().any(|path| matches(path))
    }
}

#[derive(Clone, Debug)]
enum Feedforward {
    Whole(Regex),
    Ends(Vec<String>),
}

impl AdapterConfig {
    /// Bytes of the longest configuration that is read; real ones have a few thousand.
    pub const MAX_BYTES: usize = 1 << 20;

    /// Reads the text of an `adapter_config.json`; `path` names its file in messages.
    ///
    /// # Errors
    /// [`PatchError::ConfigTooLong`], [`PatchError::ConfigJson`], [`PatchError::ConfigPattern`], or
    /// [`PatchError::UnsupportedConfig`] for what no patch of the layers can express.
    pub fn from_json(path: &Path, text: impl AsRef<[u8]>) -> Result<Self, PatchError> {
        let text = text.as_ref();
        if text.len() > Self::MAX_BYTES {
            return Err(PatchError::ConfigTooLong {
                path: path.into(),
                max_bytes: Self::MAX_BYTES,
            });
        }
        let components = raw::components(text).map_err(|source| PatchError::ConfigJson {
            path: path.into(),
            source,
        })?;
        let components = components
            .into_iter()
            .map(|(name, raw)| Ok((name, ComponentConfig::from_raw(path, raw)?)));
        Ok(Self {
            components: components.collect::<Result<_, _>>()?,
        })
    }

    /// Reads the metadata of the safetensors file `path`; `None` when it holds no configuration.
    ///
    /// # Errors
    /// As [`from_json`](Self::from_json).
    pub fn from_metadata<'a>(
        path: &Path,
        metadata: impl IntoIterator<Item = (&'a String, &'a String)>,
    ) -> Result<Option<Self>, PatchError> {
        let mut metadata = metadata.into_iter();
        let text = metadata.find_map(|(key, text)| (key == METADATA_KEY).then_some(text));
        text.map(|text| Self::from_json(path, text)).transpose()
    }

    /// Kind of adapter the file was saved as, e.g. `LORA`.
    #[must_use]
    pub fn peft_type(&self) -> Option<&str> {
        self.main()?.layer.peft_type.as_deref()
    }

    /// Whether the base of the adapter keeps its linear weights as `[d_input, d_output]`.
    #[must_use]
    pub fn is_base_transposed(&self) -> bool {
        self.main().is_some_and(|main| main.layer.fan_in_fan_out)
    }

    /// What the configuration says of the layer `target` (dotted path): of its component's, where its name starts with
    /// a text encoder's, else of the main model's.
    #[must_use]
    pub fn layer(&self, target: &str) -> LayerConfig {
        self.of(target)
            .map(|(component, path)| component.layer(path))
            .unwrap_or_default()
    }

    /// What is to be said of the configuration beside a file whose layers are `targets`.
    #[must_use]
    pub fn notes(&self, targets: &[&str]) -> Vec<String> {
        let mut notes = Vec::new();
        for (name, component) in &self.components {
            let own = targets.iter().filter_map(|target| self.of(target));
            let own = own.filter(|(found, _)| std::ptr::eq(*found, component));
            let paths: Vec<_> = own.map(|(_, path)| path).collect();
            component.note_unmatched(name, &paths, &mut notes);
        }
        notes
    }

    /// Takes the keys of whole modules that `modules_to_save` names out of `keys`, one group a module.
    pub(crate) fn take_saved_modules(&self, keys: &mut Vec<String>) -> Vec<RefusedGroup> {
        let mut groups: Vec<RefusedGroup> = Vec::new();
        keys.retain(|key| {
            let Some(module) = self.saved_module(key) else {
                return true;
            };
            match groups.iter_mut().find(|group| group.target == module) {
                Some(group) => group.keys.push(key.clone()),
                None => groups.push(RefusedGroup {
                    target: module.into(),
                    component: Component::default(),
                    keys: vec![key.clone()],
                    error: PatchError::SavedModule {
                        target: module.into(),
                    },
                }),
            }
            false
        });
        groups
    }

    /// The path of the saved module that `key` is a parameter of.
    fn saved_module<'a>(&self, key: &'a str) -> Option<&'a str> {
        let (path, _) = key.rsplit_once('.')?;
        let is_saved = |name: &String| !name.is_empty() && path.ends_with(name.as_str());
        let mut names = self
            .components
            .iter()
            .flat_map(|(_, component)| &component.modules_to_save);
        names.any(is_saved).then_some(path)
    }

    /// The component that is not a text encoder's.
    fn main(&self) -> Option<&ComponentConfig> {
        MAIN.into_iter().find_map(|name| self.component(name))
    }

    fn component(&self, name: &str) -> Option<&ComponentConfig> {
        let mut components = self.components.iter();
        components.find_map(|(known, component)| (*known == name).then_some(component))
    }

    /// The component that `target` is a layer of, and the layer's path in it.
    fn of<'a>(&self, target: &'a str) -> Option<(&ComponentConfig, &'a str)> {
        let named = target
            .split_once('.')
            .and_then(|(name, path)| Some((self.component(name)?, path)));
        named.or_else(|| self.main().map(|main| (main, target)))
    }
}

impl ComponentConfig {
    fn from_raw(path: &Path, raw: RawConfig) -> Result<Self, PatchError> {
        raw.check(path)?;
        let feedforward = match &raw.feedforward_modules {
            None => None,
            Some(Names::Ends(ends)) => Some(Feedforward::Ends(ends.clone())),
            Some(Names::Pattern(pattern)) => {
                let whole = format!("^(?:{pattern})$");
                let field = "feedforward_modules";
                Some(Feedforward::Whole(compiled(path, field, pattern, &whole)?))
            }
        };
        Ok(Self {
            layer: LayerConfig {
                changed_base: changed_base(raw.init_lora_weights.as_ref()),
                oft: oft(&raw),
                peft_type: raw.peft_type,
                alpha: raw.lora_alpha,
                rank: raw.r,
                use_rslora: raw.use_rslora.unwrap_or(false),
                use_dora: raw.use_dora.unwrap_or(false),
                lora_bias: raw.lora_bias.unwrap_or(false),
                fan_in_fan_out: raw.fan_in_fan_out.unwrap_or(false),
                is_feedforward: None,
            },
            alpha_pattern: patterns(path, "alpha_pattern", raw.alpha_pattern)?,
            rank_pattern: patterns(path, "rank_pattern", raw.rank_pattern)?,
            feedforward,
            modules_to_save: raw.modules_to_save.unwrap_or_default(),
        })
    }

    fn layer(&self, path: &str) -> LayerConfig {
        let (feedforward, spellings) = (self.feedforward.as_ref(), Spellings::of(path));
        LayerConfig {
            alpha: first_match(&self.alpha_pattern, &spellings).or(self.layer.alpha),
            rank: first_match(&self.rank_pattern, &spellings).or(self.layer.rank),
            is_feedforward: feedforward.map(|feedforward| feedforward.names(&spellings)),
            ..self.layer.clone()
        }
    }

    /// Adds the patterns that none of `paths` matches.
    fn note_unmatched(&self, name: &str, paths: &[&str], notes: &mut Vec<String>) {
        let alphas = self
            .alpha_pattern
            .iter()
            .map(|(pattern, _)| ("alpha_pattern", pattern));
        let ranks = self
            .rank_pattern
            .iter()
            .map(|(pattern, _)| ("rank_pattern", pattern));
        let dot = if name.is_empty() { "" } else { "." };
        let layers: Vec<_> = paths.iter().map(|path| Spellings::of(path)).collect();
        for (field, pattern) in alphas.chain(ranks) {
            if !layers.iter().any(|layer| pattern.is_for(layer)) {
                notes.push(format!(
                    "`{}` in {name}{dot}{field} of the adapter configuration matches no layer of the file",
                    pattern.key
                ));
            }
        }
    }
}

impl Pattern {
    fn is_for(&self, layer: &Spellings) -> bool {
        layer.any(|path| self.regex.is_match(path))
    }
}

impl Feedforward {
    fn names(&self, layer: &Spellings) -> bool {
        layer.any(|path| match self {
            Self::Whole(regex) => regex.is_match(path),
            Self::Ends(ends) => ends.iter().any(|end| path.ends_with(end.as_str())),
        })
    }
}

fn first_match<T: Copy>(patterns: &[(Pattern, T)], layer: &Spellings) -> Option<T> {
    let mut patterns = patterns.iter();
    patterns.find_map(|(pattern, value)| pattern.is_for(layer).then_some(*value))
}

fn patterns<T>(
    path: &Path,
    field: &'static str,
    entries: Option<Entries<T>>,
) -> Result<Vec<(Pattern, T)>, PatchError> {
    let compile = |(key, value): (String, T)| {
        // PEFT matches a module's path against the key as a whole name at its end.
        let regex = compiled(path, field, &key, &format!("^(?:.*\\.)?(?:{key})$"))?;
        Ok((Pattern { key, regex }, value))
    };
    entries
        .unwrap_or_default()
        .0
        .into_iter()
        .map(compile)
        .collect()
}

fn compiled(
    path: &Path,
    field: &'static str,
    pattern: &str,
    text: &str,
) -> Result<Regex, PatchError> {
    RegexBuilder::new(text)
        .size_limit(MAX_PATTERN_BYTES)
        .build()
        .map_err(|source| PatchError::ConfigPattern {
            path: path.into(),
            field,
            pattern: pattern.into(),
            source,
        })
}

fn changed_base(init: Option<&Value>) -> Option<String> {
    let init = init?.as_str()?;
    let changes_base = CHANGES_BASE.iter().any(|name| init.starts_with(name));
    changes_base.then(|| init.into())
}

fn oft(raw: &RawConfig) -> OftConfig {
    let default = OftConfig::default();
    OftConfig {
        is_series: raw.use_cayley_neumann.unwrap_or(default.is_series),
        num_terms: raw.num_cayley_neumann_terms.unwrap_or(default.num_terms),
        // PEFT names its version in a configuration since 0.18.
        is_last_term_single: raw.peft_version.as_deref().is_some_and(is_from_0_18),
        is_constrained: raw.coft.unwrap_or(default.is_constrained),
        epsilon: raw.eps.unwrap_or(default.epsilon),
    }
}

fn is_from_0_18(version: &str) -> bool {
    let mut numbers = version
        .split('.')
        .map_while(|number| number.parse::<u64>().ok());
    let (major, minor) = (numbers.next(), numbers.next());
    major.is_some() && (major, minor) >= (Some(0), Some(18))
}

const METADATA_KEY: &str = "lora_adapter_metadata";
/// Names of the components that are the main model.
const MAIN: [&str; 3] = ["", "transformer", "unet"];
/// Names of the main model that are left out of its layers' targets.
const WRAPPED: [&str; 3] = ["transformer", "unet", "diffusion_model"];
/// Initialisations that move a part of the base weight into the factors.
const CHANGES_BASE: [&str; 5] = ["pissa", "olora", "corda", "loftq", "lora_ga"];
/// Memory of one compiled pattern, so that a short text cannot ask for gigabytes.
const MAX_PATTERN_BYTES: usize = 1 << 16;
