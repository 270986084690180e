//! The format: finding a weight's tensors, checking and decoding them.

use crate::{
    Encode, FormatEntry, FoundPart, FoundWeight, Part, Parts, QuantError, QuantFormat, TensorFile,
    TensorHead, expect_part, kernels::WeightRows, num_values,
};

use super::{
    NESTED, SCALE, ZERO_POINT,
    codes::Codes,
    config::Config,
    decode::SdnqWeight,
    encode::{Int8, Uint4},
    layout::{Layout, Shapes},
    settings::{CONFIG, Settings},
    svd::{DOWN, UP},
};

inventory::submit! { FormatEntry(&Sdnq) }

/// One to eight bits and a share of a scale a value.
#[derive(Debug)]
struct Sdnq;

impl QuantFormat for Sdnq {
    fn name(&self) -> &'static str {
        "sdnq"
    }

    fn find(&self, name: &str, file: &dyn TensorFile) -> Result<Option<FoundWeight>, QuantError> {
        let Some(module) = name.strip_suffix("weight") else {
            return Ok(None);
        };
        let (Some(values), Some(scale)) = (file.head(name), file.head(&format!("{module}{SCALE}")))
        else {
            return Ok(None);
        };
        let config = match file.text(CONFIG) {
            Some(text) => match Config::read(self.name(), text)? {
                Some(config) => config.of(name),
                // The weights are another library's.
                None => return Ok(None),
            },
            None => Config::default(),
        };
        let codes = self.codes_of(name, values, &config)?;
        let is_codebook = config.use_codebook == Some(true);
        let up = file.head(&format!("{module}{UP}"));
        let shapes = Shapes {
            values: values.shape,
            scale: scale.shape,
            up: up.as_ref().map(|up| up.shape),
        };
        let layout = Layout::of(shapes, codes, is_codebook);
        let layout = layout.ok_or_else(|| self.bad_shapes(values.shape, scale.shape, codes))?;
        let settings = self.settings(values, &layout, codes, &config)?;
        let mut parts = vec![FoundPart::in_file(Part::VALUES, name)];
        for part in [SCALE, ZERO_POINT, UP, DOWN].into_iter().chain(NESTED) {
            let tensor = format!("{module}{part}");
            if file.head(&tensor).is_some() {
                parts.push(FoundPart::in_file(part, tensor));
            }
        }
        parts.push(FoundPart::Known(settings.part()));
        Ok(Some(FoundWeight {
            format: &Self,
            shape: layout.shape,
            parts,
            described_by: Vec::new(),
        }))
    }

    fn validate(&self, shape: [usize; 2], parts: &Parts) -> Result<(), QuantError> {
        let [d_output, d_input] = shape;
        let num_values = num_values(self.name(), shape)?;
        let missing = QuantError::MissingPart {
            format: self.name(),
            part: "settings",
        };
        let settings = Settings::of(parts).ok_or(missing)?;
        let [chunk_len, chunk_bytes] = settings.codes.chunk();
        let num_bytes = num_values.div_ceil(chunk_len) * chunk_bytes * usize::from(settings.stride);
        expect_part(self.name(), parts, Part::VALUES, num_bytes)?;
        let num_scales = number_of_scales(settings, shape);
        self.expect_scalars(parts, SCALE, &[num_scales, 1])?;
        for part in [ZERO_POINT]
            .into_iter()
            .filter(|part| parts.get(part).is_some())
        {
            self.expect_scalars(parts, part, &[num_scales, 1])?;
        }
        for part in NESTED.into_iter().filter(|part| parts.get(part).is_some()) {
            self.expect_scalars(parts, part, &[1])?;
        }
        let (up, down) = (parts.get(UP), parts.get(DOWN));
        if up.is_some() || down.is_some() {
            let rank = up.and_then(Part::scalars).map_or(0, |up| up.len());
            let rank = rank.checked_div(d_output).unwrap_or(0);
            self.expect_scalars(parts, UP, &[rank * d_output])?;
            self.expect_scalars(parts, DOWN, &[rank * d_input])?;
        }
        Ok(())
    }

    fn decode_rows(&self, rows: &WeightRows<'_>, values: &mut [f32]) {
        let weight = SdnqWeight::of(rows.parts(), rows.d_input());
        let mut codes = vec![0; rows.d_input()];
        for (row, values) in rows.rows().zip(values.chunks_exact_mut(rows.d_input())) {
            weight.decode_row(row, &mut codes, values);
        }
    }

    fn encoders(&self) -> &'static [&'static dyn Encode] {
        &[&Int8(&Self), &Uint4(&Self)]
    }
}

