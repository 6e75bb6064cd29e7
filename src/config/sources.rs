//! Where variables come from: the environment, a file of `NAME=value` lines, and files of secrets; and which names among
//! them nothing reads.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use clap::Command;

use super::secret_files;

/// At most this many letters differ where one name is taken for another misspelt: in a file of variables for this
/// service, and in an environment that all programs share.
const IN_A_FILE: usize = 3;
const IN_THE_ENVIRONMENT: usize = 2;
/// Names that others read from the same file or environment: the deployment's own, and the libraries'.
const OF_OTHERS: [&str; 8] = [
    "API_DOMAIN",
    "RELAY_DOMAIN",
    "API_UPSTREAM",
    "RELAY_UPSTREAM",
    "POSTGRES_PASSWORD",
    "RUST_LOG",
    "RUST_BACKTRACE",
    "COMPANION_COMMIT",
];

/// Findings while the variables were read.
#[derive(Clone, Debug, Default)]
pub struct SourceFindings {
    /// One line each.
    pub faults: Vec<String>,
    /// The service runs with them, and hardly as it is meant to.
    pub warnings: Vec<String>,
}

/// The command line as the variables are: those that are blank count as absent, secrets that are in files are defaults. Of
/// a file of variables that was read, the names that nothing reads are warnings.
pub fn with_sources(command: Command, file: Option<&Path>) -> (Command, SourceFindings) {
    let mut findings = SourceFindings { warnings: unknown_names(&command, file), ..SourceFindings::default() };
    let command = secret_files::without_blanks(command, &|name| std::env::var_os(name));
    let command = secret_files::fill(command, &|name| std::env::var_os(name), &mut findings.faults);
    (command, findings)
}

/// Reads the file of variables, or else the `.env` of the working directory or of one above; variables that are set keep
/// their values. The file that was read; on failure, why not.
pub fn read_env_file(named: Option<&Path>) -> Result<Option<PathBuf>, String> {
    let read = match named {
        Some(path) => dotenvy::from_path(path).map(|()| path.to_owned()),
        None => dotenvy::dotenv(),
    };
    let shown = || named.unwrap_or(Path::new(".env")).display();
    match read {
        Ok(path) => Ok(Some(path)),
        Err(dotenvy::Error::Io(error)) if named.is_some() => Err(format!("{}: {error}", shown())),
        Err(error) if error.not_found() => Ok(None),
        Err(_) => Err(format!("{}: it is not a list of NAME=value lines", shown())),
    }
}

fn unknown_names(command: &Command, file: Option<&Path>) -> Vec<String> {
    let known = known_names(command);
    let in_file = file.and_then(|path| dotenvy::from_path_iter(path).ok()).into_iter().flatten();
    let in_file: BTreeSet<String> = in_file.filter_map(|variable| Some(variable.ok()?.0)).collect();
    let environment = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let mut warnings = Vec::new();
    for name in &in_file {
        if !known.contains(name) {
            let nearest = nearest(name, &known, IN_A_FILE).map(|known| format!("; did you mean {known}?"));
            warnings.push(format!("{name} is no setting{}", nearest.unwrap_or_default()));
        }
    }
    for name in environment.filter(|name| !known.contains(name) && !in_file.contains(name)) {
        if let Some(known) = nearest(&name, &known, IN_THE_ENVIRONMENT) {
            warnings.push(format!("{name} is no setting; did you mean {known}?"));
        }
    }
    warnings
}

fn known_names(command: &Command) -> BTreeSet<String> {
    let mut known: BTreeSet<String> = OF_OTHERS.map(str::to_owned).into();
    for argument in command.get_arguments() {
        let Some(name) = argument.get_env().and_then(|name| name.to_str()) else { continue };
        if argument.is_hide_env_values_set() {
            known.insert(secret_files::variable_of_file(name));
        }
        known.insert(name.to_owned());
    }
    for command in command.get_subcommands() {
        known.append(&mut known_names(command));
    }
    known
}

/// The known name that this one differs least from. Short names are like too many others.
fn nearest<'a>(name: &str, known: &'a BTreeSet<String>, most: usize) -> Option<&'a String> {
    let upper = name.to_ascii_uppercase();
    let distance = |known: &&String| strsim::osa_distance(&upper, known);
    known.iter().min_by_key(distance).filter(|known| distance(known) <= most.min(known.len() / 4))
}

#[cfg(test)]
mod tests {
    use clap::Args as _;

    use super::*;
    use crate::config::Settings;

    #[test]
    fn a_name_is_known_or_has_a_neighbour() {
        let known = known_names(&Settings::augment_args(Command::new("serve")));
        assert!(["BASE_URL", "SESSION_SECRET_FILE", "RUST_LOG"].iter().all(|name| known.contains(*name)));
        assert!(!known.contains("BASE_URL_FILE"), "no secret");
        let near = |name| nearest(name, &known, IN_A_FILE).map(String::as_str);
        assert_eq!(near("SESION_SECRET"), Some("SESSION_SECRET"));
        assert_eq!(near("TRUSTED_PROXY"), Some("TRUSTED_PROXIES"));
        assert_eq!(near("base_url"), Some("BASE_URL"));
        assert_eq!(near("HOME"), None);
        assert_eq!(near("LISTEN_PORT"), None);
    }
}
