//! Development or production.

use crate::config::check::Check;

/// Where the process runs, as given.
#[derive(Clone, Debug, clap::Args)]
pub struct EnvironmentSettings {
    /// `development` makes missing secrets itself; `production` refuses to start without them
    #[arg(long, env, default_value = "development")]
    pub app_env: String,
}

/// Where the process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Environment {
    Development,
    Production,
}

impl EnvironmentSettings {
    /// Comes first: how strict the other checks are depends on it.
    pub(super) fn check(&self, check: &mut Check) -> Option<Environment> {
        let words = [("development", Environment::Development), ("production", Environment::Production)];
        let environment = check.choice("APP_ENV", &self.app_env, words);
        check.production = environment == Some(Environment::Production);
        environment
    }
}
