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
mod patterns;
mod raw;

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::{Component, PatchError, RefusedGroup};
pub use layer::{LayerConfig, OftConfig};
use patterns::{Ends, Patterns, Program, Spellings, check_work};
use raw::{Names, RawConfig};

/// A PEFT adapter configuration.
#[derive(Clone, Debug)]
pub struct AdapterConfig {
    /// The file that holds it.
    path: PathBuf,
    /// By the component's name; empty in an `adapter_config.json`.
    components: Vec<(&'static str, ComponentConfig)>,
}

/// What the configuration says of the layers of one component.
#[derive(Clone, Debug)]
struct ComponentConfig {
    /// What it says of layers that no pattern is for.
    layer: LayerConfig,
    alpha_pattern: Patterns<f64>,
    rank_pattern: Patterns<usize>,
    feedforward: Option<Feedforward>,
    modules_to_save: Ends,
}

#[derive(Clone, Debug)]
enum Feedforward {
    Whole(Program),
    Ends(Ends),
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
            path: path.into(),
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

    /// Refuses a configuration whose patterns would take longer for a file of the layers `targets` than any real
    /// one's: what [`layer`](Self::layer) does for one layer, a file asks for every one.
    ///
    /// # Errors
    /// [`PatchError::UnsupportedConfig`].
    pub fn check_work(&self, targets: &[&str]) -> Result<(), PatchError> {
        let path_bytes = targets.iter().map(|target| target.len()).sum();
        let mut components = self.components.iter();
        components.try_for_each(|(_, component)| component.check_work(&self.path, path_bytes))
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
            if component.layer.fan_in_fan_out {
                notes.push(TRANSPOSED.into());
            }
        }
        notes
    }

    /// Takes the keys of whole modules that `modules_to_save` names out of `keys`, one group a module.
    pub(crate) fn take_saved_modules(&self, keys: &mut Vec<String>) -> Vec<RefusedGroup> {
        let mut groups: Vec<RefusedGroup> = Vec::new();
        let mut places = HashMap::new();
        keys.retain(|key| {
            let Some(module) = self.saved_module(key) else {
                return true;
            };
            let place = *places.entry(module.to_owned()).or_insert(groups.len());
            if place == groups.len() {
                groups.push(RefusedGroup {
                    target: module.into(),
                    component: Component::default(),
                    keys: Vec::new(),
                    error: PatchError::SavedModule {
                        target: module.into(),
                    },
                });
            }
            groups[place].keys.push(key.clone());
            false
        });
        groups
    }

    /// The path of the saved module that `key` is a parameter of.
    fn saved_module<'a>(&self, key: &'a str) -> Option<&'a str> {
        let (path, _) = key.rsplit_once('.')?;
        let mut components = self.components.iter();
        components
            .any(|(_, component)| component.modules_to_save.end(path))
            .then_some(path)
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
            Some(Names::Ends(ends)) => Some(Feedforward::Ends(Ends::new(ends.clone()))),
            Some(Names::Pattern(pattern)) => {
                let whole = format!("^(?:{pattern})$");
                let program = Program::new(path, FEEDFORWARD, pattern, &whole)?;
                Some(Feedforward::Whole(program))
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
            alpha_pattern: Patterns::new(
                path,
                "alpha_pattern",
                raw.alpha_pattern.unwrap_or_default().0,
            )?,
            rank_pattern: Patterns::new(
                path,
                "rank_pattern",
                raw.rank_pattern.unwrap_or_default().0,
            )?,
            feedforward,
            modules_to_save: Ends::new(saved_modules(raw.modules_to_save)),
        })
    }

    fn layer(&self, path: &str) -> LayerConfig {
        let (feedforward, spellings) = (self.feedforward.as_ref(), Spellings::of(path));
        LayerConfig {
            alpha: self.alpha_pattern.first(&spellings).or(self.layer.alpha),
            rank: self.rank_pattern.first(&spellings).or(self.layer.rank),
            is_feedforward: feedforward.map(|feedforward| feedforward.names(&spellings)),
            ..self.layer.clone()
        }
    }

    /// Adds the patterns that none of `paths` matches.
    fn note_unmatched(&self, name: &str, paths: &[&str], notes: &mut Vec<String>) {
        let dot = if name.is_empty() { "" } else { "." };
        let layers: Vec<_> = paths.iter().map(|path| Spellings::of(path)).collect();
        let alphas = self.alpha_pattern.unmatched(&layers);
        let ranks = self.rank_pattern.unmatched(&layers);
        let alphas = alphas.map(|key| ("alpha_pattern", key));
        for (field, key) in alphas.chain(ranks.map(|key| ("rank_pattern", key))) {
            notes.push(format!(
                "`{key}` in {name}{dot}{field} of the adapter configuration matches no layer of the file"
            ));
        }
    }

    /// As [`AdapterConfig::check_work`], for layers of this component.
    fn check_work(&self, path: &Path, path_bytes: usize) -> Result<(), PatchError> {
        self.alpha_pattern.check_work(path, path_bytes)?;
        self.rank_pattern.check_work(path, path_bytes)?;
        match &self.feedforward {
            Some(Feedforward::Whole(program)) => {
                check_work(path, FEEDFORWARD, std::iter::once(program), path_bytes)
            }
            _ => Ok(()),
        }
    }
}

impl Feedforward {
    fn names(&self, layer: &Spellings) -> bool {
        match self {
            Self::Whole(program) => program.is_for(layer),
            Self::Ends(ends) => ends.are_of(layer),
        }
    }
}

/// The names that PEFT saves whole; every path would end with an empty one.
fn saved_modules(names: Option<Vec<String>>) -> impl Iterator<Item = String> {
    let names = names.unwrap_or_default().into_iter();
    names.filter(|name| !name.is_empty())
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
/// Initialisations that move a part of the base weight into the factors.
const CHANGES_BASE: [&str; 5] = ["pissa", "olora", "corda", "loftq", "lora_ga"];
const TRANSPOSED: &str = "the adapter configuration says fan_in_fan_out: the adapter was trained over weights stored as \
                          [d_input, d_output], and `merge` refuses it";
const FEEDFORWARD: &str = "feedforward_modules";
