//! Parses the command line and runs.

use std::{fmt::Display, io::Write as _, pin::pin, process::ExitCode, sync::Arc};

use clap::{Args, Parser, Subcommand};
use companion::{
    api::openapi,
    billing::{
        context::BillingContext,
        reconcile::{Reconciled, reconcile},
    },
    clients::http,
    clock::Clock,
    config::{Config, Settings, fresh_secrets},
    crypto::{self, random::Random, sealer::Sealer},
    db::{
        alarms,
        audit::{self, AuditHead},
        encryption_keys,
        error::DbError,
        failed_pushes::{self, FailedPush},
        incidents,
        payment_events::{self, ParkedEvent},
        pool::{Db, Pool},
    },
    demo::{Demo, DemoOptions},
    domain::time,
    relay::schema,
    rotation,
    server::{OpenDatabase, Server},
    simulator::{self, SimulateOptions},
    vault::Vault,
    watch::{self, WatchOptions},
};

/// Watches your base in the game Rust while you sleep
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the HTTP API and the relay
    Serve(Options),
    /// Run the service with a simulated game server and a one-click sign-in, ready to watch
    Demo(DemoOptions),
    /// Run only the simulated game server, identity provider, push service, player-statistics service,
    /// payment provider and chat platform
    Simulate(SimulateOptions),
    /// Watch a running demo in the terminal
    Watch(WatchOptions),
    /// Bring the database's schema up to date and exit
    Migrate(Options),
    /// Print how many alarms and incidents are in each state of the ledger, since when the oldest one is unfinished, and
    /// the pushes that could not be handled
    Alarms(Options),
    /// Show which keys seal the stored credentials
    #[command(subcommand)]
    Keys(Keys),
    /// Look at the subscriptions of the payment provider
    #[command(subcommand)]
    Billing(Billing),
    /// Look at what admins did
    #[command(subcommand)]
    Audit(Audit),
    /// Print a fresh value for every secret of the settings
    GenSecrets,
    /// Report everything that is wrong with the settings and exit
    CheckConfig(Options),
    /// Print the OpenAPI document of the HTTP API
    Openapi,
    /// Print the JSON Schema of the relay's messages
    RelaySchema,
}

#[derive(Subcommand)]
enum Keys {
    /// Print how many stored credentials each key seals, and which ones cannot be opened; fails if there are any
    Status(Options),
}

#[derive(Subcommand)]
enum Billing {
    /// Print the payment events that wait because something about them is unknown
    Parked(Options),
    /// Compare all subscriptions with the payment provider, print what differs and store it as it is there; fails if
    /// something differs in the end
    Reconcile(ReconcileOptions),
}

#[derive(Subcommand)]
enum Audit {
    /// Compute the chain of the audit log again and print its last entry and hash; fails and says where if an entry was
    /// changed or taken out
    Verify(Options),
}

#[derive(Args)]
struct ReconcileOptions {
    /// Only print what differs
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    options: Options,
}

#[derive(Args)]
struct Options {
    #[command(flatten)]
    settings: Settings,
}

/// Dead letters that `alarms` prints, the newest.
const DEAD_LETTERS_PRINTED: usize = 100;
/// Parked payment events that `billing parked` prints, the oldest.
const PARKED_PRINTED: usize = 1_000;

/// Entries of the audit log after which `audit verify` says how far it is.
const AUDIT_PROGRESS: i64 = 100_000;

fn main() -> ExitCode {
    // A local file, for development; the environment has precedence.
    let dotenv = dotenvy::dotenv();
    let cli = Cli::parse();
    // What actix-http calls an error is a client's malformed request.
    let filter = "info,actix_server=warn,actix_http=off";
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or(filter)).init();
    if let Err(error) = dotenv
        && !error.not_found()
    {
        return fail(".env", "it is not a list of NAME=value lines");
    }
    crypto::install();
    match cli.command {
        Command::Serve(options) => with_config(options, serve),
        Command::Demo(options) => demo(options),
        Command::Simulate(options) => simulate(options),
        Command::Watch(options) => match actix::System::new().block_on(watch::watch(options)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail("watch", error),
        },
        Command::Migrate(options) => with_config(options, |config| match Pool::open(&config.database) {
            Ok(_) => ExitCode::SUCCESS,
            Err(error) => fail("the database", error),
        }),
        Command::Alarms(options) => with_config(options, alarms_status),
        Command::Keys(Keys::Status(options)) => with_config(options, keys_status),
        Command::Billing(Billing::Parked(options)) => with_config(options, parked_events),
        Command::Billing(Billing::Reconcile(ReconcileOptions { dry_run, options })) => {
            with_config(options, |config| reconcile_billing(config, dry_run))
        }
        Command::Audit(Audit::Verify(options)) => with_config(options, verify_audit),
        Command::GenSecrets => print(&fresh_secrets().map(|(name, value)| format!("{name}={value}")).join("\n")),
        Command::CheckConfig(options) => with_config(options, |_| print("The settings are valid.")),
        Command::Openapi => print(openapi::json()),
        Command::RelaySchema => print(&schema::json()),
    }
}

