//! `FILE[:STRENGTH]`.

use std::fs;

use overglaze_cli::lora_arg::LoraArg;

#[test]
fn the_strength_follows_the_last_colon() {
    let folder = tempfile::tempdir().unwrap();
    let odd = folder.path().join("epoch:10");
    fs::write(&odd, "").unwrap();
    let odd = odd.to_str().unwrap();
    let check = |text: &str, path: &str, strength: f32| {
        assert_eq!(
            text.parse(),
            Ok(LoraArg {
                path: path.into(),
                strength
            }),
            "{text}"
        );
    };
    check("a.safetensors", "a.safetensors", 1.0);
    check("a.safetensors:0.7", "a.safetensors", 0.7);
    check("a.safetensors:-1", "a.safetensors", -1.0);
    check("a.safetensors:high", "a.safetensors:high", 1.0);
    check(odd, odd, 1.0);
    check(&format!("{odd}:0.5"), odd, 0.5);
}

#[test]
fn a_strength_is_finite() {
    let error = "a.safetensors:inf".parse::<LoraArg>().unwrap_err();
    assert_eq!(error, "the strength inf is not a finite number");
}
