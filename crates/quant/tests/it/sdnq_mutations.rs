//! Tensors and settings thrown together: each is a weight that decodes whole, or is refused.

use crate::tensor_file::MemoryFile;

const SIZES: [usize; 10] = [0, 1, 1, 2, 3, 4, 8, 16, 32, 1 << 60];
const TAGS: [&str; 8] = [
    "U8", "I8", "F32", "BF16", "F8_E4M3", "F8_E5M2", "I64", "BOOL",
];
const NAMES: [&str; 14] = [
    "scale",
    "zero_point",
    "scale_2",
    "scale_zero_point",
    "zero_point_scale",
    "zero_point_2",
    "svd_up",
    "svd_down",
    "bias",
    "weight_scale",
    "scale_weight",
    "weight_scale_inv",
    "weight_zero_point",
    "comfy_quant",
];
const DTYPES: [&str; 14] = [
    "uint1", "uint2", "uint3", "uint4", "uint5", "uint6", "uint7", "uint8", "int2", "int4", "int8",
    "fp8", "ufp5", "float9",
];
const SETTINGS: [&str; 6] = [
    r#""use_codebook": true"#,
    r#""use_codebook_scale": true, "scale_dtype": "uint8""#,
    r#""use_hadamard": true"#,
    r#""use_hadamard": true, "hadamard_group_size": 3"#,
    r#""use_quantized_matmul": true"#,
    r#""modules_quant_config": {"*": {"weights_dtype": "uint4"}}"#,
];

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % end
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    fn shape(&mut self) -> Vec<usize> {
        (0..self.below(5)).map(|_| self.of(&SIZES)).collect()
    }

    /// A shape that scales of 4, 8 or 16 rows may have, more often than not.
    fn likely_shape(&mut self) -> Vec<usize> {
        match self.below(6) {
            0 => self.shape(),
            1 => vec![self.of(&[4, 8, 16]), 1],
            2 => vec![self.of(&[4, 8, 16]), self.of(&[1, 2, 4]), 1],
            3 => vec![self.of(&[4, 8]), self.of(&[4, 8, 16])],
            4 => vec![self.of(&[4, 8]), 1, 3],
            _ => vec![1; self.below(3)],
        }
    }

    fn file(&mut self) -> MemoryFile {
        let mut file = MemoryFile::default();
        let any = self.of(&TAGS);
        let tag = self.of(&["U8", "U8", "U8", "I8", any]);
        let shape = match self.below(6) {
            0 => self.shape(),
            1 => vec![self.of(&[4, 8, 16]), self.of(&[4, 12, 16, 32])],
            _ => vec![self.of(&[192, 384, 576, 960])],
        };
        self.put(&mut file, "a.weight", tag, &shape);
        let shape = self.likely_shape();
        self.put(&mut file, "a.scale", "F32", &shape);
        if self.below(2) == 0 {
            self.put(&mut file, "a.zero_point", "F32", &shape);
        }
        for _ in 0..self.below(3) {
            let (name, any) = (self.of(&NAMES), self.of(&TAGS));
            let (tag, shape) = (self.of(&["F32", "F32", any]), self.likely_shape());
            self.put(&mut file, &format!("a.{name}"), tag, &shape);
        }
        if self.below(8) > 0 {
            let config = format!(
                r#"{{"quant_method": "sdnq", "weights_dtype": "{}", {}}}"#,
                self.of(&DTYPES),
                self.of(&SETTINGS)
            );
            file = file.with_text("quantization_config", &config);
        }
        file
    }

    /// With as many bytes as the shape asks for, where that is not absurd.
    fn put(&mut self, file: &mut MemoryFile, name: &str, tag: &str, shape: &[usize]) {
        let size = match tag {
            "F32" => 4,
            "BF16" => 2,
            "I64" => 8,
            _ => 1,
        };
        let mut sizes = shape.iter();
        let num_bytes = sizes.try_fold(size, |num: usize, size| num.checked_mul(*size));
        let num_bytes = num_bytes.filter(|num| *num <= 1 << 20).unwrap_or(0);
        let bytes = (0..num_bytes).map(|_| self.below(256).to_le_bytes()[0]);
        file.set(name, tag, shape, bytes.collect());
    }
}

#[test]
fn whatever_is_not_refused_decodes() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut num_read, mut num_refused) = (0, 0);
    for _ in 0..40_000 {
        let Ok(weight) = random.file().weight("a.weight") else {
            num_refused += 1;
            continue;
        };
        let [d_output, d_input] = weight.shape();
        let mut values = vec![0.0; d_output * d_input];
        weight.decode_rows(0..d_output, &mut values);
        if values.is_empty() {
            continue;
        }
        let mut output = vec![0.0; d_output];
        weight.linear_into(&vec![1.0; d_input], &mut output);
        num_read += usize::from(weight.format().name() == "sdnq");
    }
    // Both happen often enough to mean something.
    assert!(
        num_read > 1000 && num_refused > 1000,
        "{num_read}, {num_refused}"
    );
}
