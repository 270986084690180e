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

impl Budget {
    /// The budget in bytes where it is of host memory.
    ///
    /// # Errors
    /// [`CliError::FreeMemoryUnknown`] for a percentage where the system does not tell.
    pub(crate) fn of_host(self, flag: &'static str) -> Result<u64, CliError> {
        self.of(free_host_bytes(), flag, "the host")
    }

    /// The budget in bytes where it is of a device with a memory of its own.
    ///
    /// # Errors
    /// [`CliError::FreeMemoryUnknown`] for a percentage.
    pub(crate) fn of_device(self, flag: &'static str) -> Result<u64, CliError> {
        self.of(None, flag, "the device")
    }

    fn of(self, free: Option<u64>, flag: &'static str, of: &'static str) -> Result<u64, CliError> {
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
