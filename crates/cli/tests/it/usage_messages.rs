//! Every wrong flag, prompt or setting has its own clear message and exit code.

use crate::{
    messages::{bad_files, check},
    overglaze::{demo_file, overglaze, text},
};

#[test]
fn prompts_the_demo_does_not_know() {
    let folder = bad_files();
    let known =
        "it knows: t-shirt, trousers, pullover, dress, coat, sandal, shirt, sneaker, bag, boot";
    let check =
        |arguments: &[&str], code, expected: &str| check(folder.path(), arguments, code, expected);
    check(
        &["sweep", "--prompt", "bot"],
        2,
        &format!("the demo does not know the prompt word `bot` (did you mean `boot`?); {known}"),
    );
    check(
        &["sweep", "--prompts", "words.txt"],
        2,
        &format!(
            "`words.txt`, line 3: the demo does not know the prompt word `sandals` (did you mean `sandal`?); {known}"
        ),
    );
    check(
        &["sweep", "--prompts", "blank.txt"],
        1,
        "`blank.txt` holds no prompts; expected one a line",
    );
}

#[test]
fn settings_that_do_not_apply_or_do_not_fit() {
    let folder = bad_files();
    let check =
        |arguments: &[&str], code, expected: &str| check(folder.path(), arguments, code, expected);
    check(
        &["sweep", "--size", "64x64"],
        2,
        "--size does not apply to demo: its images are always 28 x 28 pixels, so leave it out",
    );
    check(
        &["sweep", "--noise", "two.safetensors"],
        1,
        "`two.safetensors` has no tensor `in.noise`; expected that tensor, or exactly one tensor of any name, \
         [prompts, tokens, channels]",
    );
    check(
        &["sweep", "--noise", "small.safetensors"],
        1,
        "`small.safetensors`: tensor `x` has shape [2, 2], expected [10, 64, 16] (prompts, tokens, channels)",
    );
    check(
        &["sweep", "--prompt", "bag", "--noise", "nan.safetensors"],
        1,
        "nan.safetensors: tensor `x` holds NaN, expected finite numbers",
    );
    check(
        &["sweep", "--conditioning", "two.safetensors"],
        1,
        "`two.safetensors` has no tensor `encoder_hidden_states`; expected what the text encoder says, [prompts, \
         tokens, width]",
    );
    let model = demo_file("transformer");
    check(
        &["sweep", "--device-budget", "1KB"],
        1,
        "the layer `time_text_embed.timestep_embedder.linear_1` alone needs 49344 bytes, more than the budget of \
         1000; raise the budget to at least 49344 bytes",
    );
    check(
        &[
            "check",
            text(&model.join("none")),
            "--model-keys",
            "no.json",
        ],
        1,
        "`no.json` is not a JSON object from key to shape, such as {\"x_embedder.weight\": [3072, 64]}: invalid \
         type: sequence, expected an object at line 1 column 0",
    );
    check(
        &["check", "gguf.safetensors", "--model-keys", "zero.json"],
        1,
        "`zero.json`: key `a.weight` has shape [0], expected one to eight sizes above 0",
    );
}

#[test]
fn usage_errors_suggest_the_nearest() {
    let folder = bad_files();
    let check = |arguments: &[&str], expected: &str| {
        let run = overglaze(folder.path(), arguments);
        assert_eq!(run.code, Some(2), "{arguments:?}");
        assert!(
            run.stderr.contains(expected),
            "{arguments:?}: {}",
            run.stderr
        );
    };
    check(&["sweeep"], "a similar subcommand exists: 'sweep'");
    check(
        &["sweep", "--lora", "x"],
        "a similar argument exists: '--loras'",
    );
    check(
        &["sweep", "--device", "cudda"],
        "no such device (did you mean `cuda`?); expected auto, cpu, flex",
    );
    check(
        &["sweep", "--device-budget", "lots"],
        "expected bytes (3_000_000), a size (6GiB, 800MB) or a percentage",
    );
    check(&["sweep", "--steps", "0"], "0 is not in 1..=1000");
    check(
        &["sweep", "--strengths", "0.5,x"],
        "expected a finite number",
    );
    check(
        &["sweep", "--size", "100x64", "--model", "m"],
        "expected WIDTHxHEIGHT in pixels, multiples of 16",
    );
    check(
        &["sweep", "--prompt", "a", "--conditioning", "c"],
        "cannot be used with",
    );
    check(
        &["sample", "--seed", "0", "--noise", "n.safetensors"],
        "the argument '--seed <N>' cannot be used with '--noise <FILE>'",
    );
    check(&[], "Usage: overglaze");
}
