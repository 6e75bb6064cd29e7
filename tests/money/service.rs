//! The service as a process of its own, on a clock that the test moves: this program starts itself again for it, so that
//! it can be killed. It is what `companion serve` builds, with orders on its standard input.

use std::{
    fs::{File, OpenOptions},
    io::{BufRead, BufReader, Write as _},
    net::SocketAddr,
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    thread,
};

use companion::{
    billing::reconcile::{ReconcileMode, ReconcileStep, reconcile},
    clock::Clock,
    demo,
    domain::time::Timestamp,
    logging::{self, LogFormat},
    server::Server,
};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::binary;

/// The first argument of the program that is the service.
pub const SERVE: &str = "--serve";

/// A running service; killed when dropped.
pub struct ServiceProcess {
    process: Child,
    orders: ChildStdin,
    answers: mpsc::UnboundedReceiver<String>,
    pub address: SocketAddr,
}

impl ServiceProcess {
    /// Starts it at this time with these flags, and waits until it listens. Its log goes to a file of this directory.
    pub async fn start(directory: &Path, flags: &[String], now: Timestamp) -> Self {
        let log = OpenOptions::new().create(true).append(true).open(directory.join("service.log")).unwrap();
        let mut process = Command::new(std::env::current_exe().unwrap())
            .arg(SERVE)
            .arg(now.timestamp_micros().to_string())
            .args(flags)
            .env_clear()
            .current_dir(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let orders = process.stdin.take().unwrap();
        let answers = lines_of(BufReader::new(process.stdout.take().unwrap()));
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut service = Self { process, orders, answers, address };
        service.address = service.answer().await.as_str().unwrap().parse().unwrap();
        service
    }

    async fn answer(&mut self) -> Value {
        let line = self.answers.recv().await.expect("it runs");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("the service says {line:?}: {error}"))
    }

    async fn order(&mut self, order: &Value) -> Value {
        writeln!(self.orders, "{order}").unwrap();
        self.answer().await
    }

    /// Moves its clock.
    pub async fn advance(&mut self, seconds: i64) {
        self.order(&json!({ "advance": seconds })).await;
    }

    /// Signs this account in; the id of the user and the cookie.
    pub async fn sign_in(&mut self, account: u64) -> (String, String) {
        let answer = self.order(&json!({ "signIn": account })).await;
        let text = |name: &str| answer[name].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned();
        (text("user"), text("cookie"))
    }

    /// Compares all with the provider; what differs, in words.
    pub async fn reconcile(&mut self) -> Vec<String> {
        let answer = self.order(&json!({ "reconcile": true })).await;
        serde_json::from_value(answer.clone()).unwrap_or_else(|_| panic!("it was not reconciled: {answer}"))
    }

    /// SIGKILL: no handler, no flush.
    pub fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for ServiceProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The errors and panics in the log of the services in this directory.
pub fn errors(directory: &Path) -> Vec<String> {
    let Ok(log) = File::open(directory.join("service.log")) else { return Vec::new() };
    let lines = BufReader::new(log).lines().map_while(Result::ok);
    lines.filter(|line| line.contains("panicked") || line.contains("ERROR")).collect()
}

/// Serves until it is killed, or its standard input ends.
pub fn serve(mut args: impl Iterator<Item = String>) {
    let micros = args.next().and_then(|micros| micros.parse().ok()).expect("when it starts");
    let flags: Vec<String> = args.collect();
    logging::builder(LogFormat::Text).init();
    let clock = Clock::adjustable(Timestamp::from_timestamp_micros(micros).expect("a time"));
    actix_web::rt::System::new().block_on(async {
        let server = Server::build(binary::config(&flags), clock.clone()).unwrap();
        let context = server.context().clone();
        println!("{}", json!(server.api_addr()));
        let mut orders = lines_of(BufReader::new(std::io::stdin()));
        let obeyed = async {
            while let Some(order) = orders.recv().await {
                let order: Value = serde_json::from_str(&order).expect("JSON");
                let answer = if let Some(seconds) = order["advance"].as_i64() {
                    clock.advance(chrono::TimeDelta::seconds(seconds));
                    json!(true)
                } else if let Some(account) = order["signIn"].as_u64() {
                    let user = demo::user::sign_in(&context, account, "Player").await.expect("a database");
                    json!({ "user": user.id, "cookie": user.cookie })
                } else {
                    let billing = context.services.billing.clone().expect("it sells");
                    let mut differences = Vec::new();
                    let done = reconcile(&billing, ReconcileMode::Heal, |step| {
                        if let ReconcileStep::Differs { .. } = step {
                            differences.push(step.to_string());
                        }
                    });
                    match done.await {
                        Ok(_) => json!(differences),
                        Err(error) => json!(error.to_string()),
                    }
                };
                println!("{answer}");
            }
        };
        server.run_until_stopped(obeyed).await.unwrap();
    });
}

/// Its lines, read on a thread of their own.
fn lines_of(input: impl BufRead + Send + 'static) -> mpsc::UnboundedReceiver<String> {
    let (send, lines) = mpsc::unbounded_channel();
    thread::spawn(move || {
        for line in input.lines().map_while(Result::ok) {
            if send.send(line).is_err() {
                return;
            }
        }
    });
    lines
}
