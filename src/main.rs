//! The program. All of it is in the library ([`companion::commands`]), where it is compiled once, for this and for tests.

use std::process::ExitCode;

fn main() -> ExitCode {
    companion::commands::main()
}
