//! Reasons for which the demo does not start.

use std::io;

use super::{pairing::DemoPairingError, ports::PortRefused};
use crate::{
    billing::checkout::CheckoutError, config::InvalidSettings, db::engine::error::DbError, server::StartError,
};

/// Reasons for which the demo does not start.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    #[error("{0}")]
    Settings(#[from] InvalidSettings),
    #[error("{0}")]
    Start(#[from] StartError),
    #[error("the database: {0}")]
    Database(#[from] DbError),
    #[error("the checkout: {0}")]
    Checkout(#[from] CheckoutError),
    #[error("{0}")]
    Port(#[from] PortRefused),
    #[error("{0}")]
    Pairing(#[from] DemoPairingError),
    /// With `--nodes`; several lines, perhaps.
    #[error("{0}")]
    Nodes(String),
    #[error("{what}: {cause}")]
    Io { what: String, cause: io::Error },
}

impl DemoError {
    /// The failure of an input or output, with what it was about.
    pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |cause| Self::Io { what, cause }
    }
}
