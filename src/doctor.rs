//! `companion doctor`: looks at everything that the service needs from the machine it runs on and from others, and says
//! what is wrong and what to do. Changes nothing here, and at others no more than `claims` says.

mod claims;
mod database;
mod machine;
mod neighbours;
mod observation;
mod open_files;
mod stored_secrets;

pub use self::observation::{Diagnosis, Observation};
use crate::{
    clients::{http, relay_health::RelayHealthClient},
    clock::Clock,
    config::{Config, Environment, Settings, StoragePlaces},
    net::tls_config,
};

/// Looks at everything, and reports each finding as it is made. Returns the state of the worst.
pub async fn examine(settings: Settings, clock: &Clock, mut report: impl FnMut(&Observation)) -> Diagnosis {
    let mut worst = Diagnosis::Fine;
    let mut report = |findings: Vec<Observation>| {
        for finding in findings {
            worst = worst.max(finding.diagnosis);
            report(&finding);
        }
    };
    let (unmade, file) = settings.unmade_secrets();
    let storage = settings.clone().storage();
    match Config::check_only(settings) {
        Ok(config) => {
            report(vec![Observation::fine("settings", "they are valid")]);
            // The secrets of a directory that was removed are lost, and the next start would make others.
            if !unmade.is_empty() && !machine::is_removed(&config.data_dir) {
                let text = format!("{} will be made at the first start, in {}", unmade.join(", "), file.display());
                report(vec![Observation::doubtful("settings", text)]);
            }
            report(config.warnings.iter().map(|line| Observation::doubtful("settings", line)).collect());
            report(machine::examine(&config));
            let is_production = config.environment == Environment::Production;
            report(machine::backup(&config.data_dir, is_production, clock).into_iter().collect());
            let (findings, database_clock) = database::examine(&config.database, &config.data_dir, clock);
            report(findings);
            if unmade.is_empty() {
                report(stored_secrets::examine(&config).into_iter().collect());
            }
            report(machine::ports(&config).await);
            report(neighbours::examine(&config, clock, database_clock).await);
        }
        Err(invalid) => {
            report(invalid.faults().map(|line| Observation::broken("settings", line)).collect());
            report(invalid.warnings.iter().map(|line| Observation::doubtful("settings", line)).collect());
            // The database can be looked at, if at least its place is right.
            if let Ok(StoragePlaces { data_dir, database, .. }) = storage {
                report(machine::of_data_dir(&data_dir));
                report(database::examine(&database, &data_dir, clock).0);
            }
        }
    }
    worst
}

/// Checks that both listeners of a service with these settings answer; the error says why not.
pub async fn answers(config: &Config) -> Result<(), String> {
    let client = tls_config(None).and_then(http::client).map_err(|error| error.to_string())?;
    for (variable, address) in [("API_LISTEN", config.listen.api), ("RELAY_LISTEN", config.listen.relay)] {
        let answered = RelayHealthClient::new(client.clone(), address).check().await;
        answered.map_err(|reason| format!("{variable} {address}: {reason}"))?;
    }
    Ok(())
}
