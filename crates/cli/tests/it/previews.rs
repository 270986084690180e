//! The preview of latents.

use overglaze_cli::{Latents, preview::previews};

/// Tokens `[1, rows * columns, channels]` from a function of row, column and channel.
fn latents(
    [rows, columns, channels]: [usize; 3],
    value: impl Fn(usize, usize, usize) -> f32,
) -> Latents {
    let mut values = Vec::new();
    for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))) {
        values.extend((0..channels).map(|channel| value(row, column, channel)));
    }
    Latents::new(values, [1, rows * columns, channels])
}

#[test]
fn flux_tokens_unpack_to_two_by_two_pixels() {
    // Channel 4c + 2y + x of a token: let the value be its place in the picture, in latent channel 0 alone.
    let packed = latents([2, 3, 64], |row, column, channel| {
        let (dy, dx) = (channel % 4 / 2, channel % 2);
        if channel < 4 {
            ((2 * row + dy) * 6 + 2 * column + dx) as f32
        } else {
            0.0
        }
    });
    let picture = &previews(&[&packed], [2, 3])[0][0];
    assert_eq!(picture.dimensions(), (6, 4));
    let reds: Vec<u8> = picture.pixels().map(|pixel| pixel.0[0]).collect();
    assert!(
        reds.windows(2).all(|pair| pair[0] < pair[1]),
        "row by row, rising: {reds:?}"
    );
    assert_eq!((reds[0], reds[23]), (0, 255));
}

#[test]
fn other_tokens_are_pixels_and_columns_share_one_scale() {
    let dark = latents(
        [4, 4, 16],
        |row, _, channel| if channel == 5 { row as f32 } else { 0.0 },
    );
    let bright = latents([4, 4, 16], |row, _, channel| {
        if channel == 5 { row as f32 + 4.0 } else { 0.0 }
    });
    let pictures = previews(&[&dark, &bright], [4, 4]);
    let red = |column: usize, y: u32| pictures[column][0].get_pixel(0, y).0[0];
    assert_eq!(pictures[0][0].dimensions(), (4, 4));
    assert!(
        red(0, 3) < red(1, 0),
        "the darkest of one is brighter than the brightest of the other"
    );
    assert_eq!(
        pictures[0][0].get_pixel(0, 0).0[2],
        128,
        "no third component, so no blue to tell"
    );
}

#[test]
fn the_largest_spread_is_red_and_its_sign_is_fixed() {
    let spread = |sign: f32| {
        latents([8, 8, 3], move |row, column, channel| match channel {
            1 => sign * 10.0 * row as f32,
            2 => column as f32,
            _ => 0.0,
        })
    };
    let top = |latents: &Latents| previews(&[latents], [8, 8])[0][0].get_pixel(0, 0).0[0];
    assert_eq!((top(&spread(1.0)), top(&spread(-1.0))), (0, 255));
}

#[test]
fn what_is_not_a_number_is_black_and_spoils_nothing() {
    let mut values: Vec<f32> = (0..48).map(|value| value as f32).collect();
    values[0] = f32::NAN;
    let picture = &previews(&[&Latents::new(values, [1, 16, 3])], [4, 4])[0][0];
    assert_eq!(picture.get_pixel(0, 0).0, [0; 3]);
    assert!(picture.get_pixel(3, 3).0[0] > 200);
}
