//! Output of the helper: lines on standard output, without anything secret.

use std::io::{self, Write as _};

/// Prints a line. A reader that has gone is no failure.
pub fn say(line: String) {
    let _ = writeln!(io::stdout(), "{line}");
}
