//! Noise from a seed.

use overglaze_cli::seeded_noise;

#[test]
fn it_is_standard_normal_and_the_same_everywhere() {
    let noise = seeded_noise(7, 1, 20_000);
    let count = noise.len() as f32;
    let mean = noise.iter().sum::<f32>() / count;
    let variance = noise
        .iter()
        .map(|value| (value - mean).powi(2))
        .sum::<f32>()
        / count;
    // Five standard errors: 1/sqrt(20000) and sqrt(2/20000).
    assert!(mean.abs() < 0.036, "{mean}");
    assert!((variance - 1.0).abs() < 0.05, "{variance}");
    assert_eq!(noise, seeded_noise(7, 1, 20_000));
}

#[test]
fn a_prompts_noise_does_not_depend_on_the_others() {
    let rows = seeded_noise(3, 3, 5);
    assert_eq!(rows[5..10], seeded_noise(4, 1, 5));
    assert_ne!(rows[..5], rows[5..10]);
    assert_eq!(seeded_noise(u64::MAX, 2, 3)[3..], seeded_noise(0, 1, 3));
}
