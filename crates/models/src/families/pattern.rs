//! Names with holes for indices: `double_blocks.{}.img_attn.qkv`.

/// The indices in `path` where the pattern has `{}`; `None` when the rest differs.
pub(crate) fn indices<'a>(pattern: &str, path: &'a str) -> Option<Vec<&'a str>> {
    let (mut pieces, mut found) = (path.split('.'), Vec::new());
    for expected in pattern.split('.') {
        let piece = pieces.next()?;
        if expected == "{}" && piece.bytes().all(|byte| byte.is_ascii_digit()) {
            found.push(piece);
        } else if expected != piece {
            return None;
        }
    }
    pieces.next().is_none().then_some(found)
}

/// The pattern with its holes filled in order.
pub(crate) fn filled(pattern: &str, indices: &[&str]) -> String {
    let mut indices = indices.iter();
    pattern
        .split('.')
        .map(|piece| match piece {
            "{}" => indices.next().copied().unwrap_or(piece),
            piece => piece,
        })
        .collect::<Vec<_>>()
        .join(".")
}
