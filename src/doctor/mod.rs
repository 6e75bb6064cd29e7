//! `companion doctor`: looks at everything that the service needs from the machine it runs on and from others, and says
//! what is wrong and what to do. Changes nothing.

mod database;
mod machine;
mod neighbours;

use std::fmt;

use crate::{
    clients::{http, relay_health::RelayHealthClient},
    clock::Clock,
    config::{Config, Settings},
};

/// How something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Diagnosis {
    Fine,
    /// The service runs, and something will go wrong, or is not as it should be.
    Doubtful,
    Broken,
}

/// One line: what was looked at, how it is, and what to do about it.
#[derive(Clone, Debug)]
pub struct Finding {
    subject: &'static str,
    pub diagnosis: Diagnosis,
    text: String,
}

impl Finding {
    fn fine(subject: &'static str, text: impl Into<String>) -> Self {
        Self { subject, diagnosis: Diagnosis::Fine, text: text.into() }
    }

    fn doubtful(subject: &'static str, text: impl Into<String>) -> Self {
        Self { subject, diagnosis: Diagnosis::Doubtful, text: text.into() }
    }

    fn broken(subject: &'static str, text: impl Into<String>) -> Self {
        Self { subject, diagnosis: Diagnosis::Broken, text: text.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let diagnosis = match self.diagnosis {
            Diagnosis::Fine => "ok",
            Diagnosis::Doubtful => "warn",
            Diagnosis::Broken => "FAIL",
        };
        write!(f, "{diagnosis:<4}  {:<12}  {}", self.subject, self.text)
    }
}

/// Looks at everything, and tells of each finding as it is made. How the worst of them is.
pub async fn examine(settings: Settings, clock: &Clock, mut tell: impl FnMut(&Finding)) -> Diagnosis {
    let mut worst = Diagnosis::Fine;
    let mut tell = |findings: Vec<Finding>| {
        for finding in findings {
            worst = worst.max(finding.diagnosis);
            tell(&finding);
        }
    };
    let (unmade, file) = settings.unmade_secrets();
    if !unmade.is_empty() {
        let text = format!("{} will be made at the first start, in {}", unmade.join(", "), file.display());
        tell(vec![Finding::doubtful("settings", text)]);
    }
    match Config::check_only(settings) {
        Ok(config) => {
            tell(vec![Finding::fine("settings", "they are valid")]);
            tell(machine::examine(&config));
            let (findings, database_clock) = database::examine(&config.database, clock);
            tell(findings);
            tell(machine::ports(&config).await);
            tell(neighbours::examine(&config, clock, database_clock).await);
        }
        Err(invalid) => tell(invalid.lines().map(|line| Finding::broken("settings", line)).collect()),
    }
    worst
}

/// Whether both listeners of a service with these settings answer, or why not.
pub async fn answers(config: &Config) -> Result<(), String> {
    let client = http::tls_config(None).and_then(http::client).map_err(|error| error.to_string())?;
    for (variable, address) in [("API_LISTEN", config.listen.api), ("RELAY_LISTEN", config.listen.relay)] {
        let answered = RelayHealthClient::new(client.clone(), address).check().await;
        answered.map_err(|reason| format!("{variable} {address}: {reason}"))?;
    }
    Ok(())
}
