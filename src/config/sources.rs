//! Where variables come from: the environment, a file of `NAME=value` lines, and files of secrets; and which names among
//! them nothing reads.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
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
/// a file of variables that was read, the names that nothing reads, and those that are set twice, are warnings.
pub fn with_sources(command: Command, file: Option<&Path>) -> (Command, SourceFindings) {
    let mut findings = SourceFindings { warnings: unknown_names(&command, file), ..SourceFindings::default() };
    if let Some(text) = file.and_then(|path| fs::read_to_string(path).ok()) {
        findings.warnings.extend(names_set_twice(&text));
    }
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

/// A warning for each name that has several lines in the text of a file of variables.
fn names_set_twice(text: &str) -> Vec<String> {
    let mut lines = BTreeMap::<&str, Vec<usize>>::new();
    for (index, line) in text.lines().enumerate() {
        let Some((name, _)) = line.split_once('=') else { continue };
        let name = name.trim();
        let name = name.strip_prefix("export ").unwrap_or(name).trim_start();
        if !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            lines.entry(name).or_default().push(index + 1);
        }
    }
    lines.retain(|_, lines| lines.len() > 1);
    let warning = |(name, lines): (&str, Vec<usize>)| {
        let of = lines.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
        format!(
            "{name} is set {} in the file of variables, lines {of}: line {} counts here, and the last one where systemd or \
             docker reads the file; take the others out",
            if lines.len() == 2 { "twice".to_owned() } else { format!("{} times", lines.len()) },
            lines[0]
        )
    };
    lines.into_iter().map(warning).collect()
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
    fn a_name_that_is_set_twice_is_named_with_its_lines() {
        let twice = |text: &str| names_set_twice(text);
        assert_eq!(twice("# A=1\nA=1\nB=A=2\n\nAB=3\n-----=\n-----=\n"), [""; 0]);
        let found = twice("B=1\nA=1\nexport B=2\n A = 3\nA=\n");
        assert!(
            found[0].starts_with("A is set 3 times in the file of variables, lines 2, 4, 5: line 2 counts"),
            "{found:?}"
        );
        assert!(
            found[1].starts_with("B is set twice in the file of variables, lines 1, 3: line 1 counts"),
            "{found:?}"
        );
    }

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
