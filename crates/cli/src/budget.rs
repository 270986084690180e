//! Memory budgets as people write them: `6GiB`, `50%`, `3_000_000`.
//!
//! A percentage is of the memory that is *free* when the command starts. It can be told for host memory on
//! Linux (`MemAvailable`); elsewhere bytes are asked for.

use std::{fs, str::FromStr};

use crate::CliError;

/// A budget as it was written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Budget {
    /// So many bytes.
    Bytes(u64),
    /// So many hundredths of the free memory.
    Percent(f64),
}

impl FromStr for Budget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let written = text.replace('_', "");
        let end = written
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(written.len());
        let (number, unit) = written.split_at(end);
        let number: f64 = number.parse().map_err(|_| EXPECTED.to_owned())?;
        match unit.trim() {
            "%" if number > 0.0 && number <= 100.0 => Ok(Self::Percent(number)),
            "%" => Err("a percentage is above 0 and at most 100".into()),
            unit => bytes(number, unit),
        }
    }
}

/// The memory that a device's weights lie in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightMemory {
    /// The host's, as on every CPU device.
    Host,
    /// A card's own.
    Card,
}

/// The bytes of weights that may be in place at once, under `--host-budget` and `--device-budget`.
///
/// In host memory the smaller of both holds.
///
/// # Errors
/// [`CliError::SettingUnused`] for a host budget on a card, [`CliError::FreeMemoryUnknown`] for a percentage
/// on a card or of a system that does not tell.
pub fn weight_budget(
    memory: WeightMemory,
    host: Option<Budget>,
    device: Option<Budget>,
) -> Result<Option<u64>, CliError> {
    let free = match (memory, host) {
        (WeightMemory::Host, _) => free_host_bytes(),
        (WeightMemory::Card, None) => None,
        (WeightMemory::Card, Some(_)) => {
            return Err(CliError::SettingUnused {
                flag: HOST_FLAG,
                to: "a card".into(),
                why: "its weights pass from the mapped file to the card and none stay in host memory, so give \
                      --device-budget instead",
            });
        }
    };
    let mut smallest = None;
    for (flag, budget) in [(DEVICE_FLAG, device), (HOST_FLAG, host)] {
        if let Some(budget) = budget {
            let bytes = budget.bytes(free, flag, memory)?;
            smallest = Some(smallest.map_or(bytes, |least: u64| least.min(bytes)));
        }
    }
    Ok(smallest)
}

impl Budget {
    fn bytes(
        self,
        free: Option<u64>,
        flag: &'static str,
        memory: WeightMemory,
    ) -> Result<u64, CliError> {
        let of = match memory {
            WeightMemory::Host => "this system",
            WeightMemory::Card => "a card",
        };
        match (self, free) {
            (Self::Bytes(bytes), _) => Ok(bytes),
            (Self::Percent(percent), Some(free)) => Ok(whole(free as f64 * percent / 100.0)),
            (Self::Percent(percent), None) => {
                Err(CliError::FreeMemoryUnknown { flag, percent, of })
            }
        }
    }
}

fn bytes(number: f64, unit: &str) -> Result<Budget, String> {
    let unit = unit.to_ascii_lowercase();
    let factor = UNITS
        .iter()
        .find(|(name, _)| *name == unit)
        .ok_or(EXPECTED)?
        .1;
    let bytes = number * factor;
    if !(1.0..MAX_BYTES).contains(&bytes) {
        return Err("a budget is at least 1 byte and less than 8 EiB".into());
    }
    Ok(Budget::Bytes(whole(bytes)))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked to lie between 0 and 2^63"
)]
fn whole(bytes: f64) -> u64 {
    bytes as u64
}

/// Bytes that programs can have without swapping.
fn free_host_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

const UNITS: [(&str, f64); 10] = [
    ("", 1.0),
    ("b", 1.0),
    ("kib", 1024.0),
    ("mib", 1_048_576.0),
    ("gib", 1_073_741_824.0),
    ("tib", 1_099_511_627_776.0),
    ("kb", 1e3),
    ("mb", 1e6),
    ("gb", 1e9),
    ("tb", 1e12),
];

const EXPECTED: &str =
    "expected bytes (3_000_000), a size (6GiB, 800MB) or a percentage of the free memory (50%)";

/// 2^63.
const MAX_BYTES: f64 = 9_223_372_036_854_775_808.0;

const HOST_FLAG: &str = "--host-budget";

const DEVICE_FLAG: &str = "--device-budget";
