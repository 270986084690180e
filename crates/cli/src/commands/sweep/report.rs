//! What a sweep tells: a table, or one JSON document.

use std::{collections::BTreeMap, path::PathBuf};

use serde::Serialize;

use crate::{
    Residency, commands::JSON_VERSION, loras::Skipped, residency::grouped,
    restoration::Restoration, table,
};

/// The JSON document of a sweep.
#[derive(Clone, Debug, Serialize)]
pub struct SweepReport {
    /// Version of the document.
    pub version: u32,
    /// The contact sheet.
    pub sheet: PathBuf,
    /// One entry a column, without the first.
    pub loras: Vec<LoraReport>,
    /// Whether bytes and output of the base are what they were.
    pub base_restored: bool,
    /// Where the weights were.
    pub residency: Residency,
    /// What was left out, and why.
    pub skipped: Vec<Skipped>,
    /// Columns whose results hold NaN or infinite values; left out where there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub non_finite: Vec<String>,
    /// The tensor of each column in the file of latents, where one is saved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latents: Option<BTreeMap<String, String>>,
}

/// One column of a sweep.
#[derive(Clone, Debug, Serialize)]
pub struct LoraReport {
    /// Name of the LoRA, with its strength where several are tried.
    pub name: String,
    /// Its strength.
    pub strength: f32,
    /// Keys of its file that have an effect.
    pub keys_applied: usize,
    /// Keys that have none.
    pub keys_unmatched: usize,
    /// Microseconds to mount it.
    pub mount_us: f64,
    /// Microseconds to unmount it.
    pub unmount_us: f64,
    /// Seconds of sampling an image.
    pub seconds_per_image: f64,
    /// Bytes of base weights written or moved by mounting and unmounting it.
    pub base_bytes_moved: u64,
    /// What is to be said of it as a whole; left out where nothing is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl SweepReport {
    pub(super) fn new(
        sheet: PathBuf,
        loras: Vec<LoraReport>,
        restoration: Restoration,
        (residency, skipped): (Residency, Vec<Skipped>),
    ) -> Self {
        let base_restored = restoration == Restoration::Identical;
        Self {
            version: JSON_VERSION,
            sheet,
            loras,
            base_restored,
            residency,
            skipped,
            non_finite: Vec::new(),
            latents: None,
        }
    }

    /// The report as text.
    pub(super) fn text(&self, base_seconds_per_image: f64, fingerprint: &str) -> String {
        let dash = || String::from("-");
        let seconds = format!("{base_seconds_per_image:.3}");
        let mut rows = vec![vec![
            "no LoRA".into(),
            dash(),
            dash(),
            dash(),
            seconds,
            dash(),
        ]];
        rows.extend(self.loras.iter().map(LoraReport::row));
        let mut text = table::of_numbers(&HEADER, &rows);
        for skipped in &self.skipped {
            text.push_str(&format!("\n{}", skipped.line()));
        }
        let check = if self.base_restored {
            "identical"
        } else {
            "CHANGED"
        };
        let short = fingerprint.get(..16).unwrap_or(fingerprint);
        text.push_str(&format!(
            "\n{}\nsheet: {}\nbase restored: {check} (bytes {short}, and its output)",
            self.residency.describe(),
            self.sheet.display(),
        ));
        text
    }
}

impl LoraReport {
    fn row(&self) -> Vec<String> {
        vec![
            self.name.clone(),
            format!("{} / {}", self.keys_applied, self.keys_unmatched),
            format!("{:.0}", self.mount_us),
            format!("{:.0}", self.unmount_us),
            format!("{:.3}", self.seconds_per_image),
            grouped(self.base_bytes_moved),
        ]
    }
}

const HEADER: [&str; 6] = [
    "LoRA",
    "keys applied / left over",
    "mount µs",
    "unmount µs",
    "s/image",
    "base bytes moved",
];
