//! Which layers a PEFT configuration means by the names and patterns in its fields.
//!
//! PEFT matches a layer's path against `(.*\.)?key$`. Nearly all keys are plain names: those are looked up by their
//! shape, so that thousands of them cost no more than a few. A dot in one stands for any one byte, as it does for
//! PEFT; only keys with other characters of a regular expression are run as one.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::Path,
};

use regex_lite::{Regex, RegexBuilder};

use crate::PatchError;

/// A layer's path as a target has it, and with each name that a target leaves out of it: PEFT matches patterns
/// against the path inside the model that was wrapped, which may be the whole pipeline.
pub(super) struct Spellings([String; 1 + WRAPPED.len()]);

impl Spellings {
    pub(super) fn of(path: &str) -> Self {
        let [transformer, unet, diffusion_model] = WRAPPED.map(|name| format!("{name}.{path}"));
        Self([path.into(), transformer, unet, diffusion_model])
    }

    fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

/// What an object of patterns says of the layers they match.
#[derive(Clone, Debug)]
pub(super) struct Patterns<T> {
    field: &'static str,
    /// Key and value, in the file's order.
    entries: Vec<(String, T)>,
    /// Indices of the entries whose key is a plain name.
    names: Names,
    /// The other entries' indices, ascending.
    programs: Vec<(usize, Program)>,
}

impl<T: Copy> Patterns<T> {
    /// Reads `field` of the configuration in `path`.
    ///
    /// # Errors
    /// [`PatchError::ConfigPattern`].
    pub(super) fn new(
        path: &Path,
        field: &'static str,
        entries: Vec<(String, T)>,
    ) -> Result<Self, PatchError> {
        let (mut names, mut programs) = (Names::default(), Vec::new());
        for (index, (key, _)) in entries.iter().enumerate() {
            if is_plain(key) {
                names.insert(key, index);
            } else {
                let whole = format!("^(?:.*\\.)?(?:{key})$");
                programs.push((index, Program::new(path, field, key, &whole)?));
            }
        }
        Ok(Self {
            field,
            entries,
            names,
            programs,
        })
    }

    /// The value of the first entry in the file that is for `layer`.
    pub(super) fn first(&self, layer: &Spellings) -> Option<T> {
        let name = self.names.all(layer).min().unwrap_or(usize::MAX);
        let mut earlier = self.programs.iter().take_while(|(index, _)| *index < name);
        let program = earlier.find(|(_, program)| program.is_for(layer));
        let index = program.map_or(name, |(index, _)| *index);
        self.entries.get(index).map(|(_, value)| *value)
    }

    /// The keys that are for none of `layers`.
    pub(super) fn unmatched(&self, layers: &[Spellings]) -> impl Iterator<Item = &str> {
        let named = layers.iter().flat_map(|layer| self.names.all(layer));
        let is_met = |(_, program): &&(usize, Program)| layers.iter().any(|l| program.is_for(l));
        let met = self.programs.iter().filter(is_met).map(|(index, _)| *index);
        let matched: HashSet<usize> = named.chain(met).collect();
        let entries = self.entries.iter().enumerate();
        let unmatched = entries.filter(move |(index, _)| !matched.contains(index));
        unmatched.map(|(_, (key, _))| key.as_str())
    }

    /// Refuses more work than any real file asks for, with layers whose paths have `path_bytes` together.
    ///
    /// # Errors
    /// [`PatchError::UnsupportedConfig`].
    pub(super) fn check_work(&self, path: &Path, path_bytes: usize) -> Result<(), PatchError> {
        check_work(
            path,
            self.field,
            self.programs.iter().map(|(_, program)| program),
            path_bytes,
        )
    }
}

/// Plain names: by shape, their bytes, and the indices of those names.
#[derive(Clone, Debug, Default)]
struct Names(HashMap<Shape, HashMap<Vec<u8>, Vec<usize>>>);

/// The length of a name, and where it has dots.
type Shape = (usize, Vec<usize>);

impl Names {
    fn insert(&mut self, name: &str, index: usize) {
        let dots = name.bytes().enumerate().filter(|(_, byte)| *byte == b'.');
        let shape = (name.len(), dots.map(|(place, _)| place).collect());
        let names = self.0.entry(shape).or_default();
        names.entry(name.into()).or_default().push(index);
    }

