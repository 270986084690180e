//! A patch kind as its entry in the registry describes it.

use std::collections::BTreeMap;

use overglaze_patches::{Build, PatchKind};
use serde::Serialize;

/// What is told of a kind.
#[derive(Serialize)]
pub(super) struct Kind {
    pub(super) name: &'static str,
    /// Whether its keys stand beside those of another kind, whose patch it changes.
    wraps: bool,
    signatures: &'static [&'static [&'static str]],
    optional: &'static [&'static str],
    /// Axes of a key's tensor, where they tell the kind from another with the same keys.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    dimensions: &'static [(&'static str, usize)],
    aliases: Vec<Alias>,
    formula: &'static str,
    layers: &'static str,
    strength: &'static str,
    source: &'static str,
}

/// Another spelling of a key.
#[derive(Serialize)]
struct Alias {
    spelling: &'static str,
    key: &'static str,
}

impl Kind {
    pub(super) fn of(kind: &PatchKind) -> Self {
        let aliases = kind.aliases.iter();
        Self {
            name: kind.name,
            wraps: matches!(kind.build, Build::Wrap(_)),
            signatures: kind.signatures,
            optional: kind.optional,
            dimensions: kind.dimensions,
            aliases: aliases
                .map(|(spelling, key)| Alias { spelling, key })
                .collect(),
            formula: kind.docs.formula,
            layers: kind.docs.layers,
            strength: kind.docs.strength,
            source: kind.docs.source,
        }
    }

    /// Name and description, for a table of two columns.
    pub(super) fn row(&self) -> Vec<String> {
        let lines = self.facts(str::to_owned).into_iter();
        let lines: Vec<_> = lines
            .map(|(what, text)| format!("{what}: {text}"))
            .collect();
        vec![self.name.into(), lines.join("\n")]
    }

    /// A section of a page.
    pub(super) fn section(&self) -> String {
        let facts = self.facts(|key| format!("`{key}`"));
        let lines = facts
            .into_iter()
            .map(|(what, text)| format!("- {what}: {}\n", escaped(&text)));
        format!("## {}\n\n{}", self.name, lines.collect::<String>())
    }

    /// What is told, under its headings; nothing of what the entry leaves empty.
    fn facts(&self, key: impl Fn(&str) -> String) -> Vec<(&'static str, String)> {
        let all = |keys: &[&str], separator: &str| {
            let keys: Vec<_> = keys.iter().map(|name| key(name)).collect();
            keys.join(separator)
        };
        let signatures: Vec<_> = self
            .signatures
            .iter()
            .map(|keys| all(keys, " + "))
            .collect();
        let aliases = self.spellings().into_iter();
        let aliases =
            aliases.map(|(name, spellings)| format!("{} for {}", all(&spellings, ", "), key(name)));
        let aliases: Vec<_> = aliases.collect();
        let dimensions = self.dimensions.iter();
        let dimensions =
            dimensions.map(|(name, count)| format!("{} with {count} dimensions", key(name)));
        let dimensions: Vec<_> = dimensions.collect();
        let heading = if self.wraps {
            "keys, beside another kind's"
        } else {
            "keys"
        };
        let mut facts = vec![
            (heading, signatures.join(", or ")),
            ("optional keys", all(self.optional, ", ")),
            ("told apart by", dimensions.join(", ")),
            ("also spelled", aliases.join("; ")),
            ("formula", self.formula.into()),
            ("layers", self.layers.into()),
            ("strength", self.strength.into()),
            ("source", self.source.into()),
        ];
        facts.retain(|(_, text)| !text.is_empty());
        facts
    }

    /// The other spellings of each key.
    fn spellings(&self) -> BTreeMap<&'static str, Vec<&'static str>> {
        let mut spellings = BTreeMap::<_, Vec<_>>::new();
        for alias in &self.aliases {
            spellings.entry(alias.key).or_default().push(alias.spelling);
        }
        spellings
    }
}

/// `text` with the characters escaped that Markdown would take for its own, outside of code.
fn escaped(text: &str) -> String {
    let mut is_code = false;
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        is_code ^= c == '`';
        if !is_code && matches!(c, '*' | '_' | '<' | '[' | '|') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}
