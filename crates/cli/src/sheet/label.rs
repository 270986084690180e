//! Fitting a name into a few short lines, in the characters of the font (Latin-1).

/// `text` with every character the font lacks replaced: by its plain relative where there is one, else by `?`.
#[must_use]
pub fn sanitized(text: &str) -> String {
    text.chars().map(printable).collect()
}

/// `text` in at most `max_lines` lines of `max_chars`, broken after `-`, `_`, `.`, `/`, `@` or a blank where it can be,
/// and shortened in the middle where it is too long.
#[must_use]
pub fn wrapped(text: &str, max_chars: usize, max_lines: usize) -> Vec<String> {
    let max_chars = max_chars.max(4);
    let mut characters: Vec<char> = sanitized(text).trim().chars().collect();
    loop {
        let lines = broken(&characters, max_chars);
        if lines.len() <= max_lines.max(1) {
            return lines;
        }
        characters = without_middle(&characters);
    }
}

fn broken(characters: &[char], max_chars: usize) -> Vec<String> {
    let (mut lines, mut rest) = (Vec::new(), characters);
    while rest.len() > max_chars {
        let line = &rest[..max_chars];
        let end = line.iter().rposition(|c| BREAKS.contains(c)).map_or(max_chars, |last| last + 1);
        // A break very early would waste most of the line.
        let end = if end * 3 < max_chars { max_chars } else { end };
        lines.push(rest[..end].iter().collect::<String>().trim_end().to_owned());
        rest = &rest[end..];
    }
    lines.push(rest.iter().collect());
    lines
}

/// One character fewer, around two dots in the middle.
fn without_middle(characters: &[char]) -> Vec<char> {
    let dots = characters.windows(2).position(|pair| pair == DOTS);
    let around = dots.filter(|at| at.abs_diff(characters.len() / 2) <= 2);
    let (head, tail) = match around {
        Some(at) => (&characters[..at], &characters[at + DOTS.len()..]),
        None => characters.split_at(characters.len() / 2),
    };
    let (head, tail) = match head.len() > tail.len() {
        true => (&head[..head.len() - 1], tail),
        false => (head, &tail[1..]),
    };
    [head, &DOTS, tail].concat()
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

const BREAKS: [char; 6] = ['-', '_', '.', '/', '@', ' '];
const DOTS: [char; 2] = ['.', '.'];
