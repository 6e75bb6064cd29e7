//! The interval at which a subscription is charged.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The interval at which a subscription is charged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum BillingInterval {
    #[default]
    Month,
    Year,
}

impl BillingInterval {
    pub const ALL: [Self; 2] = [Self::Month, Self::Year];

    /// As it is stored and sent, and the payment provider's word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Month => "month",
            Self::Year => "year",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|interval| interval.as_str() == text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_they_are_written() {
        for interval in BillingInterval::ALL {
            assert_eq!(BillingInterval::parse(interval.as_str()), Some(interval));
            assert_eq!(serde_json::to_value(interval).unwrap(), interval.as_str());
        }
        assert_eq!(BillingInterval::parse("week"), None);
    }
}
