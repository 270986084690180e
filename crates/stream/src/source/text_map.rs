//! A JSON object of texts in which every name stands once: metadata, and the map of an index.
//!
//! JSON readers commonly keep the last of two equal names. Two readers that disagree on a file's content are
//! a way to hide something in it, so it is refused here.

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, Visitor},
};

use super::header::shorten;

/// Name to text, with unique names.
pub(super) struct TextMap(pub(super) BTreeMap<String, String>);

impl<'de> Deserialize<'de> for TextMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(TextMapVisitor).map(Self)
    }
}

struct TextMapVisitor;

impl<'de> Visitor<'de> for TextMapVisitor {
    type Value = BTreeMap<String, String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of texts")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut texts = BTreeMap::new();
        while let Some((name, text)) = map.next_entry::<String, String>()? {
            if texts.contains_key(&name) {
                let message = format!("the name `{}` stands twice", shorten(&name));
                return Err(A::Error::custom(message));
            }
            texts.insert(name, text);
        }
        Ok(texts)
    }
}
