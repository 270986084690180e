//! The tensors of a weight, by the names sdnq saves them under: `X.weight` with `X.scale` beside it.

use crate::{FoundPart, FoundWeight, Part, QuantError, QuantFormat, TensorFile, TensorHead};

use super::{
    codes::{Codes, WIDE},
    config::{CONFIG, LayerConfig},
    geometry::{Evidence, Geometry},
    layout::Layout,
    number::Number,
    scales::{Names, SCALE, ZERO_POINT},
    svd::{DOWN, UP},
    turn::turned_len,
};

/// The weight `name`, if sdnq packed it.
pub(super) fn find(
    format: &'static dyn QuantFormat,
    name: &str,
    file: &dyn TensorFile,
) -> Result<Option<FoundWeight>, QuantError> {
    let Some(module) = module_of(name) else {
        return Ok(None);
    };
    let (Some(values), Some(_)) = (
        file.head(name),
        file.head(&format!("{module}{}", SCALE.numbers)),
    ) else {
        return Ok(None);
    };
    let config = match file.text(CONFIG) {
        Some(text) => LayerConfig::new(format.name(), name, text)?,
        None => guessed_config(format.name(), module, values, file)?,
    };
    // Of another library, where there is none.
    let Some(config) = config else {
        return Ok(None);
    };
    let search = Search {
        format,
        module,
        file,
        values,
        config,
    };
    match search.number()? {
        Some(number) => search.weight(number).map(Some),
        None => Ok(None),
    }
}

/// What the names of a weight's tensors begin with, its dot included.
fn module_of(name: &str) -> Option<&str> {
    let module = name.strip_suffix("weight")?;
    (module.is_empty() || module.ends_with('.')).then_some(module)
}

/// What tensors tell without a configuration; `None` where they are of no packed weight.
fn guessed_config(
    format: &'static str,
    module: &str,
    values: TensorHead<'_>,
    file: &dyn TensorFile,
) -> Result<Option<LayerConfig>, QuantError> {
    let zero_point = format!("{module}{}", ZERO_POINT.numbers);
    let has_zero_points = file.head(&zero_point).is_some();
    let type_name = match (values.tag, has_zero_points) {
        ("I8", _) => "int8",
        ("F8_E4M3", _) => "float8_e4m3fn",
        ("F8_E5M2", _) => "float8_e5m2",
        // Packed values are in rows of 3, 5, 6 or 7 bytes, or in none.
        ("U8", true) if values.shape.len() > 1 && !matches!(values.shape, [_, 3 | 5 | 6 | 7]) => {
            "uint8"
        }
        ("U8" | "I64", _) => {
            return Err(QuantError::BadDescription {
                format,
                place: format!("{module}weight"),
                found: format!(
                    "has bytes of shape {:?} that may be of several types",
                    values.shape
                ),
                expected: format!("the file's `{CONFIG}` (`{CONFIG}.json`) to name the type"),
            });
        }
        _ => return Ok(None),
    };
    Ok(Some(LayerConfig::of_type(type_name)))
}

struct Search<'a> {
    format: &'static dyn QuantFormat,
    module: &'a str,
    file: &'a dyn TensorFile,
    values: TensorHead<'a>,
    config: LayerConfig,
}

impl<'a> Search<'a> {
    /// The type of the values; `None` where they are no packed values.
    fn number(&self) -> Result<Option<Number>, QuantError> {
        let (type_name, tag) = (&self.config.type_name, self.values.tag);
        if ["F64", "F32", "F16", "BF16"].contains(&tag) {
            return Ok(None);
        }
        let number = Number::from_name(type_name).ok_or_else(|| {
            let found = format!("has `{}weight` in type `{type_name}`", self.module);
            self.bad(
                CONFIG.into(),
                found,
                "a type of the library's own of at most 8 bits, `float8_e4m3fn` or `float8_e5m2`",
            )
        })?;
        if number.tags().contains(&tag) {
            return Ok(Some(number));
        }
        let found = format!("is of type `{tag}`");
        let expected = format!("one of {:?} for `{type_name}`", number.tags());
        Err(self.bad(self.tensor("weight"), found, &expected))
    }

    fn weight(&self, number: Number) -> Result<FoundWeight, QuantError> {
        let has_codebook = self.config.has_codebook;
        if has_codebook && !matches!(number, Number::Uint { .. }) {
            let found = format!("has a codebook for `{}`", self.config.type_name);
            return Err(self.bad(CONFIG.into(), found, "unsigned whole numbers"));
        }
        let geometry = self.geometry(number)?;
        let channels = geometry.shape.get(1).copied().unwrap_or(1);
        let wanted = self.config.turned_len.unwrap_or(1);
        let layout = Layout {
            number,
            num_groups: geometry.num_groups,
            num_positions: geometry.num_positions,
            turned_len: turned_len(channels.max(1), wanted.max(1)),
            has_one_scale: geometry.has_one_scale,
            is_transposed: geometry.is_transposed,
            is_conv: geometry.shape.len() > 2,
            has_codebook,
            has_scale_codebook: self.config.has_scale_codebook,
            has_transposed_svd: self.has_transposed_svd(&geometry.shape)?,
        };
        self.check_zero_points(&layout)?;
        let mut parts = vec![FoundPart::in_file(Part::VALUES, self.tensor("weight"))];
        parts.extend(self.scale_parts(SCALE));
        if layout.has_zero_points() {
            parts.extend(self.scale_parts(ZERO_POINT));
        }
        parts.extend([UP, DOWN].into_iter().filter_map(|part| self.part(part)));
        parts.push(FoundPart::Known(layout.to_part(&self.config.type_name)));
        Ok(FoundWeight {
            format: self.format,
            shape: geometry.shape,
            parts,
            described_by: Vec::new(),
        })
    }

