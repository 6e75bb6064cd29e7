//! Parses the command line and runs.
//!
//! Above 500 lines: all commands of the program, one after the other.

use std::{
    fmt::Display,
    io::Write as _,
    path::PathBuf,
    pin::pin,
    process::{self, ExitCode},
};

use crate::{
    api::{operation::version::VERSION_AND_COMMIT, routes},
    backup::{self, BackupOptions, RestoreOptions, StoreOptions},
    billing::{
        context::BillingContext,
        reconcile::{ReconcileMode, ReconcileStep, Reconciled, reconcile},
    },
    clients::http,
    clock::Clock,
    config::{
        Config, Database, InvalidSettings, Settings, StoragePlaces, fresh_secrets, lone_settings, read_env_file,
        take_data_dir, with_sources,
    },
    crypto::{self, account_mark::AccountMarks, keys::Purpose, random::Random},
    db::{
        audit::{self, AuditHead},
        engine::{self, database_file::TakenFile, error::DbError, file_size, pool::Pool, schema_steps::open_existing},
        moving,
    },
    demo::{Demo, DemoOptions, nodes},
    doctor::{self, Diagnosis},
    helper::{self, HelperError, HelperOptions},
    logging::{self, LogFormat},
    net::tls_config,
    relay::wire::schema,
    reports::{self, KeysState},
    say::{self, SayOptions},
    server::{self, OpenDatabase, Server, StartError},
    simulator::{self, SimulateOptions},
    terminal::{self, LiveLine, LogAboveLines},
    watch::{self, WatchOptions},
};
use clap::{ArgMatches, Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum as _};
use secrecy::SecretString;

/// Watches your base in the game Rust while you sleep
#[derive(Parser)]
#[command(version = VERSION_AND_COMMIT, arg_required_else_help = true)]
struct Cli {
    /// Form of the log: for people, or one JSON object for each line
    #[arg(long, env, global = true, default_value = "text", value_name = "text|json")]
    log_format: String,
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
    /// Say a line in the team's chat of a running demo, as a teammate: try '!help'
    Say(SayOptions),
    /// Register this machine for the game's pushes of its user, and hand them to a service; renews while it runs
    Helper(Box<HelperOptions>),
    /// Bring the database's schema up to date and exit, or move everything from SQLite to PostgreSQL
    Migrate(MigrateOptions),
    /// Write all that a service on SQLite keeps into one file, while it runs
    Backup(BackupOptions),
    /// Put a backup back into an empty data directory, or only check it
    Restore(RestoreOptions),
    /// Copy a backup that was verified into the S3 bucket, delete the oldest ones there, and note its time for the metrics
    StoreBackup(StoreOptions),
    /// Look at everything that the service needs, and say what is wrong and what to do; fails if something is broken
    Doctor(Options),
    /// Ask a service with these settings whether it runs; fails if not
    Health(Options),
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

impl Command {
    /// Its settings, if it has any.
    fn settings(&mut self) -> Option<&mut Settings> {
        Some(match self {
            Self::Serve(options)
            | Self::Migrate(MigrateOptions { options, .. })
            | Self::Doctor(options)
            | Self::Health(options)
            | Self::Alarms(options)
            | Self::Keys(Keys::Status(options))
            | Self::Billing(Billing::Parked(options) | Billing::Reconcile(ReconcileOptions { options, .. }))
            | Self::Audit(Audit::Verify(options))
            | Self::CheckConfig(options) => &mut options.settings,
            Self::Backup(options) => &mut options.settings,
            Self::Restore(options) => &mut options.settings,
            Self::StoreBackup(options) => &mut options.settings,
            Self::Demo(_)
            | Self::Simulate(_)
            | Self::Watch(_)
            | Self::Say(_)
            | Self::Helper(_)
            | Self::GenSecrets
            | Self::Openapi
            | Self::RelaySchema => {
                return None;
            }
        })
    }