    /// Indices of all the names of `layer`.
    fn all(&self, layer: &Spellings) -> impl Iterator<Item = usize> {
        layer.iter().flat_map(|path| self.of_path(path.as_bytes()))
    }

    fn of_path(&self, path: &[u8]) -> impl Iterator<Item = usize> {
        let found = self.0.iter().filter_map(|((length, dots), names)| {
            let start = path.len().checked_sub(*length)?;
            if start > 0 && path[start - 1] != b'.' {
                return None;
            }
            let mut end = path[start..].to_vec();
            dots.iter().for_each(|place| end[*place] = b'.');
            names.get(&end)
        });
        found.flatten().copied()
    }
}

/// A key that is a regular expression.
#[derive(Clone, Debug)]
pub(super) struct Program {
    regex: Regex,
    /// What it takes at most once compiled: so much is looked at for each byte of a path.
    program_bytes: usize,
}

impl Program {
    /// Compiles `text`, made of the `pattern` in `field` of the configuration in `path`.
    ///
    /// # Errors
    /// [`PatchError::ConfigPattern`].
    pub(super) fn new(
        path: &Path,
        field: &'static str,
        pattern: &str,
        text: &str,
    ) -> Result<Self, PatchError> {
        let build = |program_bytes| {
            let regex = RegexBuilder::new(text).size_limit(program_bytes).build()?;
            Ok(Self {
                regex,
                program_bytes,
            })
        };
        let smaller = [MAX_PROGRAM_BYTES / 16, MAX_PROGRAM_BYTES / 4];
        let smaller = smaller.into_iter().find_map(|limit| build(limit).ok());
        let program = smaller.map_or_else(|| build(MAX_PROGRAM_BYTES), Ok);
        program.map_err(|source| PatchError::ConfigPattern {
            path: path.into(),
            field,
            pattern: pattern.into(),
            source,
        })
    }

    pub(super) fn is_for(&self, layer: &Spellings) -> bool {
        layer.iter().any(|path| self.regex.is_match(path))
    }
}

/// Refuses `programs` that would take more work than any real file asks for.
///
/// # Errors
/// [`PatchError::UnsupportedConfig`].
pub(super) fn check_work<'a>(
    path: &Path,
    field: &'static str,
    programs: impl Iterator<Item = &'a Program> + Clone,
    path_bytes: usize,
) -> Result<(), PatchError> {
    let program_bytes: usize = programs.clone().map(|program| program.program_bytes).sum();
    if program_bytes.saturating_mul(path_bytes) <= MAX_WORK {
        return Ok(());
    }
    Err(PatchError::UnsupportedConfig {
        path: path.into(),
        field,
        found: format!(
            "{} regular expressions of up to {program_bytes} bytes for layers whose names have {path_bytes} bytes",
            programs.count()
        ),
        why: TOO_MUCH_WORK,
    })
}

/// Ends of paths, by length.
#[derive(Clone, Debug, Default)]
pub(super) struct Ends(BTreeMap<usize, HashSet<Vec<u8>>>);

impl Ends {
    pub(super) fn new(ends: impl IntoIterator<Item = String>) -> Self {
        let mut by_length = BTreeMap::<_, HashSet<_>>::new();
        for end in ends {
            by_length
                .entry(end.len())
                .or_default()
                .insert(end.into_bytes());
        }
        Self(by_length)
    }

    /// Whether `path` ends with one of them.
    pub(super) fn end(&self, path: &str) -> bool {
        let path = path.as_bytes();
        let mut fitting = self.0.range(..=path.len());
        fitting.any(|(length, ends)| ends.contains(&path[path.len() - length..]))
    }

    pub(super) fn are_of(&self, layer: &Spellings) -> bool {
        layer.iter().any(|path| self.end(path))
    }
}

/// Whether `key` has no character that means something else in a regular expression, but the dot.
fn is_plain(key: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    !key.is_empty() && key.bytes().all(is_plain)
}

/// Names of the main model that are left out of its layers' targets.
const WRAPPED: [&str; 3] = ["transformer", "unet", "diffusion_model"];
/// Memory of one compiled pattern, so that a short text cannot ask for gigabytes.
const MAX_PROGRAM_BYTES: usize = 1 << 16;
/// Bytes of programs times bytes of paths; twenty patterns for three thousand layers are a third of it.
const MAX_WORK: usize = 1 << 35;
const TOO_MUCH_WORK: &str = "their product may be 34359738368 at most; write plain names of layers, or one pattern for several";
