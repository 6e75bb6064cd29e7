//! The binary, the settings that its flags make, and an HTTP client. Shared by all tests that run the service.

use std::{path::Path, process::Command};

use clap::Parser as _;
use companion::{
    config::{Config, Settings},
    net::tls_config,
};

#[derive(clap::Parser)]
struct CommandLine {
    #[command(flatten)]
    settings: Settings,
}

/// The binary of this build.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_companion");

/// The binary, without the environment of the tests.
pub fn companion(directory: &Path) -> Command {
    companion_of(Path::new(PROGRAM), directory)
}

/// The binary of any build, likewise.
pub fn companion_of(program: &Path, directory: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().current_dir(directory);
    command
}

/// The binary's reading of these flags.
pub fn config(flags: &[String]) -> Config {
    Config::check(CommandLine::parse_from(["companion"].into_iter().chain(flags.iter().map(String::as_str))).settings)
        .unwrap()
}

/// A client that follows no redirect.
pub fn http() -> reqwest::Client {
    reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .tls_backend_preconfigured(tls_config(None).unwrap())
        .build()
        .unwrap()
}
