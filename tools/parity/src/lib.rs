//! Runs the golden cases of the Python peers against this workspace.
//!
//! A case is one safetensors file whose metadata names its `area`; `cases/README.md` has the format. A
//! case that no area handles yet *fails as unsupported*: nothing is skipped silently.

mod any_layer;
mod areas;
mod case;
mod compare;
mod module_case;
mod report;
mod run;

pub use any_layer::AnyLayer;
pub use case::Case;
pub use compare::{Comparison, Tolerance};
pub use module_case::ModuleCase;
pub use report::{AreaSummary, Failure, Report};
pub use run::{CaseResult, Outcome, run_all};
