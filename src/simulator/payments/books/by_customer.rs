//! Checkouts by their customer, and objects that the provider forgets.

use serde_json::Value;

use super::{Books, shown_session};

impl Books {
    /// The checkouts of this customer with this status, newest first.
    pub fn sessions(&self, customer: Option<&str>, status: Option<&str>) -> Vec<Value> {
        let fits = |session: &&Value| {
            customer.is_none_or(|customer| session["customer"] == customer)
                && status.is_none_or(|status| session["status"] == status)
        };
        self.sessions.values().rev().filter(fits).cloned().map(shown_session).collect()
    }

    /// A customer, as the API shows it.
    pub fn customer(&self, id: &str) -> Option<&Value> {
        self.customers.get(id)
    }

    /// Removes a customer; subscriptions stay.
    pub fn forget_customer(&mut self, id: &str) {
        self.customers.remove(id);
    }

    /// Forgets a subscription.
    pub fn forget_subscription(&mut self, id: &str) {
        self.subscriptions.remove(id);
    }
}
