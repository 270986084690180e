//! Every malformed GGUF file is refused with its own words, at once, and at little cost.

use std::{fs, path::PathBuf, time::Instant};

use bytes::Bytes;
use overglaze_stream::{open, source::GgufSource};

use crate::{
    gguf_bytes::{array, block_types, gguf, key, tensor, text},
    thread_heap::peak_of,
    written::chain,
};

/// File, and its message after the file's name.
const VERDICTS: &[(&str, &str)] = &[
    (
        "bad_magic",
        " is a file that begins with `GGUX`, not a GGUF file; check the path, or fetch it again",
    ),
    (
        "big_endian",
        " is a big-endian GGUF file, expected a little-endian one; convert it with the tool that wrote it",
    ),
    (
        "tensors_2p61",
        " announces 2305843009213693952 tensors, expected at most 0; the file is truncated or damaged, so fetch it again",
    ),
    (
        "kv_u64max",
        " announces 18446744073709551615 metadata keys, expected at most 0; the file is truncated or damaged, so fetch it again",
    ),
    (
        "string_len_big",
        " announces 1 metadata keys, expected at most 0; the file is truncated or damaged, so fetch it again",
    ),
    (
        "array_n_2p62",
        ": the array of `k` at byte 49 takes 18446744073709551615 bytes, but 0 are left; the file is truncated or \
         damaged, so fetch it again",
    ),
    (
        "array_bad_type",
        ": the key `k` has a value of the unknown type 77, expected 0 to 12; the file is damaged, so fetch it again",
    ),
    (
        "bool_2",
        ": the key `k` has the boolean 2, expected 0 or 1; the file is damaged, so fetch it again",
    ),
    (
        "not_utf8",
        ": the metadata key number 0 is not UTF-8; the file is damaged, so fetch it again",
    ),
    (
        "ndims_8",
        ": the tensor `a` has 8 dimensions, expected at most 4; the file is damaged, so fetch it again",
    ),
    (
        "dims_2p40",
        ": the tensor `a` has a shape of more bytes than a file can hold: [1099511627776, 1099511627776]; the file \
         is damaged, so fetch it again",
    ),
    (
        "dims_int64max_x2",
        ": the tensor `a` has a shape of more bytes than a file can hold: [2, 9223372036854775807]; the file is \
         damaged, so fetch it again",
    ),
    (
        "q4_not_block_multiple",
        ": the tensor `a` has rows of 33 elements, expected a multiple of 32, the block of Q4_0; the file is \
         damaged, so fetch it again",
    ),
    (
        "unknown_ggml_type",
        ": the tensor `a` has the unknown type 200; quantize its original weights to a type that is read here",
    ),
    (
        "removed_type_4",
        ": the tensor `a` has the type 4 (Q4_2), which ggml removed; quantize its original weights again with a \
         current program, to a type of 4 bits that is still in use",
    ),
    (
        "offset_past_end",
        ": the tensor `a` lies at bytes 1048576 to 1048704 of 128 data bytes; the file is truncated or damaged, so \
         fetch it again",
    ),
    (
        "offset_wrap",
        ": the tensor `a` lies at bytes 18446744073709551584 to 18446744073709551615 of 128 data bytes; the file is \
         truncated or damaged, so fetch it again",
    ),
    (
        "offset_unaligned",
        ": the tensor `a` lies at data byte 3, expected a multiple of 32; the file is damaged, so fetch it again",
    ),
    (
        "truncated_data",
        ": the tensor `a` lies at bytes 0 to 4096 of 128 data bytes; the file is truncated or damaged, so fetch it \
         again",
    ),
    (
        "overlap",
        ": the tensors `b` and `a` overlap at data byte 64; write the file again with one range for each",
    ),
    (
        "dup_tensor",
        ": the tensor `a` is listed twice; write the file again with unique names",
    ),
    (
        "dup_kv",
        ": the metadata key `k` is listed twice; write the file again with unique keys",
    ),
    (
        "align_0",
        ": the key `general.alignment` is the U32 0, expected a 32-bit unsigned power of two, 8 or more; write the \
         file again",
    ),
    (
        "align_3",
        ": the key `general.alignment` is the U32 3, expected a 32-bit unsigned power of two, 8 or more; write the \
         file again",
    ),
    (
        "align_2147483648",
        ": the tensor `a` lies at bytes 0 to 128 of 0 data bytes; the file is truncated or damaged, so fetch it again",
    ),
    (
        "truncated_header",
        ": the entry of the tensor `abcdef` at byte 54 takes 8 bytes, but 2 are left; the file is truncated or \
         damaged, so fetch it again",
    ),
];

