//! Which patches a file holds, and in which spelling.

use std::{collections::BTreeMap, path::Path};

use overglaze_core::adapter_file;
use overglaze_patches::{PatchSet, dialects::dialects};
use overglaze_stream::WeightSource;
use serde::Serialize;

use crate::{
    commands::refusals::{Cause, causes},
    device,
    exit::sentence,
    shown,
};

/// An adapter.
#[derive(Default, Serialize)]
pub(super) struct Adapter {
    /// Layers by the spelling of their keys.
    dialects: BTreeMap<&'static str, usize>,
    /// Layers by the kind of their patch.
    kinds: BTreeMap<String, usize>,
    /// Layers of which no patch can be built, and why.
    refused: BTreeMap<String, String>,
    /// Of the refused layers, those that are refused for the same cause.
    #[serde(skip)]
    alike: Vec<(Cause, Vec<String>)>,
    /// Keys that repeat others of the file, bit for bit.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    duplicates: Vec<String>,
    /// Keys in no known spelling.
    unread: Vec<String>,
    /// What is to be said of the adapter as a whole; left out where nothing is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
    /// Why the file as a whole cannot be read as an adapter.
    #[serde(skip_serializing_if = "Option::is_none")]
    unreadable: Option<String>,
}

impl Adapter {
    /// The adapter at `path`, where any key of it is spelled as an adapter's.
    pub(super) fn of(path: &Path, source: &dyn WeightSource) -> Option<Self> {
        let dialects = dialects();
        let is_adapter_key =
            |key: &String| dialects.iter().any(|known| (known.parse)(key).is_some());
        if !source.entries().keys().any(is_adapter_key) {
            return None;
        }
        let device = device::host()?;
        Some(match adapter_file::load(path, &device) {
            Ok(set) => Self::from(set),
            Err(error) => Self {
                unreadable: Some(sentence(&error)),
                ..Self::default()
            },
        })
    }

    pub(super) fn text(&self) -> String {
        let mut text = match &self.unreadable {
            Some(why) => format!("  an adapter that cannot be read: {why}"),
            None if self.kinds.is_empty() => {
                "  an adapter of a kind that is not compiled in".into()
            }
            None => format!(
                "  adapter: {}; spelled as {}",
                counts(&self.kinds),
                counts(&self.dialects)
            ),
        };
        for note in &self.notes {
            text.push_str(&format!("\n  note: {}", shown::message(note)));
        }
        for layers in self.alike.iter().map(|(_, layers)| layers) {
            let reason = &self.refused[&layers[0]];
            text.push_str(&format!(
                "\n  refused {}: {}",
                first_of(layers),
                shown::message(reason)
            ));
        }
        if !self.duplicates.is_empty() {
            text.push_str(&format!("\n  duplicate {}", first_of(&self.duplicates)));
        }
        if !self.unread.is_empty() {
            text.push_str(&format!("\n  unread {}", first_of(&self.unread)));
        }
        text
    }
}

impl From<PatchSet> for Adapter {
    fn from(set: PatchSet) -> Self {
        let mut adapter = Self::default();
        for (layer, cause) in causes(&set) {
            let mut alike = adapter.alike.iter_mut();
            match alike.find(|(known, _)| *known == cause) {
                Some((_, layers)) => layers.push(layer.to_owned()),
                None => adapter.alike.push((cause, vec![layer.to_owned()])),
            }
        }
        for entry in &set.entries {
            *adapter.dialects.entry(entry.dialect).or_default() += 1;
            *adapter.kinds.entry(entry.patch.kind().into()).or_default() += 1;
        }
        let refused = set.refused.into_iter();
        adapter.refused = refused
            .map(|group| (group.target, sentence(&group.error)))
            .collect();
        adapter.duplicates = set.duplicates;
        adapter.unread = set.unread;
        adapter.notes = set.notes;
        adapter
    }
}

fn counts<K: std::fmt::Display>(counts: &BTreeMap<K, usize>) -> String {
    let parts: Vec<_> = counts
        .iter()
        .map(|(name, count)| format!("{count} {name}"))
        .collect();
    match parts.is_empty() {
        true => "nothing".into(),
        false => parts.join(", "),
    }
}

/// The first name, and how many there are besides.
fn first_of<S: AsRef<str>>(names: &[S]) -> String {
    match names {
        [] => String::new(),
        [only] => shown::name(only.as_ref()),
        [first, rest @ ..] => format!("{} and {} more", shown::name(first.as_ref()), rest.len()),
    }
}
