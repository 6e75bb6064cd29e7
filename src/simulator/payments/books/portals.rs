//! Sessions of the portal.

use serde_json::{Value, json};

use super::{ApiRefusal, Books, Parameters, price, shapes::Portal};

impl Books {
    /// Opens a portal for a customer, perhaps at a change of a subscription.
    pub fn open_portal(&mut self, parameters: &Parameters, base: &str, now: i64) -> Result<Value, ApiRefusal> {
        let customer = self.known_customer(parameters)?.to_owned();
        let return_url = parameters.get("return_url").cloned().unwrap_or_default();
        let change = self.change_of(parameters, &customer)?;
        let id = self.id("bps");
        let session = json!({
            "id": id, "object": "billing_portal.session", "created": now, "customer": customer, "livemode": false,
            "return_url": return_url, "url": format!("{base}/portal/{id}"),
        });
        self.portals.insert(id, Portal { customer, return_url, change });
        Ok(session)
    }

    /// The change that a session is for.
    fn change_of(&self, parameters: &Parameters, customer: &str) -> Result<Option<(String, String)>, ApiRefusal> {
        match parameters.get("flow_data[type]").map(String::as_str) {
            None => return Ok(None),
            Some("subscription_update_confirm") => {}
            Some(_) => return Err(ApiRefusal::of("parameter_invalid", "flow_data[type]")),
        }
        let field = |name: &str| {
            parameters.get(&format!("flow_data[subscription_update_confirm]{name}")).map_or("", String::as_str)
        };
        let (id, wanted) = (field("[subscription]"), field("[items][0][price]"));
        let subscription = self.subscription(id).filter(|known| known["customer"] == customer);
        let subscription = subscription.ok_or(ApiRefusal::of("resource_missing", "subscription"))?;
        let item = &subscription["items"]["data"][0];
        // The real one refuses a change to what there is, and of what is to end.
        let is_allowed = item["id"] == field("[items][0][id]")
            && price(wanted).is_some()
            && item["price"]["id"] != wanted
            && subscription["cancel_at"].is_null();
        match is_allowed {
            true => Ok(Some((id.to_owned(), wanted.to_owned()))),
            false => Err(ApiRefusal::of("parameter_invalid", "items")),
        }
    }

    /// A session of the portal.
    pub fn portal(&self, id: &str) -> Option<&Portal> {
        self.portals.get(id)
    }
}