fn alarms_status(config: Config) -> ExitCode {
    let read = |db: &mut Db| {
        let dead = failed_pushes::dead_letters(db, DEAD_LETTERS_PRINTED)?;
        Ok((alarms::tally(db)?, incidents::tally(db)?, dead))
    };
    let read = Pool::open(&config.database).and_then(|pool| pool.read_blocking(read));
    let (tally, states, (dead, newest)) = match read {
        Ok(read) => read,
        Err(error) => return fail("the database", error),
    };
    let alarms = tally.counts.iter().map(|(state, count)| format!("alarms {state}: {count}"));
    let incidents = states.iter().map(|(state, count)| format!("incidents {state}: {count}"));
    let mut lines: Vec<String> = alarms.chain(incidents).collect();
    if let Some(since) = tally.oldest_unfinished {
        lines.push(format!("oldest unfinished alarm: received at {}", time::to_wire(since)));
    }
    lines.push(format!("dead letters: {dead}"));
    lines.extend(newest.iter().map(|letter| {
        let FailedPush { user_id, push_id, attempts, reason, content, failed_at } = letter;
        let at = time::to_wire(*failed_at);
        format!("dead letter: {at}, user {user_id}, push {push_id}, {reason} after {attempts} attempts: {content}")
    }));
    print(&lines.join("\n"))
}

fn parked_events(config: Config) -> ExitCode {
    let read = |db: &mut Db| payment_events::parked(db, PARKED_PRINTED);
    let (count, oldest) = match Pool::open(&config.database).and_then(|pool| pool.read_blocking(read)) {
        Ok(read) => read,
        Err(error) => return fail("the database", error),
    };
    let mut lines = vec![format!("parked: {count}")];
    lines.extend(oldest.into_iter().map(|event| {
        let ParkedEvent { id, kind, subscription_id, customer_id, user_hint, reason, received_at, attempts, .. } =
            event;
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "none".to_owned());
        let [subscription, customer, user, reason] = [subscription_id, customer_id, user_hint, reason].map(or_none);
        let at = time::to_wire(received_at);
        format!(
            "{id}: {kind}, {reason}, subscription {subscription}, customer {customer}, user {user}, received at {at}, \
             tried again {attempts} times"
        )
    }));
    print(&lines.join("\n"))
}

fn reconcile_billing(config: Config, dry_run: bool) -> ExitCode {
    let Some(settings) = config.payments else { return fail("billing", "PAYMENT_SECRET_KEY is not set") };
    let client = http::tls_config(config.extra_ca_file.as_deref()).and_then(http::client);
    let client = match client {
        Ok(client) => client,
        Err(error) => return fail("outgoing connections", error),
    };
    let pool = match Pool::open(&config.database) {
        Ok(pool) => pool,
        Err(error) => return fail("the database", error),
    };
    let context = BillingContext::new(settings, client, pool, Clock::system(), Random::system());
    let compared = reconcile(&context, dry_run, |step| {
        print(&step.to_string());
    });
    match actix::System::new().block_on(compared) {
        Ok(done) => {
            let Reconciled { compared, differences, healed } = done;
            let end = print(&format!("{compared} subscriptions, {differences} differ, {healed} healed"));
            if differences > healed { ExitCode::FAILURE } else { end }
        }
        Err(error) => fail("reconciliation", error),
    }
}

