//! Fitting a name into a few short lines, in the characters of the font (Latin-1).

/// `text` with every character the font lacks replaced: by its plain relative where there is one, else by `?`.
#[must_use]
pub fn sanitized(text: &str) -> String {
    text.chars().map(printable).collect()
}

/// `text` in at most `max_lines` lines of `max_chars`, broken after `-`, `_`, `/` or a blank where it can be, and
/// shortened in the middle where it is too long.
#[must_use]
pub fn wrapped(text: &str, max_chars: usize, max_lines: usize) -> Vec<String> {
    let (max_chars, max_lines) = (max_chars.max(4), max_lines.max(1));
    let sanitized = sanitized(text);
    let characters: Vec<char> = sanitized.trim().chars().collect();
    let whole = broken(&characters, max_chars);
    if whole.len() <= max_lines {
        return whole;
    }
    let longest = characters.len().min(max_chars * max_lines);
    let shortened = (0..longest)
        .rev()
        .map(|kept| broken(&around_middle(&characters, kept), max_chars));
    let mut fitting = shortened.filter(|lines| lines.len() <= max_lines);
    fitting.next().unwrap_or_default()
}

fn broken(characters: &[char], max_chars: usize) -> Vec<String> {
    let (mut lines, mut rest) = (Vec::new(), characters);
    while rest.len() > max_chars {
        let line = &rest[..max_chars];
        let end = line
            .iter()
            .rposition(|c| BREAKS.contains(c))
            .map_or(max_chars, |last| last + 1);
        // A break very early would waste most of the line.
        let end = if end * 3 < max_chars { max_chars } else { end };
        lines.push(rest[..end].iter().collect::<String>().trim_end().to_owned());
        rest = &rest[end..];
    }
    lines.push(rest.iter().collect());
    lines
}

/// The first and last characters, `kept` in all, with two dots between them.
fn around_middle(characters: &[char], kept: usize) -> Vec<char> {
    let (head, tail) = (kept.div_ceil(2), kept / 2);
    [
        &characters[..head],
        &DOTS,
        &characters[characters.len() - tail..],
    ]
    .concat()
}

fn printable(character: char) -> char {
    match character {
        ' '..='~' | '\u{a1}'..='\u{ac}' | '\u{ae}'..='\u{ff}' => character,
        '\u{2010}'..='\u{2015}' | '\u{2212}' => '-',
        '\u{2018}' | '\u{2019}' => '\'',
        '\u{201c}' | '\u{201d}' => '"',
        '\u{2026}' => '.',
        character if character.is_whitespace() => ' ',
        _ => '?',
    }
}

const BREAKS: [char; 4] = ['-', '_', '/', ' '];
const DOTS: [char; 2] = ['.', '.'];
