//! Failure of a call to a neighbour.

/// Never holds a URL: some carry keys in their query.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Not reached, too slow, overloaded or out of order: another attempt later may succeed.
    #[error("{neighbour} is unavailable: {reason}")]
    Unavailable { neighbour: &'static str, reason: String },
}