fn verify_audit(config: Config) -> ExitCode {
    let progress = |done: i64, of: i64| {
        if done % AUDIT_PROGRESS == 0 {
            print(&format!("{done} of {of} entries"));
        }
    };
    match Pool::open(&config.database).and_then(|pool| audit::verify(&pool, progress)) {
        Ok(Ok(AuditHead { id: 0, .. })) => print("The audit log is empty."),
        Ok(Ok(AuditHead { id, hash })) => {
            print(&format!("The chain of {id} entries is whole; its last hash is {hash}"))
        }
        Ok(Err(broken)) => fail("the chain of the audit log is broken", broken),
        Err(error) => fail("the database", error),
    }
}

fn with_config(options: Options, run: impl FnOnce(Config) -> ExitCode) -> ExitCode {
    match Config::check(options.settings) {
        Ok(config) => run(config),
        Err(invalid) => {
            eprintln!("The settings are not valid:\n{invalid}");
            ExitCode::from(2)
        }
    }
}

fn serve(config: Config) -> ExitCode {
    actix::System::new().block_on(async {
        // Before anything listens: a signal that comes early must not be lost.
        let shutdown = match Signals::register() {
            Ok(signals) => signals.received(),
            Err(error) => return fail("signals", error),
        };
        let (mut shutdown, clock) = (pin!(shutdown), Clock::system());
        let opened = tokio::select! {
            biased;
            () = &mut shutdown => return ExitCode::SUCCESS,
            opened = OpenDatabase::open_patiently(&config, &clock) => opened,
        };
        let server = match opened.and_then(|opened| Server::build_on(opened, config, clock)) {
            Ok(server) => server,
            Err(error) => return fail("the service does not start", error),
        };
        match server.run_until_stopped(shutdown).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail("the service stopped", error),
        }
    })
}

fn keys_status(config: Config) -> ExitCode {
    let secrets = &config.secrets;
    let (current, previous) = (&secrets.credentials_key, secrets.credentials_key_previous.as_ref());
    let read = || {
        let pool = Pool::open(&config.database)?;
        let number = pool.read_blocking(|db| encryption_keys::number(db, &current.fingerprint()))?;
        let sealer = Sealer::new(current, previous, number.unwrap_or_default(), Random::system());
        let status = rotation::status(&Vault::new(pool, Arc::new(sealer)))?;
        Ok::<_, DbError>((number, status))
    };
    let (number, status) = match read() {
        Ok(read) => read,
        Err(error) => return fail("the database", error),
    };
    let mut lines = vec![match number {
        Some(number) => format!("current key: {number}"),
        None => "current key: has no number yet, because the service has not run with it".to_owned(),
    }];
    for (&key, &count) in &status.by_key {
        let note = if Some(key) == number { "up to date" } else { "waiting to be sealed again" };
        lines.push(format!("key {key}: {count} stored credentials, {note}"));
    }
    lines.extend(status.unreadable.iter().map(|unreadable| format!("cannot be opened: {unreadable}")));
    let uniform = status.by_key.keys().all(|&key| Some(key) == number);
    if previous.is_some() && uniform && status.unreadable.is_empty() {
        lines.push("CREDS_ENCRYPTION_KEY_PREV is not needed any more.".to_owned());
    }
    let printed = print(&lines.join("\n"));
    if status.unreadable.is_empty() { printed } else { ExitCode::FAILURE }
}

fn demo(options: DemoOptions) -> ExitCode {
    actix::System::new().block_on(async {
        let shutdown = match Signals::register() {
            Ok(signals) => signals.received(),
            Err(error) => return fail("signals", error),
        };
        let demo = match Demo::start(options).await {
            Ok(demo) => demo,
            Err(error) => return fail("the demo does not start", error),
        };
        if let Err(error) = demo.print_steps() {
            return fail("printing the steps", error);
        }
        match demo.run_until_stopped(shutdown).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail("the demo stopped", error),
        }
    })
}

fn simulate(options: SimulateOptions) -> ExitCode {
    match actix::System::new().block_on(simulator::simulate(options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail("simulate", error),
    }
}

/// SIGTERM and SIGINT.
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    fn register() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn received(mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

fn fail(what: &str, why: impl Display) -> ExitCode {
    eprintln!("companion: {what}: {why}");
    ExitCode::FAILURE
}

/// Prints the text. A reader that closes the pipe early (`companion openapi | head`) is no panic.
fn print(text: &str) -> ExitCode {
    match writeln!(std::io::stdout(), "{text}") {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
