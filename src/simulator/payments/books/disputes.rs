//! Disputes of charges.

use serde_json::json;

use super::Books;

impl Books {
    /// Disputes a charge (`needs_response`), or closes its dispute with this status; `None`: the latest charge. A
    /// charge that is disputed, or was lost, cannot be paid back.
    pub fn dispute(&mut self, charge: Option<&str>, status: &str, now: i64) {
        let found = self.charges.iter_mut().rev().find(|known| charge.is_none_or(|charge| known["id"] == charge));
        let Some(charge) = found else { return };
        charge["disputed"] = json!(status != "won");
        let id = format!("dp_{}", charge["id"].as_str().unwrap_or_default());
        let dispute = json!({
            "id": id, "object": "dispute", "amount": charge["amount"], "charge": charge["id"], "created": now,
            "currency": charge["currency"], "livemode": false, "payment_intent": charge["payment_intent"],
            "reason": "fraudulent", "status": status,
        });
        let kind = if status == "needs_response" { "charge.dispute.created" } else { "charge.dispute.closed" };
        self.emit(kind, dispute, now);
    }
}
