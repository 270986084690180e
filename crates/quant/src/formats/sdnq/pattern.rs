//! Which layers a list of sdnq means.
//!
//! An entry is the name of a weight or one of the words between its dots, or after a dot at its start what the name
//! begins with. With a `*` it is what the name begins with, where `*` stands for any text and a dot, but for one right
//! before a `*`, for any character: sdnq reads those entries as regular expressions, of which nothing else is understood
//! here (`check_param_name_in` of sdnq 0.2.8).

/// Whether one of `patterns` means the weight `name`.
pub(super) fn is_in<'a>(name: &str, patterns: impl IntoIterator<Item = &'a String>) -> bool {
    patterns.into_iter().any(|pattern| means(pattern, name))
}

fn means(pattern: &str, name: &str) -> bool {
    if let Some(start) = pattern.strip_prefix('.') {
        return name.starts_with(start);
    }
    name == pattern
        || name.split('.').any(|word| word == pattern)
        || pattern.contains('*') && begins_with(pattern, name.as_bytes())
}

fn begins_with(pattern: &str, mut name: &[u8]) -> bool {
    let mut texts = pattern.split('*').peekable();
    let mut is_first = true;
    while let Some(text) = texts.next() {
        let text = text.as_bytes();
        let has_literal_dot = texts.peek().is_some();
        // Of all places the first leaves most to the texts that follow.
        let mut places = name.windows(text.len().max(1)).enumerate();
        let place = match text {
            [] => Some(0),
            _ if is_first => {
                equals(text, name.get(..text.len()).unwrap_or(&[]), has_literal_dot).then_some(0)
            }
            _ => places
                .find(|(_, window)| equals(text, window, has_literal_dot))
                .map(|(place, _)| place),
        };
        let Some(place) = place else {
            return false;
        };
        name = &name[place + text.len()..];
        is_first = false;
    }
    true
}

fn equals(text: &[u8], name: &[u8], has_literal_dot: bool) -> bool {
    let last = text.len().saturating_sub(1);
    text.len() == name.len()
        && text
            .iter()
            .zip(name)
            .enumerate()
            .all(|(index, (text, name))| {
                let is_any = *text == b'.' && !(has_literal_dot && index == last);
                is_any || text == name
            })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_mean_what_sdnq_takes_them_for() {
        for (pattern, name, expected) in [
            ("lin.weight", "lin.weight", true),
            ("lin", "lin.weight", true),
            ("lin", "block.lin.weight", true),
            ("lin", "block.lin2.weight", false),
            (".block", "block.lin.weight", true),
            (".lin", "block.lin.weight", false),
            ("block.lin", "block.lin.weight", false),
            ("block.*", "block.lin.weight", true),
            ("block.*", "blocks.lin.weight", false),
            ("blocks.*.norm", "blocks.0.norm.weight", true),
            ("blocks.*.norm", "blocks.0_norm.weight", true),
            ("blocks.*.norm", "a.blocks.0.norm.weight", false),
            ("*norm*", "blocks.0.norm1.weight", true),
            ("*norm*", "blocks.0.lin.weight", false),
            ("blocks.0.norm*", "blocks.0.norm1.weight", true),
            ("blocks.0.norm*", "blocks", false),
            ("*", "", true),
        ] {
            assert_eq!(means(pattern, name), expected, "{pattern} {name}");
        }
    }
}