    /// True if it shows a line that changes in place, above which the log has to go.
    fn shows_line(&self) -> bool {
        matches!(self, Self::Demo(_) | Self::Migrate(_) | Self::Audit(_) | Self::Billing(Billing::Reconcile(_)))
    }
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
    /// End at the provider what was sold here and runs for no user who is known
    #[arg(long, conflicts_with = "dry_run")]
    end_unowned: bool,
    #[command(flatten)]
    options: Options,
}

#[derive(Args)]
struct MigrateOptions {
    /// Move everything from the SQLite file into this empty PostgreSQL, postgres://… (a password goes into ~/.pgpass or
    /// PGPASSWORD). No service may run on either
    #[arg(long, value_name = "URL")]
    to: Option<SecretString>,
    #[command(flatten)]
    options: Options,
}

#[derive(Args)]
struct Options {
    #[command(flatten)]
    settings: Settings,
}

/// Entries of the audit log after which `audit verify` says how far it is.
const AUDIT_PROGRESS: i64 = 100_000;

/// Runs the command that the process was called with, until its end.
pub fn main() -> ExitCode {
    // The file of variables that the command line names, or a local one, for development; the environment has precedence.
    let (unread, _) = with_sources(Cli::command(), None);
    let file = read_env_file(env_file(&unread.get_matches()).as_deref());
    let (mut command, mut sources) = with_sources(Cli::command(), file.as_ref().ok().and_then(Option::as_deref));
    let matches = command.get_matches_mut();
    sources.warnings.extend(lone_settings(&command, &matches));
    let mut cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let log_format = LogFormat::from_str(cli.log_format.trim(), true).unwrap_or_else(|_| {
        sources.faults.push("LOG_FORMAT is neither text nor json".to_owned());
        LogFormat::default()
    });
    let mut logger = logging::builder(log_format);
    if cli.command.shows_line() && terminal::is_shown() {
        logger.target(env_logger::Target::Pipe(Box::new(LogAboveLines)));
        if std::env::var_os("NO_COLOR").is_none() {
            logger.write_style(env_logger::WriteStyle::Always);
        }
    }
    logger.init();
    if let Err(reason) = file {
        eprintln!("companion: {reason}");
        return ExitCode::FAILURE;
    }
    match cli.command.settings() {
        Some(settings) => settings.sources = sources,
        None if sources.faults.is_empty() => {}
        None => return refuse(&sources.into()),
    }
    crypto::install();
    run(cli.command)
}

/// Until the helper's end, or Ctrl-C.
async fn help(options: HelperOptions) -> Result<(), HelperError> {
    tokio::select! {
        ended = helper::run(options, Clock::system()) => ended,
        _ = tokio::signal::ctrl_c() => Ok(()),
    }
}

fn run(command: Command) -> ExitCode {
    match command {
        Command::Serve(options) => with_config(options, serve),
        Command::Demo(options) => demo(options),
        Command::Simulate(options) => simulate(options),
        Command::Watch(options) => ended("watch", actix::System::new().block_on(watch::watch(options))),
        Command::Say(options) => ended("say", actix::System::new().block_on(say::say(options))),
        Command::Helper(options) => match actix::System::new().block_on(help(*options)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("companion: helper: {error}");
                ExitCode::from(error.exit_code())
            }
        },
        Command::Migrate(MigrateOptions { to: None, options }) => with_config(options, migrate),
        Command::Migrate(MigrateOptions { to: Some(target), options }) => move_to(target, options.settings),
        Command::Backup(options) => printed("backup", backup::back_up(options, &Clock::system())),
        Command::Restore(options) => printed("restore", backup::restore(options, &Clock::system())),
        Command::StoreBackup(options) => {
            printed("store-backup", actix::System::new().block_on(backup::store(options, &Clock::system())))
        }
        Command::Doctor(options) => examine(options),
        Command::Health(options) => with_existing(options, &[], |config| {
            ended("health", actix::System::new().block_on(doctor::answers(&config)))
        }),
        Command::Alarms(options) => with_database(options, |pool| show(reports::alarms(&pool))),
        Command::Keys(Keys::Status(options)) => with_existing(options, &["CREDS_ENCRYPTION_KEY"], keys_status),
        Command::Billing(Billing::Parked(options)) => {
            with_database(options, |pool| show(reports::parked_events(&pool)))
        }
        Command::Billing(Billing::Reconcile(ReconcileOptions { dry_run, end_unowned, options })) => {
            let mode = match (dry_run, end_unowned) {
                (true, _) => ReconcileMode::Look,
                (false, true) => ReconcileMode::EndUnowned,
                (false, false) => ReconcileMode::Heal,
            };
            with_existing(options, &[], |config| reconcile_billing(config, mode))
        }
        Command::Audit(Audit::Verify(options)) => with_database(options, verify_audit),
        Command::GenSecrets => print(&fresh_secrets().map(|(name, value)| format!("{name}={value}")).join("\n")),
        Command::CheckConfig(options) => check_config(options.settings),
        Command::Openapi => print(&format!("{:#}", routes::document())),
        Command::RelaySchema => print(&schema::json()),
    }
}