/// None of the files has more than 400 bytes.
const MAX_HEAP_BYTES: isize = 16 << 10;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/malformed")
}

fn refusal(file: Vec<u8>) -> String {
    let file = Bytes::from(file);
    let refused = GgufSource::from_bytes("memory", file, &block_types);
    chain(&refused.unwrap_err())
}

#[test]
fn every_file_gets_its_verdict() {
    let mut wrong = Vec::new();
    for (stem, words) in VERDICTS {
        let path = folder().join(format!("gguf_{stem}.gguf"));
        let (opened, heap_bytes) = peak_of(|| open(&path, &block_types));
        let found = opened.map_or_else(|error| chain(&error), |_| String::new());
        if found != format!("`{}`{words}", path.display()) || heap_bytes > MAX_HEAP_BYTES {
            wrong.push(format!("{stem}: found `{found}`, {heap_bytes} bytes"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_table_holds_every_file() {
    let files = fs::read_dir(folder()).unwrap();
    let num_files = files
        .filter(|file| file.as_ref().unwrap().path().extension().unwrap() == "gguf")
        .count();
    assert_eq!(num_files, VERDICTS.len());
}

#[test]
fn what_the_files_leave_out_is_refused_too() {
    let cases: &[(Vec<u8>, &str)] = &[
        (
            b"GGUF\x01\0\0\0".to_vec(),
            "`memory` is of GGUF version 1, expected 2 or 3; convert the original weights again with a current program",
        ),
        (b"GGUF\0\0\0\0".to_vec(), "`memory` is of GGUF version 0"),
        (b"GG".to_vec(), "`memory` is a file that begins with `GG`"),
        (
            gguf(
                [0, 1],
                &[(1_u64 << 40).to_le_bytes().to_vec(), vec![b'a'; 24]],
            ),
            "`memory`: the metadata key number 0 at byte 32 takes 1099511627776 bytes, but 32 are left; the file is \
             truncated or damaged, so fetch it again",
        ),
        (
            gguf([0, 1], &[key("k", 13, &[])]),
            "`memory`: the key `k` has a value of the unknown type 13",
        ),
        (
            gguf([0, 1], &[key("k", 8, b"\x01\0\0\0\0\0\0\0\xFF")]),
            "`memory`: the text of `k` is not UTF-8",
        ),
        (
            gguf([0, 1], &[key("k", 9, &array(7, 3, &[1, 0, 3]))]),
            "`memory`: the key `k` has the boolean 3, expected 0 or 1",
        ),
        (
            gguf(
                [0, 1],
                &[key("general.alignment", 10, &[64, 0, 0, 0, 0, 0, 0, 0])],
            ),
            "`memory`: the key `general.alignment` is the U64 64, expected a 32-bit unsigned power of two",
        ),
        (
            gguf([1, 0], &[tensor("a", &[1, 1, u64::MAX, 0], 0, 0)]),
            "`memory`: the tensor `a` has a shape of more bytes than a file can hold",
        ),
        (
            gguf([1, 0], &[tensor("a", &[1 << 62], 0, 0)]),
            "`memory`: the tensor `a` has a shape of more bytes than a file can hold: [4611686018427387904]",
        ),
        (
            gguf([1, 0], &[tensor("a", &[32], 31, 0)]),
            "`memory`: the tensor `a` has the type 31 (Q4_0_4_4), which ggml removed; quantize its original weights \
             again with a current program, to Q4_0 without interleaving",
        ),
    ];
    for (file, words) in cases {
        let found = refusal(file.clone());
        assert!(
            found.starts_with(words),
            "expected `{words}`, found `{found}`"
        );
    }
    for id in [4, 5, 31, 32, 33, 36, 37, 38] {
        let found = refusal(gguf([1, 0], &[tensor("a", &[32], id, 0)]));
        assert!(found.contains("which ggml removed"), "{found}");
    }
}

#[test]
fn a_noted_shape_must_be_one_of_the_tensor() {
    let number = |number: u32| number.to_le_bytes().to_vec();
    let check = |type_id: u32, value: &[u8], found: &str| {
        let noted = key("comfy.gguf.orig_shape.a", type_id, value);
        let mut file = gguf([1, 1], &[noted, tensor("a", &[4], 24, 0)]);
        file.extend([0; 4]);
        let expected = format!(
            "`memory`: the key `comfy.gguf.orig_shape.a` is {found}, expected a list of whole numbers whose product is 4, \
             the tensor's elements; convert the file again"
        );
        assert_eq!(refusal(file), expected);
    };
    check(4, &number(4), "the U32 4");
    check(
        9,
        &array(4, 2, &[number(2), number(3)].concat()),
        "the Array [2,3]",
    );
    check(
        9,
        &array(5, 2, &[number(u32::MAX), number(4)].concat()),
        "the Array [-1,4]",
    );
    check(9, &array(6, 1, &4_f32.to_le_bytes()), "the Array [4.0]");
    check(
        9,
        &array(4, 65, &number(1).repeat(65)),
        &format!("the Array [{}1]", "1,".repeat(64)),
    );
    let huge = [u64::MAX, u64::MAX].map(u64::to_le_bytes).concat();
    check(
        9,
        &array(10, 2, &huge),
        "the Array [18446744073709551615,18446744073709551615]",
    );
}

/// A file of a thousand times the bytes costs neither time nor memory by them.
#[test]
fn large_hostile_files_are_cheap() {
    let nested = array(9, 1, &[]).repeat(100_000);
    let names: Vec<_> = (0..80)
        .map(|index| key(&format!("{index:0>60000}"), 0, &[1]))
        .collect();
    let texts: Vec<_> = (0..300)
        .map(|index| key(&format!("{index}"), 8, &text(&"x".repeat(16_000))))
        .collect();
    let tensors: Vec<_> = (0..80)
        .map(|index| tensor(&format!("{index:0>60000}"), &[0], 0, 0))
        .collect();
    let entries = [vec![0; 24 * 70_000]];
    let cases: &[(Vec<u8>, &str)] = &[
        (
            gguf([0, 1], &[key("k", 9, &nested)]),
            "the key `k` nests arrays more than 4 deep; the file is damaged, so fetch it again",
        ),
        (
            gguf([0, 80], &names),
            "announces 4200000 bytes of metadata keys, expected at most 4194304; the file is truncated or damaged",
        ),
        (
            gguf([0, 300], &texts),
            "bytes of metadata, expected at most 4194304",
        ),
        (
            gguf([80, 0], &tensors),
            "bytes of tensor names, expected at most 4194304",
        ),
        (
            gguf([70_000, 0], &entries),
            "announces 70000 tensors, expected at most 65536",
        ),
        (
            gguf(
                [0, 2],
                &[
                    key("k", 9, &array(8, 1 << 21, &vec![0; 8 << 21])),
                    vec![1; 8],
                ],
            ),
            "the metadata key number 1 at byte",
        ),
    ];
    for (file, words) in cases {
        let file = Bytes::copy_from_slice(file);
        let began = Instant::now();
        let (opened, heap_bytes) = peak_of(|| GgufSource::from_bytes("memory", file, &block_types));
        let found = chain(&opened.unwrap_err());
        assert!(found.contains(words), "expected `{words}`, found `{found}`");
        assert!(heap_bytes < 64 << 20, "{words}: {heap_bytes} bytes");
        assert!(began.elapsed().as_secs() < 10, "{words}");
    }
}

#[test]
fn a_header_ends_before_a_limit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long.gguf");
    let start = gguf([0, 1], &[key("k", 9, &array(0, 200_000_000, &[]))]);
    fs::write(&path, start).unwrap();
    // Sparse: nothing of it is on the disk.
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_len(300_000_000).unwrap();
    let (opened, heap_bytes) = peak_of(|| open(&path, &block_types));
    let expected = "the array of `k` goes past byte 100000000, before which metadata and tensor list must end; the file \
                    is damaged, so fetch it again";
    let found = chain(&opened.unwrap_err());
    assert_eq!(found, format!("`{}`: {expected}", path.display()));
    assert!(heap_bytes <= MAX_HEAP_BYTES, "{heap_bytes} bytes");
}

#[test]
fn sizes_that_add_up_to_nothing_are_refused() {
    let half = |name, offset| tensor(name, &[1 << 61], 0, offset);
    let found = refusal(gguf([2, 0], &[half("a", 0), half("b", 1 << 63)]));
    let expected =
        "`memory`: the tensor `a` lies at bytes 0 to 9223372036854775808 of 0 data bytes";
    assert!(found.starts_with(expected), "{found}");
}

#[test]
fn the_most_that_is_read_fits_in_memory() {
    let tensors: Vec<_> = (0..1 << 16)
        .map(|index| tensor(&format!("{index:0>60}"), &[0, 1, 1, 1], 0, 0))
        .collect();
    let file = Bytes::from(gguf([1 << 16, 0], &tensors));
    let (source, heap_bytes) = peak_of(|| GgufSource::from_bytes("memory", file, &block_types));
    assert!(source.is_ok());
    assert!(heap_bytes < 64 << 20, "{heap_bytes} bytes");
}
