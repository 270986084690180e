//! Labels: wrapped, shortened in the middle, in the characters of the font.

use overglaze_cli::sheet::{Layout, Sheet, SheetColumn, sanitized, wrapped};

#[test]
fn long_names_are_wrapped_at_their_joints() {
    let check =
        |text: &str, expected: &[&str]| assert_eq!(wrapped(text, 20, 3), expected, "{text}");
    check("boot", &["boot"]);
    check("", &[""]);
    check(
        "outline-epoch-10 @0.5",
        &["outline-epoch-10 ", "@0.5"].map(str::trim_end),
    );
    check(
        "flux_detail_slider_v2-000010",
        &["flux_detail_slider_", "v2-000010"],
    );
    check(
        "abcdefghijklmnopqrstuvwxyz",
        &["abcdefghijklmnopqrst", "uvwxyz"],
    );
}

#[test]
fn longer_ones_are_shortened_in_the_middle() {
    let lines = wrapped(&("start".to_owned() + &"x".repeat(200) + "end"), 20, 3);
    assert_eq!(lines.len(), 3);
    assert!(
        lines[0].starts_with("start") && lines[2].ends_with("end"),
        "{lines:?}"
    );
    assert_eq!(lines.concat().matches("..").count(), 1, "{lines:?}");
    let dotted = wrapped(&"a..b".repeat(50_000), 20, 3);
    assert_eq!(dotted.len(), 3, "{dotted:?}");
    assert!(lines.iter().all(|line| line.chars().count() <= 20));
}

#[test]
fn characters_without_a_glyph_are_replaced() {
    assert_eq!(sanitized("façade – “naïve”…"), "façade - \"naïve\".");
    assert_eq!(sanitized("水彩\tlora"), "?? lora");
}

#[test]
fn a_sheet_beyond_all_bounds_is_refused() {
    let cells = vec![image::RgbImage::new(500_000, 1)];
    let column = SheetColumn {
        label: "a".into(),
        cells,
    };
    let sheet = Sheet {
        title: String::new(),
        columns: vec![column; 30],
        rows: vec!["b".into()],
    };
    assert_eq!(
        Layout::of(&sheet).unwrap_err().to_string(),
        "the picture would have 15000263 x 61 pixels, more than the 400000000 this command draws; use fewer \
         prompts, fewer LoRAs or a smaller --size"
    );
}
