//! A helper device: a program that pairs with a code and calls with its token, from an address of its own.

use reqwest::{
    Method, RequestBuilder,
    header::{AUTHORIZATION, CONTENT_TYPE},
};
use serde_json::{Value, json};

use super::browser::{Answer, Browser};

#[derive(Clone)]
pub struct HelperDevice {
    http: Browser,
    address: String,
    pub token: String,
    pub id: String,
}

impl HelperDevice {
    /// Not paired yet. The service uses the address if it trusts 127.0.0.1 as a proxy.
    pub fn new(http: Browser, address: &str) -> Self {
        Self { http, address: address.to_owned(), token: String::new(), id: String::new() }
    }

    /// Exchanges the code; keeps the token if there is one.
    pub async fn activate(&mut self, code: &str) -> Answer {
        let request = self.http.request(Method::POST, "/pairing/device/activate");
        let request = request.header("x-forwarded-for", &self.address).json(&json!({ "code": code }));
        let answer = self.http.send(request).await;
        if answer.status == 200 {
            let activated = answer.json();
            (self.token, self.id) = (text(&activated["token"]), text(&activated["deviceId"]));
        }
        answer
    }

    /// A request with the token.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, path).header(AUTHORIZATION, format!("Bearer {}", self.token))
    }

    pub async fn send(&mut self, request: RequestBuilder) -> Answer {
        self.http.send(request).await
    }

    pub async fn upload(&mut self, bundle: &Value) -> Answer {
        self.upload_text(bundle.to_string()).await
    }

    pub async fn upload_text(&mut self, bundle: String) -> Answer {
        let request = self.request(Method::PUT, "/credentials/push");
        self.send(request.header(CONTENT_TYPE, "application/json").body(bundle)).await
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}
