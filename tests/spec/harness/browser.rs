//! A client of the API that keeps cookies as a browser does, and shows the whole answer.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    panic::Location,
    time::{Duration, Instant},
};

use reqwest::{
    Method, RequestBuilder,
    header::{COOKIE, HeaderMap, LOCATION, ORIGIN, SET_COOKIE},
};
use serde_json::Value;
use tokio::time::sleep;
use url::form_urlencoded;

use super::{app::FRONTEND, canary, documented, relay_client::PATIENCE};

/// Pauses between questions: a user has 300 a minute, and the clock is stopped.
const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub struct Browser {
    http: reqwest::Client,
    address: SocketAddr,
    pub cookies: BTreeMap<String, String>,
}

pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    body: Vec<u8>,
}

impl Browser {
    pub fn new(http: reqwest::Client, address: SocketAddr) -> Self {
        Self { http, address, cookies: BTreeMap::new() }
    }

    /// A request with this browser's cookies and nothing else.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let mut request = self.http.request(method, format!("http://{}{path}", self.address));
        if !self.cookies.is_empty() {
            let pairs: Vec<String> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
            request = request.header(COOKIE, pairs.join("; "));
        }
        request
    }

    /// Sends it and keeps the cookies of the answer.
    pub async fn send(&mut self, request: RequestBuilder) -> Answer {
        let request = request.build().unwrap();
        canary::note_request(&request);
        let (method, path) = (request.method().clone(), request.url().path().to_owned());
        let response = self.http.execute(request).await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        for cookie in headers.get_all(SET_COOKIE) {
            let text = cookie.to_str().unwrap();
            let (name, value) = text.split(';').next().unwrap().split_once('=').unwrap();
            if text.contains("Max-Age=0") {
                self.cookies.remove(name);
            } else {
                canary::note(value);
                self.cookies.insert(name.to_owned(), value.to_owned());
            }
        }
        let body = response.bytes().await.unwrap().to_vec();
        canary::note_answer(&body);
        documented::check(method.as_str(), &path, status, &headers, &body);
        Answer { status, headers, body }
    }

    pub async fn get(&mut self, path: &str) -> Answer {
        self.send(self.request(Method::GET, path)).await
    }

    /// Asks until this holds for the answer, when there is no event to wait for. The last answer.
    #[track_caller]
    pub fn get_until(&mut self, path: impl AsRef<str>, holds: impl Fn(&Value) -> bool) -> impl Future<Output = Value> {
        let caller = Location::caller();
        async move {
            let path = path.as_ref();
            let (asked, mut pause) = (Instant::now(), FIRST_PAUSE);
            loop {
                let answer = self.get(path).await;
                assert_eq!(answer.status, 200, "{}", answer.text());
                let seen = answer.json();
                if holds(&seen) {
                    return seen;
                }
                assert!(asked.elapsed() < PATIENCE, "{path} never answers what {caller} waits for: {seen}");
                sleep(pause).await;
                pause = LONGEST_PAUSE.min(pause.mul_f32(1.3));
            }
        }
    }

    /// The entries of a list, which are the same when it is read in pages of this size.
    pub async fn all_pages(&mut self, path: &str, list: &str, limit: usize) -> Vec<Value> {
        let entries = |answer: &Value| answer[list].as_array().unwrap_or_else(|| panic!("{path}: {answer}")).clone();
        let mark = if path.contains('?') { '&' } else { '?' };
        let whole = entries(&self.get(path).await.json());
        let (mut paged, mut before) = (Vec::new(), String::new());
        loop {
            let page = self.get(&format!("{path}{mark}limit={limit}{before}")).await.json();
            assert!(entries(&page).len() <= limit && paged.len() <= whole.len(), "{path}: {page}");
            paged.extend(entries(&page));
            let Some(next) = page["next"].as_str() else { break };
            before = form_urlencoded::Serializer::for_suffix("&".to_owned(), 1).append_pair("before", next).finish();
        }
        assert_eq!(paged, whole, "{path}");
        for wrong in ["", "%00", "zzzz%20"] {
            let refused = self.get(&format!("{path}{mark}before={wrong}")).await;
            assert_eq!(refused.expect_problem(400, "invalid_request")["errors"][0]["path"], "before", "{path} {wrong}");
        }
        whole
    }

    /// From a page of the front end.
    pub async fn post(&mut self, path: &str, body: Option<&Value>) -> Answer {
        let request = self.request(Method::POST, path).header(ORIGIN, FRONTEND);
        self.send(if let Some(body) = body { request.json(body) } else { request }).await
    }

    /// From a page of the front end.
    pub async fn put(&mut self, path: &str, body: &Value) -> Answer {
        self.send(self.request(Method::PUT, path).header(ORIGIN, FRONTEND).json(body)).await
    }

    /// From a page of the front end.
    pub async fn patch(&mut self, path: &str, body: &Value) -> Answer {
        self.send(self.request(Method::PATCH, path).header(ORIGIN, FRONTEND).json(body)).await
    }

    /// From a page of the front end.
    pub async fn delete(&mut self, path: &str) -> Answer {
        self.send(self.request(Method::DELETE, path).header(ORIGIN, FRONTEND)).await
    }
}

impl Answer {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn bytes(&self) -> &[u8] {
        &self.body
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }

    pub fn location(&self) -> &str {
        self.headers[LOCATION].to_str().unwrap()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// The whole `Set-Cookie` line of this cookie.
    pub fn set_cookie(&self, name: &str) -> Option<String> {
        let lines = self.headers.get_all(SET_COOKIE).iter().map(|value| value.to_str().unwrap().to_owned());
        lines.into_iter().find(|line| line.starts_with(&format!("{name}=")))
    }

    /// A problem document of this status and code, complete; returns it.
    #[track_caller]
    pub fn expect_problem(&self, status: u16, code: &str) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        let problem = self.json();
        assert_eq!(problem["code"], code, "{problem}");
        assert_eq!(problem["status"], status);
        assert_eq!(problem["requestId"].as_str(), self.header("x-request-id"));
        assert!(problem["type"].as_str().unwrap().ends_with(&format!("/problems/{code}")), "{problem}");
        for field in ["type", "title", "detail"] {
            assert!(problem[field].as_str().is_some_and(|text| !text.is_empty()), "{field}: {problem}");
        }
        problem
    }
}
