//! The only place that prints.

use std::{fmt::Display, io::Write as _};

/// One line on stdout. A closed pipe is not our error.
pub(crate) fn say(line: impl Display) {
    let mut stdout = std::io::stdout().lock();
    let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
}

/// One line on stderr.
pub(crate) fn complain(line: impl Display) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}