/// Scales of a weight of `[d_output, d_input]`, tables included, where it has more than one.
fn number_of_scales(settings: Settings, [d_output, _]: [usize; 2]) -> usize {
    let table = if settings.is_codebook {
        1 << settings.codes.bits
    } else {
        1
    };
    let size = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
    [
        size(settings.num_groups),
        size(settings.num_positions),
        table,
    ]
    .into_iter()
    .fold(d_output, usize::saturating_mul)
}

impl Sdnq {
    /// What the codes are: as the settings say, else as the stored type does.
    fn codes_of(
        &self,
        name: &str,
        values: TensorHead<'_>,
        config: &Config,
    ) -> Result<Codes, QuantError> {
        let stored = match values.tag {
            "I8" => Some("int8"),
            "F8_E4M3" => Some("float8_e4m3fn"),
            "F8_E5M2" => Some("float8_e5m2"),
            _ => None,
        };
        let told = config.weights_dtype.as_deref();
        let known = stored.or(told).and_then(Codes::named);
        known.ok_or_else(|| QuantError::BadDescription {
            format: self.name(),
            place: name.into(),
            found: match told {
                Some(told) => format!("has codes of the type `{told}`"),
                None => format!("is stored as {}, and nothing says what its codes are", values.tag),
            },
            expected: "integers or floats of 1 to 8 bits, told by quantization_config.json beside the file".into(),
        })
    }

    fn settings(
        &self,
        values: TensorHead<'_>,
        layout: &Layout,
        codes: Codes,
        config: &Config,
    ) -> Result<Settings, QuantError> {
        if config.use_codebook_scale == Some(true) {
            return Err(QuantError::BadDescription {
                format: self.name(),
                place: CONFIG.into(),
                found: "asks for a codebook of scales".into(),
                expected: "scales that are numbers".into(),
            });
        }
        let number = |size: usize| u32::try_from(size).unwrap_or(u32::MAX);
        let hadamard = match config.use_hadamard {
            Some(true) => hadamard_len(layout, config.hadamard_group_size.unwrap_or(256)),
            _ => 0,
        };
        Ok(Settings {
            codes,
            stride: if values.tag == "I64" { 8 } else { 1 },
            is_codebook: config.use_codebook == Some(true),
            is_transposed: layout.is_transposed,
            num_groups: number(layout.num_groups),
            num_positions: number(layout.num_positions),
            is_conv: layout.shape.len() > 2,
            hadamard: number(hadamard),
        })
    }

    fn bad_shapes(&self, values: &[usize], scale: &[usize], codes: Codes) -> QuantError {
        QuantError::BadPart {
            format: self.name(),
            part: SCALE,
            found: format!("has the shape {scale:?} over values stored as {values:?}"),
            expected: format!(
                "one scale a row, a group or a tensor, for codes of {} bits",
                codes.bits
            ),
        }
    }

    /// That `part` is numbers, as many as one of `counts`.
    fn expect_scalars(
        &self,
        parts: &Parts,
        part: &'static str,
        counts: &[usize],
    ) -> Result<(), QuantError> {
        let found = parts.get(part).ok_or(QuantError::MissingPart {
            format: self.name(),
            part,
        })?;
        let bad = |found: String| QuantError::BadPart {
            format: self.name(),
            part,
            found,
            expected: format!("{} numbers", counts[0]),
        };
        let scalars = found.scalars();
        let scalars = scalars.ok_or_else(|| bad(format!("is of type {}", found.tag)))?;
        match counts.contains(&scalars.len()) {
            true => Ok(()),
            false => Err(bad(format!("has {} numbers", scalars.len()))),
        }
    }
}

/// Values that are turned together: as sdnq chooses them, the largest power of two that divides the channels.
fn hadamard_len(layout: &Layout, asked: i64) -> usize {
    let channels = layout.shape.get(1).copied().unwrap_or(1);
    let asked = usize::try_from(asked).unwrap_or(1).clamp(1, 1 << 16);
    let mut len = asked.min(channels.max(1)).next_power_of_two();
    while len > 1 && channels % len != 0 {
        len /= 2;
    }
    if len < 4 { 0 } else { len }
}