/// Ends a command that prints nothing itself.
fn ended(command: &str, outcome: Result<(), impl Display>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(command, error),
    }
}

/// Ends a command with a report of what it did.
fn printed(command: &str, outcome: Result<impl Display, impl Display>) -> ExitCode {
    match outcome {
        Ok(report) => print(&report.to_string()),
        Err(error) => fail(command, error),
    }
}

fn check_config(settings: Settings) -> ExitCode {
    let (unmade, file) = settings.unmade_secrets();
    match Config::check_only(settings) {
        Ok(config) => {
            for warning in &config.warnings {
                print(&format!("warning: {warning}"));
            }
            if !unmade.is_empty() {
                print(&format!("The first start makes {} in {}", unmade.join(", "), file.display()));
            }
            print("The settings are valid.")
        }
        Err(invalid) => refuse(&invalid),
    }
}

fn migrate(config: Config) -> ExitCode {
    let line = LiveLine::new("bringing the database's schema up to date");
    let migrated = server::migrate(&config, &Clock::system());
    drop(line);
    match migrated {
        Ok(0) => print("The schema of the database was up to date already."),
        Ok(steps) => print(&format!("The schema of the database is up to date now; steps that were missing: {steps}.")),
        Err(error) => fail("migrate", advised(error)),
    }
}

/// Moves everything from SQLite to PostgreSQL, while the data directory is ours: no service runs on it.
fn move_to(target: SecretString, settings: Settings) -> ExitCode {
    let mut settings_of_target = settings.clone();
    settings_of_target.database.database_url = Some(target);
    let (source, target) = match (settings.storage(), settings_of_target.storage()) {
        (Ok(source), Ok(target)) => (source, target.database),
        (Err(invalid), _) | (_, Err(invalid)) => return refuse(&invalid),
    };
    let (Database::Sqlite(path), Database::Postgres(url)) = (&source.database, &target) else {
        return fail("migrate --to", "moves from SQLite (DATABASE_URL) to a postgres:// URL");
    };
    let _in_use = match take_data_dir(&source.data_dir) {
        Ok(Some(in_use)) => in_use,
        Ok(None) => return fail("migrate --to", "a companion serves from DATA_DIR: stop it first"),
        Err(error) => return fail(&source.data_dir.display().to_string(), error),
    };
    let _database_in_use = match TakenFile::take(path) {
        Ok(Some(in_use)) => in_use,
        Ok(None) => return fail("migrate --to", "a companion serves from DATABASE_URL: stop it first"),
        Err(error) => return fail(&path.display().to_string(), error),
    };
    let line = LiveLine::new("moving to PostgreSQL");
    let moved = moving::move_to_postgres(path, url, &Clock::system(), |table| line.say(format!("moving {table}")));
    drop(line);
    match moved {
        Ok(moved) => print(&format!(
            "{moved}.\nNow set DATABASE_URL to it, with the same DATA_DIR and secrets, and start the service. {} is as it was",
            path.display()
        )),
        Err(error) => fail("nothing was moved", error),
    }
}

fn show(report: Result<String, DbError>) -> ExitCode {
    match report {
        Ok(report) => print(&report),
        Err(error) => fail("the database", error),
    }
}

fn keys_status(config: Config) -> ExitCode {
    match reports::keys(&config) {
        Ok((report, KeysState::AllOpen)) => print(&report),
        Ok((report, KeysState::SomeSealed)) => {
            print(&report);
            ExitCode::FAILURE
        }
        Err(error) => fail("the database", error),
    }
}

fn reconcile_billing(config: Config, mode: ReconcileMode) -> ExitCode {
    let Some(settings) = config.payments else { return fail("billing", "PAYMENT_SECRET_KEY is not set") };
    let client = tls_config(config.extra_ca_file.as_deref()).and_then(http::client);
    let client = match client {
        Ok(client) => client,
        Err(error) => return fail("outgoing connections", error),
    };
    let pool = match open_existing(&config.database) {
        Ok(pool) => pool,
        Err(error) => return fail("the database", error),
    };
    let marks = AccountMarks::new(&config.secrets.keys().key(Purpose::AccountMark));
    let context = BillingContext::new(settings, marks, client, pool, Clock::system(), Random::system());
    let line = LiveLine::new("comparing subscriptions");
    let compared = reconcile(&context, mode, |step| match step {
        ReconcileStep::Compared(count) if terminal::is_shown() => line.say(format!("{count} subscriptions compared")),
        step => drop(terminal::above(|| print(&step.to_string()))),
    });
    let compared = actix::System::new().block_on(compared);
    drop(line);
    match compared {
        Ok(done) => {
            let Reconciled { compared, differences, healed, unowned } = done;
            if unowned > 0 {
                print(&format!(
                    "{unowned} run for no user who is known: `companion billing reconcile --end-unowned` ends them"
                ));
            }
            let end = print(&format!("{compared} subscriptions, {differences} differ, {healed} healed"));
            if differences > healed { ExitCode::FAILURE } else { end }
        }
        Err(error) => fail("reconciliation", error),
    }
}

