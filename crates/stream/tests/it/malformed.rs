//! Every malformed file is refused with its own words, every odd but right one is read.

use std::path::PathBuf;

use bytes::Bytes;
use overglaze_stream::{MemorySource, WeightSource, open};

use crate::{
    gguf_bytes::block_types,
    written::{chain, with_header},
};

/// File, and what its message must hold; nothing where it must be read.
const VERDICTS: &[(&str, &str)] = &[
    ("st_ok", ""),
    ("st_ok_padded_header", ""),
    ("st_ok_zero_dim", ""),
    ("st_ok_scalar", ""),
    ("st_ok_unordered", ""),
    ("st_ok_only_metadata", ""),
    ("st_empty", "is empty, not a safetensors file"),
    ("st_short", "has 3 bytes, expected 10 or more"),
    (
        "st_len_i64max",
        "header length is 9223372036854775807 bytes",
    ),
    ("st_len_beyond_file", "expected 2 to 202"),
    ("st_len_over_cap", "header length is"),
    ("st_len_zero", "has 8 bytes, expected 10 or more"),
    ("st_not_utf8", "not a JSON object"),
    ("st_header_array", "expected an object of tensors"),
    ("st_dup_keys", "is listed twice"),
    ("st_dup_keys_same", "is listed twice"),
    ("st_offsets_past_end", "of 8 data bytes"),
    ("st_offsets_negative", "`a`: invalid value: integer `-4`"),
    ("st_offsets_float", "expected u64"),
    ("st_size_mismatch", "takes"),
    ("st_shape_overflow_zero", "more bytes than a file can hold"),
    ("st_shape_negative", "`a`: invalid value: integer `-1`"),
    ("st_overlap", "overlap at data byte"),
    ("st_alias", "overlap at data byte 0"),
    ("st_trailing", "4 trailing bytes"),
    ("st_metadata_nonstring", "`__metadata__`: invalid type"),
    ("st_missing_field", "missing field `data_offsets`"),
    ("st_lfs_pointer", "git-LFS pointer"),
    ("st_html", "HTML page"),
    ("renamed_pickle", "pickle renamed to .safetensors"),
    ("renamed_zip", "zip/pickle"),
];

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/malformed")
}

#[test]
fn every_file_gets_its_verdict() {
    let mut wrong = Vec::new();
    for (stem, words) in VERDICTS {
        let path = folder().join(format!("{stem}.safetensors"));
        let found = open(&path, &block_types).map_or_else(|error| chain(&error), |_| String::new());
        let names_file = words.is_empty() || found.contains(stem);
        if found.is_empty() != words.is_empty() || !found.contains(words) || !names_file {
            wrong.push(format!("{stem}: expected `{words}`, found `{found}`"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_table_holds_every_file() {
    let files = std::fs::read_dir(folder()).unwrap();
    let num_files = files
        .filter(|file| file.as_ref().unwrap().path().extension().unwrap() == "safetensors")
        .count();
    assert_eq!(num_files, VERDICTS.len());
}

#[test]
fn headers_are_checked_one_by_one() {
    let tensor = |dtype: &str, shape: &str, begin: u64, end: u64| {
        format!(r#"{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{begin},{end}]}}"#)
    };
    let deep = "[".repeat(100_000);
    let cases: &[(String, &str)] = &[
        (
            format!(r#"{{"a":{}}}"#, tensor("F99", "[2]", 0, 8)),
            "unknown type `F99`",
        ),
        (
            format!(r#"{{"a":{}}}"#, tensor("U8", "[6]", 2, 8)),
            "2 bytes before the tensor `a`",
        ),
        (
            format!(r#"{{"a":{}}}"#, tensor("U8", "[6]", 8, 2)),
            "lies at bytes 8 to 2",
        ),
        (
            format!(r#"{{"a":{}}}"#, tensor("F4", "[3]", 0, 8)),
            "takes 12 bits",
        ),
        (
            format!(
                r#"{{"a":{}}}"#,
                tensor("U8", &format!("[{}1]", "1,".repeat(64)), 0, 8)
            ),
            "at most 64 dimensions",
        ),
        (format!(r#"{{"a":{{"x":{deep}"#), "EOF while parsing a list"),
        (
            r#"{"__metadata__":{},"__metadata__":{}}"#.to_owned(),
            "`__metadata__` stands twice",
        ),
        (
            r#"{"__metadata__":{"format":"pt","format":"np"}}"#.to_owned(),
            "`__metadata__`: the name `format` stands twice",
        ),
    ];
    for (header, words) in cases {
        let file = with_header(header, &[1; 8]);
        let error = MemorySource::from_safetensors("memory", Bytes::from(file)).unwrap_err();
        let found = chain(&error);
        assert!(found.contains(words), "expected `{words}`, found `{found}`");
    }
}

#[test]
fn half_bytes_are_counted_in_bits() {
    let header = r#"{"a":{"dtype":"F4","shape":[4,4],"data_offsets":[0,8]}}"#;
    let file = Bytes::from(with_header(header, &[7; 8]));
    let source = MemorySource::from_safetensors("memory", file).unwrap();
    assert_eq!(source.entries()["a"].num_bytes, 8);
}

#[test]
fn very_long_names_cost_no_quadratic_time_and_fill_no_message() {
    let name = "x".repeat(2_000_000);
    let good = r#"{"dtype":"U8","shape":[8],"data_offsets":[0,8]}"#;
    let file = with_header(format!(r#"{{"{name}":{good}}}"#), &[1; 8]);
    let source = MemorySource::from_safetensors("memory", Bytes::from(file)).unwrap();
    assert!(source.entries().contains_key(&name));
    let file = with_header(format!(r#"{{"{name}":{good}}}"#), &[1; 7]);
    let error = MemorySource::from_safetensors("memory", Bytes::from(file)).unwrap_err();
    assert!(error.to_string().len() < 400);
}

#[test]
fn every_cut_of_a_good_file_is_refused() {
    let whole = std::fs::read(folder().join("st_ok.safetensors")).unwrap();
    for len in 0..whole.len() {
        let cut = Bytes::copy_from_slice(&whole[..len]);
        assert!(
            MemorySource::from_safetensors("cut", cut).is_err(),
            "{len} bytes"
        );
    }
}
