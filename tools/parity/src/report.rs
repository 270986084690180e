//! The results as a table, as JSON, and as snapshot lines.

use std::collections::BTreeMap;

use comfy_table::{Table, presets::UTF8_FULL_CONDENSED};
use serde::Serialize;

use crate::{CaseResult, Outcome};

/// All results, area by area.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Version of this document.
    pub version: u32,
    /// Area to its sums.
    pub areas: BTreeMap<String, AreaSummary>,
    /// Cases that did not pass.
    pub failures: Vec<Failure>,
}

/// The sums of one area.
#[derive(Clone, Debug, Default, Serialize)]
pub struct AreaSummary {
    /// Cases.
    pub cases: usize,
    /// Cases within tolerance.
    pub passed: usize,
    /// Cases that ran and are wrong.
    pub failed: usize,
    /// Cases nothing here can run yet.
    pub unsupported: usize,
    /// The largest max|error| / max|expected| of the cases that ran.
    pub worst_relative_error: f64,
    /// The largest error over its tolerance of the cases that ran.
    #[serde(skip)]
    pub worst_of_tolerance: f64,
}

/// A case that did not pass.
#[derive(Clone, Debug, Serialize)]
pub struct Failure {
    /// `area/name`.
    pub case: String,
    /// Why.
    pub why: String,
}

impl Report {
    /// Sums `results` up.
    #[must_use]
    pub fn new(results: &[CaseResult]) -> Self {
        let mut areas: BTreeMap<String, AreaSummary> = BTreeMap::new();
        for result in results {
            areas.entry(result.area.clone()).or_default().add(result);
        }
        let failures = results
            .iter()
            .filter(|result| !result.is_passed())
            .map(|result| Failure {
                case: result.case.clone(),
                why: result.why(),
            })
            .collect();
        Self {
            version: 1,
            areas,
            failures,
        }
    }

    /// Whether every case passed.
    #[must_use]
    pub fn is_green(&self) -> bool {
        self.failures.is_empty()
    }

    /// One JSON document.
    ///
    /// # Panics
    /// Never: the report is plain data.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("the report is plain data")
    }

    /// A row per area, then a line per failure.
    #[must_use]
    pub fn to_table(&self) -> String {
        let mut table = Table::new();
        table.load_style(UTF8_FULL_CONDENSED);
        table.set_header([
            "area",
            "cases",
            "passed",
            "failed",
            "unsupported",
            "worst error",
            "of tolerance",
        ]);
        for (name, area) in &self.areas {
            table.add_row([
                name.clone(),
                area.cases.to_string(),
                area.passed.to_string(),
                area.failed.to_string(),
                area.unsupported.to_string(),
                format!("{:.1e}", area.worst_relative_error),
                format!("{:.2}", area.worst_of_tolerance),
            ]);
        }
        let failures: Vec<_> = self
            .failures
            .iter()
            .map(|failure| format!("{}: {}", failure.case, failure.why))
            .collect();
        format!("{table}\n{}", failures.join("\n"))
            .trim_end()
            .to_owned()
    }

    /// One line per case: name, status, error as a power of ten.
    #[must_use]
    pub fn snapshot(results: &[CaseResult]) -> String {
        let line = |result: &CaseResult| match &result.outcome {
            Outcome::Ran(comparison) => {
                let status = if result.is_passed() {
                    "passed"
                } else {
                    "FAILED"
                };
                format!("{} {status} {}", result.case, comparison.power_of_ten())
            }
            Outcome::Failed(_) => format!("{} FAILED", result.case),
            Outcome::Unsupported(_) => format!("{} unsupported", result.case),
        };
        results.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

impl AreaSummary {
    fn add(&mut self, result: &CaseResult) {
        self.cases += 1;
        match &result.outcome {
            Outcome::Ran(comparison) => {
                self.worst_relative_error =
                    self.worst_relative_error.max(comparison.relative_error);
                self.worst_of_tolerance = self.worst_of_tolerance.max(comparison.of_tolerance);
                if result.is_passed() {
                    self.passed += 1;
                } else {
                    self.failed += 1;
                }
            }
            Outcome::Failed(_) => self.failed += 1,
            Outcome::Unsupported(_) => self.unsupported += 1,
        }
    }
}