fn verify_audit(pool: Pool) -> ExitCode {
    let line = LiveLine::of_steps("verifying the audit log");
    let progress = |done: i64, of: i64| {
        line.step(done.unsigned_abs(), of.unsigned_abs());
        if done % AUDIT_PROGRESS == 0 && !terminal::is_shown() {
            print(&format!("{done} of {of} entries"));
        }
    };
    let verified = pool.read_blocking(|db| audit::verify(db, progress));
    drop(line);
    match verified {
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
        Ok(config) => {
            config.warnings.iter().for_each(|warning| log::warn!("{warning}"));
            run(config)
        }
        Err(invalid) => refuse(&invalid),
    }
}

/// For commands that look and make nothing. In development, what was never made is not there to be looked at.
fn with_existing(options: Options, needed: &[&str], run: impl FnOnce(Config) -> ExitCode) -> ExitCode {
    let (unmade, file) = options.settings.unmade_secrets();
    if let Some(variable) = unmade.iter().find(|variable| needed.contains(variable)) {
        let file = file.display();
        return fail(
            "nothing is here yet",
            format!(
                "{variable} is neither set nor in {file}, where the first `companion serve` puts it; if that has run \
                 before, DATA_DIR or the working directory is another one"
            ),
        );
    }
    match Config::check_only(options.settings) {
        Ok(config) => run(config),
        Err(invalid) => refuse(&invalid),
    }
}

/// For commands that look at the database and need no other setting.
fn with_database(options: Options, run: impl FnOnce(Pool) -> ExitCode) -> ExitCode {
    match options.settings.storage() {
        Ok(StoragePlaces { database, .. }) => match open_existing(&database) {
            Ok(pool) => run(pool),
            Err(error) => fail("the database", error),
        },
        Err(invalid) => refuse(&invalid),
    }
}

fn refuse(invalid: &InvalidSettings) -> ExitCode {
    eprintln!("The settings are not valid:\n{invalid}");
    ExitCode::from(2)
}

/// The file of variables that a command was given. `simulate` writes the one of this name.
fn env_file(matches: &ArgMatches) -> Option<PathBuf> {
    let (name, matches) = matches.subcommand()?;
    let file = || matches.try_get_one::<PathBuf>("env_file").ok().flatten().cloned();
    if name == "simulate" { None } else { file().or_else(|| env_file(matches)) }
}

fn examine(options: Options) -> ExitCode {
    let print = |finding: &doctor::Observation| {
        print(&finding.to_string());
    };
    match actix::System::new().block_on(doctor::examine(options.settings, &Clock::system(), print)) {
        Diagnosis::Broken => ExitCode::FAILURE,
        Diagnosis::Fine | Diagnosis::Doubtful => ExitCode::SUCCESS,
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
            Err(error) => return fail("the service does not start", advised(error)),
        };
        match server.run_until_stopped(shutdown).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail("the service stopped", error),
        }
    })
}

/// The text of an error at a start, with advice where it is one of the database.
fn advised(error: StartError) -> String {
    match error {
        StartError::Database(_) => engine::with_advice(&error),
        other => other.to_string(),
    }
}

fn demo(options: DemoOptions) -> ExitCode {
    actix::System::new().block_on(async {
        let shutdown = match Signals::register() {
            Ok(signals) => signals.received(),
            Err(error) => return fail("signals", error),
        };
        if let Some(count) = options.nodes {
            return match nodes::run(options, count, shutdown).await {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => fail("the demo does not start", error),
            };
        }
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
        file_size::survive_limit()?;
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Completes with the first one. A second one ends the process at once: what it acknowledged is stored.
    async fn received(mut self) {
        self.next().await;
        actix::spawn(async move {
            self.next().await;
            log::warn!("a second signal: the process ends at once");
            process::exit(1);
        });
    }

    async fn next(&mut self) {
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
