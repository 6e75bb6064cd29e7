//! The log: one line for each event, as text or as JSON, with the same keys everywhere. A line of a request has its
//! `request_id` and `trace_id`.

use std::io::{self, Write};

use env_logger::{Builder, Env};
use log::{
    Level, Record,
    kv::{self, Key, Value, VisitSource},
};
use serde_json::{Map, Value as Json};

use crate::net::trace;

/// Filter of the log when `RUST_LOG` says nothing.
const FILTER: &str = "info,actix_server=warn";

/// Its errors are malformed requests or frames of clients, with which any client could fill the log. Nothing of it
/// is written, whatever `RUST_LOG` says.
const OF_CLIENTS: &str = "actix_http";

/// Libraries that log what goes over the wire, with the secrets in it. Whatever `RUST_LOG` says, nothing below `info` of
/// them is written.
const WIRES: [&str; 11] = [
    "actix_web",
    "h2",
    "hyper",
    "hyper_util",
    "mio",
    "object_store",
    "reqwest",
    "rustls",
    "tokio_tungstenite",
    "tokio_util",
    "tungstenite",
];

/// Format of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    #[default]
    Text,
    /// One object for each line.
    Json,
}

/// The logger, as `RUST_LOG` has it, to standard error.
pub fn builder(format: LogFormat) -> Builder {
    let mut builder = Builder::from_env(Env::default().default_filter_or(FILTER));
    builder.format(move |out, record| {
        if is_left_out(record) {
            return Ok(());
        }
        let at = out.timestamp_millis().to_string();
        match format {
            LogFormat::Json => write_json(out, &at, record),
            LogFormat::Text => {
                let style = out.default_level_style(record.level());
                write_text(out, &at, &format!("{style}{}{style:#}", record.level()), record)
            }
        }
    });
    builder
}

fn is_left_out(record: &Record<'_>) -> bool {
    let library = record.target().split("::").next().unwrap_or_default();
    library == OF_CLIENTS || record.level() > Level::Info && WIRES.contains(&library)
}

/// Fields of a line besides its message.
fn fields(record: &Record<'_>) -> Vec<(String, Json)> {
    struct LineFields(Vec<(String, Json)>);
    impl<'a> VisitSource<'a> for LineFields {
        fn visit_pair(&mut self, key: Key<'a>, value: Value<'a>) -> Result<(), kv::Error> {
            let value = match (value.to_u64(), value.to_i64(), value.to_f64(), value.to_bool()) {
                (Some(number), ..) => number.into(),
                (_, Some(number), ..) => number.into(),
                (_, _, Some(number), _) => number.into(),
                (.., Some(bool)) => bool.into(),
                _ => value.to_string().into(),
            };
            self.0.push((key.to_string(), value));
            Ok(())
        }
    }
    let mut fields = LineFields(Vec::new());
    // A visitor that takes everything.
    let _ = record.key_values().visit(&mut fields);
    let LineFields(mut fields) = fields;
    if let Some(trace) = trace::current() {
        for (key, value) in [("request_id", &trace.request_id), ("trace_id", &trace.trace_id)] {
            if fields.iter().all(|(known, _)| known != key) {
                fields.push((key.to_owned(), value.as_str().into()));
            }
        }
    }
    fields
}

fn write_json(out: &mut impl Write, at: &str, record: &Record<'_>) -> io::Result<()> {
    let mut line = Map::new();
    line.insert("at".to_owned(), at.into());
    line.insert("level".to_owned(), record.level().as_str().to_ascii_lowercase().into());
    line.insert("target".to_owned(), record.target().into());
    line.insert("message".to_owned(), record.args().to_string().into());
    for (key, value) in fields(record) {
        line.entry(key).or_insert(value);
    }
    serde_json::to_writer(&mut *out, &line)?;
    out.write_all(b"\n")
}

fn write_text(out: &mut impl Write, at: &str, level: &str, record: &Record<'_>) -> io::Result<()> {
    write!(out, "{at} {level} {}: {}", record.target(), one_line(&record.args().to_string()))?;
    for (key, value) in fields(record) {
        match value {
            Json::String(text) if is_plain(&text) => write!(out, " {key}={text}")?,
            value => write!(out, " {key}={value}")?,
        }
    }
    out.write_all(b"\n")
}

/// Text from outside makes no second line, and no escape sequences of a terminal.
fn one_line(text: &str) -> String {
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}

fn is_plain(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| !c.is_control() && !c.is_whitespace() && c != '"' && c != '=')
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{crypto::random::Random, net::trace::Trace};

    fn line(format: LogFormat, message: &str) -> String {
        let (mut out, pairs) = (Vec::new(), [("user", Value::from("a b")), ("ms", Value::from(7_u64))]);
        let (arguments, pairs) = (format_args!("{message}"), pairs.as_slice());
        let record =
            Record::builder().level(Level::Info).target("companion::api").args(arguments).key_values(&pairs).build();
        match format {
            LogFormat::Text => write_text(&mut out, "now", "INFO", &record).unwrap(),
            LogFormat::Json => write_json(&mut out, "now", &record).unwrap(),
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn an_event_is_one_line() {
        let text = line(LogFormat::Text, "one\ntwo\u{1b}[31m");
        assert_eq!(text, "now INFO companion::api: one\\ntwo\\u{1b}[31m user=\"a b\" ms=7\n");
        let json = line(LogFormat::Json, "one\ntwo");
        assert_eq!(json.lines().count(), 1);
        assert_eq!(
            serde_json::from_str::<Json>(&json).unwrap(),
            serde_json::json!({
                "at": "now", "level": "info", "target": "companion::api", "message": "one\ntwo", "user": "a b", "ms": 7,
            })
        );
    }

    #[tokio::test]
    async fn a_line_of_a_request_says_which() {
        let trace = Arc::new(Trace::new("r-1".into(), None, &Random::system()));
        let text = trace::within(trace.clone(), async { line(LogFormat::Text, "done") }).await;
        assert!(text.ends_with(&format!(" request_id=r-1 trace_id={}\n", trace.trace_id)), "{text}");
        let (carried,) = trace::within(trace, async { (trace::carried(async { trace::current() }),) }).await;
        assert!(carried.await.is_some() && trace::current().is_none());
    }

    #[test]
    fn what_libraries_say_of_the_wire_is_not_written() {
        let record = |level, target| is_left_out(&Record::builder().level(level).target(target).build());
        assert!(record(Level::Trace, "tungstenite::protocol") && record(Level::Debug, "hyper_util::client"));
        assert!(record(Level::Error, "actix_http::ws::codec"), "any client could fill the log");
        assert!(!record(Level::Warn, "tungstenite::protocol") && !record(Level::Trace, "companion::api"));
    }
}