    fn geometry(&self, number: Number) -> Result<Geometry, QuantError> {
        let stored = product(self.values.shape);
        let is_wide = self.values.tag == WIDE;
        let num_bytes = stored.and_then(|num| num.checked_mul(if is_wide { 8 } else { 1 }));
        let num_values = num_bytes.and_then(|bytes| Codes::len(number.bits(), is_wide, bytes));
        let Some(num_values) = num_values.filter(|num| *num > 0) else {
            let found = format!("has the shape {:?}", self.values.shape);
            return Err(self.bad(self.tensor("weight"), found, "whole packs of values"));
        };
        let scale = self.head(SCALE.numbers).map_or(&[][..], |head| head.shape);
        let heads = [UP, "bias"].map(|part| self.head(part));
        let evidence = Evidence {
            values: self.values,
            num_values,
            is_packed: number.bits() < 8,
            scale,
            num_levels: if self.config.has_codebook {
                1 << number.bits()
            } else {
                1
            },
            d_output: heads
                .into_iter()
                .flatten()
                .find_map(|head| head.shape.first().copied()),
            has_integer_products: self.config.has_integer_products,
        };
        Geometry::new(&evidence).map_err(|found| {
            let expected = "one for every row or group of channels";
            self.bad(self.tensor(SCALE.numbers), found, expected)
        })
    }

    /// That there are zero points where the type has them, one for each scale, and none where it has none.
    fn check_zero_points(&self, layout: &Layout) -> Result<(), QuantError> {
        let type_name = &self.config.type_name;
        let scale = self.head(SCALE.numbers).map_or(&[][..], |head| head.shape);
        let zero_point = self.head(ZERO_POINT.numbers);
        let (found, expected) = match (zero_point, layout.has_zero_points()) {
            (None, false) => return Ok(()),
            (Some(head), true) if head.shape == scale => return Ok(()),
            (None, true) => {
                let (format, part) = (self.format.name(), ZERO_POINT.numbers);
                return Err(QuantError::MissingPart { format, part });
            }
            (Some(head), true) => (
                format!("has the shape {:?}", head.shape),
                format!("that of the scales, {scale:?}"),
            ),
            (Some(_), false) => (
                format!("stands beside values of type `{type_name}`"),
                "no zero points for those".into(),
            ),
        };
        Err(self.bad(self.tensor(ZERO_POINT.numbers), found, &expected))
    }

    /// Whether the low-rank part of a weight of `shape` is kept for products of integers.
    fn has_transposed_svd(&self, shape: &[usize]) -> Result<bool, QuantError> {
        let (Some(up), Some(down)) = (self.head(UP), self.head(DOWN)) else {
            return Ok(false);
        };
        let d_output = shape.first().copied().unwrap_or(1);
        let d_input = product(shape.get(1..).unwrap_or(&[])).unwrap_or(usize::MAX);
        let is_plain = |up: &[usize], down: &[usize]| {
            matches!((up, down), ([rows, rank], [also_rank, columns])
                if *rows == d_output && rank == also_rank && *columns == d_input)
        };
        let is_transposed = |up: &[usize], down: &[usize]| {
            matches!((up, down), ([rank, rows], [columns, also_rank])
                if *rows == d_output && rank == also_rank && *columns == d_input)
        };
        match (
            is_plain(up.shape, down.shape),
            is_transposed(up.shape, down.shape),
        ) {
            // Square factors do not tell.
            (true, true) => Ok(self.config.has_integer_products),
            (true, false) => Ok(false),
            (false, true) => Ok(true),
            (false, false) => {
                let found = format!("has the shape {:?} over {:?}", up.shape, down.shape);
                let expected = format!("[{d_output}, rank] over [rank, {d_input}]");
                Err(self.bad(self.tensor(UP), found, &expected))
            }
        }
    }

    fn scale_parts(&self, names: Names) -> impl Iterator<Item = FoundPart> {
        [names.numbers, names.scale, names.zero_point]
            .into_iter()
            .filter_map(|part| self.part(part))
    }

    fn part(&self, part: &'static str) -> Option<FoundPart> {
        let found = self.head(part);
        found.map(|_| FoundPart::in_file(part, self.tensor(part)))
    }

    fn head(&self, part: &str) -> Option<TensorHead<'a>> {
        self.file.head(&self.tensor(part))
    }

    fn tensor(&self, part: &str) -> String {
        format!("{}{part}", self.module)
    }

    fn bad(&self, place: String, found: String, expected: &str) -> QuantError {
        QuantError::BadDescription {
            format: self.format.name(),
            place,
            found,
            expected: expected.into(),
        }
    }
}

fn product(shape: &[usize]) -> Option<usize> {
    let mut sizes = shape.iter();
    sizes.try_fold(1_usize, |product, size| product.checked_mul(*size))
}
