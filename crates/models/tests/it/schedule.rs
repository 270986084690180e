//! Noise levels and shifts against numbers computed with diffusers' formulas in Python.

use overglaze_models::{SchedulerConfig, Shift, Sigmas};

/// f32 rounding of numbers up to 1.
const TOLERANCE: f32 = 1e-7;

fn levels(num_steps: usize, mu: Option<f64>) -> Vec<f32> {
    Sigmas::new(num_steps, mu).unwrap().as_slice().to_vec()
}

fn assert_close(found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!(
            (found - expected).abs() <= TOLERANCE,
            "{found}, expected {expected}"
        );
    }
}

#[test]
fn steps_are_equal_without_a_shift() {
    assert_eq!(levels(4, None), [1.0, 0.75, 0.5, 0.25, 0.0]);
    assert_eq!(levels(1, None), [1.0, 0.0]);
    assert_eq!(Sigmas::new(20, None).unwrap().num_steps(), 20);
}

#[test]
fn a_shift_moves_the_levels_towards_noise() {
    assert_close(
        &levels(4, Some(1.15)),
        &[1.0, 0.904_530_77, 0.759_510_9, 0.512_844_1, 0.0],
    );
    assert_close(&levels(4, Some(0.0)), &[1.0, 0.75, 0.5, 0.25, 0.0]);
}

#[test]
fn flux_shifts_by_the_number_of_tokens() {
    let resolve = |tokens| Shift::Auto.resolve(None, true, tokens).unwrap().unwrap();
    for (tokens, mu) in [(256, 0.5), (4096, 1.15), (1024, 0.63), (64, 0.4675)] {
        assert!(
            (resolve(tokens) - mu).abs() < 1e-12,
            "{tokens}: {}",
            resolve(tokens)
        );
    }
    assert_eq!(Shift::Auto.resolve(None, false, 4096).unwrap(), None);
    assert_eq!(Shift::None.resolve(None, true, 4096).unwrap(), None);
    assert_eq!(Shift::Mu(0.7).resolve(None, false, 1).unwrap(), Some(0.7));
}

#[test]
fn the_scheduler_document_decides() {
    let mu = |json: &str, tokens| {
        let scheduler = SchedulerConfig::from_json(json.as_bytes()).unwrap();
        let other = Shift::None.resolve(Some(&scheduler), true, tokens).unwrap();
        assert_eq!(other, None, "an explicit shift goes before the document");
        Shift::Auto
            .resolve(Some(&scheduler), true, tokens)
            .map_err(|error| error.to_string())
    };
    let dev = r#"{"use_dynamic_shifting": true, "base_shift": 0.5, "max_shift": 1.15, "shift": 3.0,
        "base_image_seq_len": 256, "max_image_seq_len": 4096, "shift_terminal": null}"#;
    let schnell = r#"{"use_dynamic_shifting": false, "shift": 1.0, "use_karras_sigmas": false}"#;
    let linear = r#"{"use_dynamic_shifting": true, "time_shift_type": "linear"}"#;
    assert!((mu(dev, 4096).unwrap().unwrap() - 1.15).abs() < 1e-12);
    assert_eq!(mu(schnell, 4096).unwrap(), None);
    assert!((mu(r#"{"shift": 3.0}"#, 1).unwrap().unwrap() - 3.0_f64.ln()).abs() < 1e-12);
    assert!((mu(linear, 4096).unwrap().unwrap() - 1.15_f64.ln()).abs() < 1e-12);
    let refused = [
        (
            r#"{"use_karras_sigmas": true}"#,
            "use_karras_sigmas = true, expected false",
        ),
        (
            r#"{"shift_terminal": 0.02}"#,
            "shift_terminal = 0.02, expected null",
        ),
        (r#"{"shift": 0.0}"#, "shift = 0, expected a number above 0"),
        (
            r#"{"use_dynamic_shifting": true, "max_image_seq_len": 256}"#,
            "max_image_seq_len = 256",
        ),
        (
            r#"{"use_dynamic_shifting": true, "time_shift_type": "x"}"#,
            "time_shift_type = x",
        ),
        (
            r#"{"use_dynamic_shifting": true, "base_shift": 1e300}"#,
            "the shift is",
        ),
    ];
    for (json, expected) in refused {
        let message = mu(json, 1024).unwrap_err();
        assert!(message.contains(expected), "{message}");
    }
    assert!(SchedulerConfig::from_json(b"{\"shift\": []}").is_err());
}

#[test]
fn schedules_that_cannot_be_walked_are_refused() {
    let cases = [
        (
            Sigmas::new(0, None),
            "the number of steps is 0, expected 1 to 10,000",
        ),
        (Sigmas::new(10_001, None), "the number of steps is 10001"),
        (Sigmas::new(4, Some(f64::NAN)), "the shift is NaN"),
        (Sigmas::new(4, Some(1e9)), "the shift is 1000000000"),
        (
            Sigmas::from_values(vec![1.0]),
            "the number of noise levels is 1, expected at least 2",
        ),
        (
            Sigmas::from_values(vec![1.0, f32::NAN]),
            "a noise level is NaN",
        ),
        (Sigmas::from_values(vec![1.5, 0.0]), "a noise level is 1.5"),
    ];
    for (result, expected) in cases {
        let message = result.unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn a_shift_is_read_from_text() {
    assert_eq!("auto".parse::<Shift>().unwrap(), Shift::Auto);
    assert_eq!("none".parse::<Shift>().unwrap(), Shift::None);
    assert_eq!("1.15".parse::<Shift>().unwrap(), Shift::Mu(1.15));
    for text in ["", "Auto", "inf", "nan", "1e9", "two"] {
        assert!(text.parse::<Shift>().is_err(), "{text}");
    }
}
