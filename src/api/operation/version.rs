//! Version of the program.

/// The version, as in `Cargo.toml`.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Commit of the source, or `unknown`.
pub const COMMIT: &str = env!("COMPANION_COMMIT");

/// The text of `--version`.
pub const VERSION_AND_COMMIT: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("COMPANION_COMMIT"), ")");
