//! Text from files as it is shown: no characters that control a terminal or turn the text around, and no name longer than a line or two.
//!
//! A tensor's name may hold escape sequences that move a terminal's cursor; `\u{1b}` cannot.

/// `name` on one line and in at most [`MAX_NAME_CHARS`] characters, shortened in the middle.
pub(crate) fn name(name: &str) -> String {
    shortened(&escaped(name))
}

/// `text` on one line, with every overlong word of it shortened in the middle; the parts of a path are words.
pub(crate) fn message(text: &str) -> String {
    escaped(text)
        .split_inclusive([' ', '/'])
        .map(shortened)
        .collect()
}

/// Text of several lines, with every other control character escaped.
pub(crate) fn lines(text: &str) -> String {
    escaped_unless(text, |c| c == '\n')
}

/// A number in few characters: `0.5`, but `1e38` for what would have many digits.
pub(crate) fn number(value: f32) -> String {
    let is_short = value == 0.0 || (1e-4..1e7).contains(&value.abs());
    if is_short {
        value.to_string()
    } else {
        format!("{value:e}")
    }
}

fn escaped(text: &str) -> String {
    escaped_unless(text, |_| false)
}

fn escaped_unless(text: &str, is_kept: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if (c.is_control() || turns(c)) && !is_kept(c) {
            shown.extend(c.escape_unicode());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Whether a character changes the direction in which the text around it is shown.
fn turns(c: char) -> bool {
    matches!(c, '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

fn shortened(text: &str) -> String {
    let count = text.chars().count();
    if count <= MAX_NAME_CHARS {
        return text.into();
    }
    let kept = (MAX_NAME_CHARS - 1) / 2;
    let head: String = text.chars().take(kept).collect();
    let tail: String = text.chars().skip(count - kept).collect();
    format!("{head}…{tail}")
}

/// Names that models and trainers give are shorter.
const MAX_NAME_CHARS: usize = 120;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_name_controls_what_is_around_it() {
        assert_eq!(name("a\u{1b}[2Jb"), "a\\u{1b}[2Jb");
        assert_eq!(name("a\u{202e}b"), "a\\u{202e}b");
        assert_eq!(message("\u{2066}x"), "\\u{2066}x");
    }
}
