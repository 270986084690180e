//! The known name that a mistyped one most likely means, for messages.

/// The nearest of `known` to `wanted`, ignoring case; `None` where none is near.
///
/// Near by the similarity of Jaro and Winkler, which weighs the beginning of a name most.
pub fn nearest<'a>(wanted: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = wanted.to_lowercase();
    let score = |known: &str| strsim::jaro_winkler(&wanted, &known.to_lowercase());
    known
        .into_iter()
        .map(|known| (score(known), known))
        .filter(|(score, _)| *score > NEAR)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, known)| known)
}

/// [`nearest`] as a clause that begins with a blank, empty where none is near.
#[must_use]
pub fn did_you_mean<'a>(wanted: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(wanted, known).map_or_else(String::new, |known| format!(" (did you mean `{known}`?)"))
}

/// Similarity above which a name is worth suggesting.
const NEAR: f64 = 0.8;
