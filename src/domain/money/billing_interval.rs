//! The interval at which a subscription is charged.

use serde::Deserialize;
use utoipa::ToSchema;

use crate::domain::words::words;

words! {
    /// The interval at which a subscription is charged.
    #[derive(Default, PartialOrd, Ord, Deserialize, ToSchema)]
    pub enum BillingInterval {
        #[default]
        Month = "month",
        Year = "year",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_they_are_written() {
        for interval in BillingInterval::ALL {
            assert_eq!(BillingInterval::parse(interval.word()), Some(interval));
            assert_eq!(serde_json::to_value(interval).unwrap(), interval.word());
        }
        assert_eq!(BillingInterval::parse("week"), None);
    }
}
