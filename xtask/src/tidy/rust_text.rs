//! Rust source cut into code and string literals: a small lexer, enough to search code and not comments.

/// A source file, cut.
#[derive(Debug)]
pub(super) struct RustText {
    /// The source with comments, contents of literals and `#[cfg(test)]` items blanked; offsets and lines
    /// are those of the source.
    pub(super) code: String,
    /// The string literals outside comments and `#[cfg(test)]` items.
    pub(super) literals: Vec<Literal>,
}

/// A string literal.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Literal {
    /// Offset of its first byte after the quote.
    pub(super) start: usize,
    /// What stands between the quotes, escapes as written.
    pub(super) value: String,
}

/// Cuts `source`. Broken source gives some cut, never an error: rustc is the one to complain.
pub(super) fn read(source: &str) -> RustText {
    let mut code = source.as_bytes().to_vec();
    let mut literals = Vec::new();
    let mut at = 0;
    while at < source.len() {
        let piece = piece_at(source, at);
        if let Some((start, end)) = piece.blank {
            blank(&mut code[start..end]);
            if piece.is_literal {
                literals.push(Literal {
                    start,
                    value: source[start..end].into(),
                });
            }
        }
        at = piece.end;
    }
    for (start, end) in test_items(&code) {
        blank(&mut code[start..end]);
        literals.retain(|literal| !(start..end).contains(&literal.start));
    }
    RustText {
        code: String::from_utf8_lossy(&code).into_owned(),
        literals,
    }
}

/// The 1-based line of the byte at `offset`.
pub(super) fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes()[..offset]
        .iter()
        .filter(|byte| **byte == b'\n')
        .count()
        + 1
}

/// Whether `character` can stand in an identifier.
pub(super) fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// One step of the lexer: where it ends, what it blanks and which string it found.
#[derive(Default)]
struct Piece {
    end: usize,
    blank: Option<(usize, usize)>,
    is_literal: bool,
}

fn piece_at(source: &str, at: usize) -> Piece {
    let rest = &source[at..];
    let inside_word = source[..at].chars().next_back().is_some_and(is_word);
    if rest.starts_with("//") {
        quoted(at, [0, rest.find('\n').unwrap_or(rest.len()), 0], false)
    } else if rest.starts_with("/*") {
        quoted(at, [0, block_comment_len(rest), 0], false)
    } else if let Some(lens) = raw_string_lens(rest).filter(|_| !inside_word) {
        quoted(at, lens, true)
    } else if let Some(text) = rest.strip_prefix('"') {
        quoted(at, [1, escaped_len(text, '"'), 1], true)
    } else if let Some(len) = char_len(rest) {
        quoted(at, [1, len, 1], false)
    } else {
        Piece {
            end: at + rest.chars().next().map_or(1, char::len_utf8),
            ..Piece::default()
        }
    }
}

/// A piece at `at` with the lengths of its opening, its text, which is blanked, and its closing.
fn quoted(at: usize, [opening, text, closing]: [usize; 3], is_literal: bool) -> Piece {
    let (start, end) = (at + opening, at + opening + text);
    Piece {
        end: end + closing,
        blank: Some((start, end)),
        is_literal,
    }
}

/// Block comments nest.
fn block_comment_len(rest: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        let tail = &rest.as_bytes()[at..];
        match tail {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

/// `r"…"`, `br#"…"#` and so on: the lengths of opening, text and closing.
fn raw_string_lens(rest: &str) -> Option<[usize; 3]> {
    let word_len = rest
        .find('r')
        .filter(|index| ["", "b", "c"].contains(&&rest[..*index]))?
        + 1;
    let num_hashes = rest[word_len..].chars().take_while(|c| *c == '#').count();
    let text = rest[word_len + num_hashes..].strip_prefix('"')?;
    let closing = format!("\"{}", "#".repeat(num_hashes));
    Some([
        word_len + num_hashes + 1,
        text.find(&closing)?,
        closing.len(),
    ])
}

/// Up to the first `quote` that no backslash escapes.
fn escaped_len(text: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (index, character) in text.char_indices() {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            _ if character == quote => return index,
            _ => {}
        }
    }
    text.len()
}

/// The length of the text in `'x'` or `'\…'`; `None` for a lifetime.
fn char_len(rest: &str) -> Option<usize> {
    let text = rest.strip_prefix('\'')?;
    let first = text.chars().next()?;
    let is_char = first == '\\' || text[first.len_utf8()..].starts_with('\'');
    is_char.then(|| escaped_len(text, '\'').max(1))
}

fn blank(bytes: &mut [u8]) {
    bytes
        .iter_mut()
        .filter(|byte| **byte != b'\n')
        .for_each(|byte| *byte = b' ');
}

/// Ranges of `#[cfg(test)]` items, in code whose literals are blank already.
fn test_items(code: &[u8]) -> Vec<(usize, usize)> {
    let text = String::from_utf8_lossy(code);
    let starts = text.match_indices("#[cfg(test)]").map(|(start, _)| start);
    starts
        .map(|start| (start, start + item_len(&code[start..])))
        .collect()
}

/// Up to the `;` or the closing brace of the item.
fn item_len(item: &[u8]) -> usize {
    let mut depth = 0_usize;
    for (index, byte) in item.iter().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' if depth <= 1 => return index + 1,
            b'}' => depth -= 1,
            b';' if depth == 0 => return index + 1,
            _ => {}
        }
    }
    item.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn literals(source: &str) -> Vec<String> {
        read(source)
            .literals
            .into_iter()
            .map(|literal| literal.value)
            .collect()
    }

    #[test]
    fn literals_are_found_outside_comments_and_tests() {
        assert_eq!(literals(r#"f("a", "b\"c"); // "d""#), ["a", r#"b\"c"#]);
        assert_eq!(literals("/* \"a\" /* \"b\" */ \"c\" */ \"d\""), ["d"]);
        assert_eq!(literals(r##"r"a" r#"b"c"# "d""##), ["a", "b\"c", "d"]);
        assert_eq!(
            literals(r###"br#"a\"# b"b" c"c" r#if "d""###),
            [r"a\", "b", "c", "d"]
        );
        assert_eq!(
            literals("'\"' 'a' '\\'' \"b\" fn f<'a>(x: &'a str) { \"c\" }"),
            ["b", "c"]
        );
        assert_eq!(literals("#[cfg(test)]\nmod t { f(\"a\"); }\n\"b\""), ["b"]);
        assert_eq!(
            literals("#[cfg(test)]\nmod tests;\nfn f() { \"b\" }"),
            ["b"]
        );
        assert_eq!(literals("var\"a\" \"\u{e9}\""), ["a", "\u{e9}"]);
    }

    #[test]
    fn code_keeps_offsets_and_lines() {
        let source = "a // b\n\"c\nd\" e\n";
        let code = read(source).code;
        assert_eq!(code, "a     \n\" \n \" e\n");
        assert_eq!(line_of(&code, code.find('e').unwrap()), 3);
    }

    #[test]
    fn broken_source_is_cut_too() {
        for source in [
            "\"a",
            "/* a",
            "'",
            "r#\"a",
            "'\\",
            "\"a\\",
            "#[cfg(test)] mod a {",
            "'\\''",
        ] {
            let _ = read(source);
        }
    }
}
