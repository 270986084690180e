//! `quantize`, `dequantize` and `convert`.

use std::path::Path;

use crate::overglaze::{Run, overglaze};

fn done(folder: &Path, args: &[&str]) -> Run {
    let run = overglaze(folder, args);
    assert_eq!(run.code, Some(0), "{args:?}: {}{}", run.stdout, run.stderr);
    run
}

fn refused(folder: &Path, args: &[&str], expected: &str) {
    let run = overglaze(folder, args);
    assert_eq!(run.code, Some(1), "{args:?}: {}", run.stdout);
    assert!(run.stderr.contains(expected), "{}", run.stderr);
}

fn latents(folder: &Path, model: &str, more: &[&str]) -> Vec<u8> {
    let mut args = vec![
        "sample", "--model", model, "--prompt", "boot", "--steps", "2",
    ];
    args.extend(["--save-latents", "latents.safetensors", "-o", "out.png"]);
    args.extend(more);
    done(folder, &args);
    std::fs::read(folder.join("latents.safetensors")).unwrap()
}

/// A model that runs on packed bytes gives what the decoded one gives: bit for bit where both decode to the same f32 and
/// multiply it alike, as here, where rows are few enough for one kernel.
#[test]
fn a_quantized_demo_samples_as_its_decoded_weights_do() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    for (format, file) in [
        ("q8_0", "packed.gguf"),
        ("Q4-K", "packed.gguf"),
        ("nf4", "packed.safetensors"),
        ("llm_int8", "packed.safetensors"),
        ("sdnq-int8", "packed.safetensors"),
        ("fp8", "packed.safetensors"),
    ] {
        done(at, &["quantize", "--format", format, "-o", file]);
        done(at, &["dequantize", file, "-o", "plain.safetensors"]);
        assert_same(at, file, format, &[]);
        // Rank 4, beside the packed weight; and one that needs the weight's values, decoded for it.
        for adapter in [
            "loras/outline-epoch-20.safetensors",
            "more/stripes.safetensors",
        ] {
            let adapter = format!("{}/demo/{adapter}", env!("CARGO_MANIFEST_DIR"));
            assert_same(at, file, format, &["--lora", &adapter]);
        }
        let packed = latents(at, file, &[]);
        let streamed = latents(at, file, &["--device-budget", "400KiB"]);
        assert_eq!(packed, streamed, "{format}");
    }
}

fn assert_same(at: &Path, file: &str, format: &str, more: &[&str]) {
    let found = values(&latents(at, file, more));
    let expected = values(&latents(at, "plain.safetensors", more));
    assert!(expected.iter().any(|value| *value != 0.0));
    for (found, expected) in found.iter().zip(&expected) {
        assert!(
            (found - expected).abs() <= 1e-4,
            "{format}: {found}, {expected}"
        );
    }
}

fn values(file: &[u8]) -> Vec<f32> {
    let tensors = safetensors::SafeTensors::deserialize(file).unwrap();
    let (chunks, _) = tensors.tensor("latents").unwrap().data().as_chunks();
    let values = chunks.iter().map(|bytes| f32::from_le_bytes(*bytes));
    values.collect()
}

#[test]
fn what_is_packed_is_said_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let run = done(
        at,
        &["quantize", "--format", "q8_0", "--dry-run", "-o", "a.gguf"],
    );
    assert!(run.stdout.contains("become q8_0; kept: "), "{}", run.stdout);
    assert_eq!(std::fs::read_dir(at).unwrap().count(), 0);
    let run = done(
        at,
        &[
            "quantize",
            "--format",
            "q8_0",
            "--json",
            "--keep",
            "single_transformer_blocks.*",
            "-o",
            "a.gguf",
        ],
    );
    let document: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(document["version"], 1);
    assert_eq!(document["format"], "q8_0");
    assert_eq!(
        document["weights_packed"],
        document["plan"]["packed"]["weights"]
    );
    assert!(document["plan"]["kept"]["kept by a pattern"]["weights"].as_u64() > Some(0));
    // Once more, it is the same bytes.
    done(
        at,
        &[
            "quantize", "a.gguf", "--format", "q8_0", "--pack", "*", "-o", "b.gguf",
        ],
    );
    done(at, &["dequantize", "b.gguf", "-o", "b.safetensors"]);
    done(
        at,
        &[
            "quantize",
            "b.safetensors",
            "--format",
            "q8_0",
            "--pack",
            "*",
            "-o",
            "c.gguf",
        ],
    );
    let run = done(at, &["inspect", "c.gguf", "--compare", "b.gguf"]);
    assert!(
        run.stdout.contains(" 0 with other values"),
        "{}",
        run.stdout
    );
}

/// Its bytes would go over as they are, and the new file would be said to be decoded.
#[test]
fn a_weight_whose_description_is_damaged_is_not_taken_for_plain_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    done(at, &["quantize", "--format", "nf4", "-o", "a.safetensors"]);
    let mut bytes = std::fs::read(at.join("a.safetensors")).unwrap();
    let key = b"\"blocksize\"";
    let place = bytes.windows(key.len()).position(|found| found == key);
    bytes[place.unwrap() + 1] = b'B';
    std::fs::write(at.join("a.safetensors"), bytes).unwrap();
    let arguments = ["dequantize", "a.safetensors", "-o", "b.safetensors"];
    refused(at, &arguments, "quant_state.bitsandbytes__nf4");
    assert!(!at.join("b.safetensors").exists());
}

#[test]
fn files_become_safetensors() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    done(at, &["quantize", "--format", "q8_0", "-o", "a.gguf"]);
    std::fs::create_dir(at.join("new")).unwrap();
    let run = done(at, &["convert", "a.gguf", "-o", "new", "--json"]);
    let document: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert!(document["files"][0]["weights_decoded"].as_u64() > Some(0));
    let run = done(at, &["inspect", "new/a.safetensors", "--compare", "a.gguf"]);
    assert!(
        run.stdout.contains(" 0 with other values"),
        "{}",
        run.stdout
    );
}

#[test]
fn what_cannot_be_done_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let quantize = |format, output| vec!["quantize", "--format", format, "-o", output];
    refused(
        at,
        &quantize("q8_1", "a.gguf"),
        "of the format q8_1 are read, but not written",
    );
    refused(
        at,
        &quantize("q9_0", "a.gguf"),
        "no weight format is called `q9_0`",
    );
    refused(
        at,
        &quantize("sdnq", "a.safetensors"),
        "are written as sdnq_int8 or sdnq_uint4",
    );
    refused(at, &quantize("nf4", "a.gguf"), "for which GGUF has no type");
    refused(
        at,
        &quantize("q8_0", "a.safetensors"),
        "for which safetensors has no type",
    );
    let run = overglaze(at, &quantize("q8_0", "a.bin"));
    assert_eq!(run.code, Some(2));
    assert!(
        run.stderr
            .contains("let the name end in .safetensors or .gguf"),
        "{}",
        run.stderr
    );
    let mut args = quantize("q8_0", "a.gguf");
    args.extend(["--keep", "no_such.*"]);
    refused(at, &args, "`no_such.*` matches no weight of the model");
    let mut args = quantize("q8_0", "a.gguf");
    args.extend(["--keep", "*"]);
    refused(at, &args, "has no weight to pack as q8_0");
    assert_eq!(
        std::fs::read_dir(at).unwrap().count(),
        0,
        "nothing is left behind"
    );
}
