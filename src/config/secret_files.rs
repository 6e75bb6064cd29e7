//! Secrets that are in files: `NAME_FILE` names the file of the secret `NAME`, and a service manager that passes credentials
//! (systemd) has a directory of files that are named as their secrets. Unlike variables, files are in no list of processes
//! and no child inherits them.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use clap::{Arg, Command};

/// Where systemd puts credentials.
const DIRECTORY: &str = "CREDENTIALS_DIRECTORY";
/// Bytes of a file that are read; no secret is as long.
const LONGEST: u64 = 64 * 1024;

/// The command line with the secrets that are in files as defaults of their arguments. What is wrong with them is added to
/// `faults`, one line each. `variable` gives the variables of the process.
pub fn fill(command: Command, variable: &dyn Fn(&str) -> Option<OsString>, faults: &mut Vec<String>) -> Command {
    let command = filled(command, variable, faults);
    // An argument is there once for each command.
    faults.sort();
    faults.dedup();
    command
}

/// The variable that names the file of this secret.
pub fn variable_of_file(secret: &str) -> String {
    format!("{secret}_FILE")
}

/// The command line without the variables that are blank: they count as absent, for every argument.
pub fn without_blanks(command: Command, variable: &dyn Fn(&str) -> Option<OsString>) -> Command {
    let is_blank = |name: &str| variable(name).is_some_and(|value| value.to_string_lossy().trim().is_empty());
    let command = command.mut_args(|argument| match argument.get_env().and_then(|name| name.to_str()) {
        // A secret that is blank may still be in a file.
        Some(name) if !argument.is_hide_env_values_set() && is_blank(name) => argument.env(None::<&'static str>),
        _ => argument,
    });
    command.mut_subcommands(|command| without_blanks(command, variable))
}

fn filled(command: Command, variable: &dyn Fn(&str) -> Option<OsString>, faults: &mut Vec<String>) -> Command {
    let command = command.mut_args(|argument| {
        let secret = argument.get_env().filter(|_| argument.is_hide_env_values_set());
        let Some(name) = secret.and_then(|name| name.to_str()).map(str::to_owned) else { return argument };
        match in_file(&name, variable) {
            Ok(Some(secret)) => with_default(argument, secret),
            Ok(None) => argument,
            Err(fault) => {
                faults.push(fault);
                argument
            }
        }
    });
    command.mut_subcommands(|command| filled(command, variable, faults))
}

/// clap keeps defaults for the whole life of the process.
fn with_default(argument: Arg, secret: String) -> Arg {
    let secret: &'static str = Box::leak(secret.into_boxed_str());
    argument.env(None::<&'static str>).default_value(secret).hide_default_value(true)
}

/// The secret of this name, if it is in a file; what is wrong otherwise.
fn in_file(name: &str, variable: &dyn Fn(&str) -> Option<OsString>) -> Result<Option<String>, String> {
    let given = |name: &str| variable(name).filter(|value| !value.to_string_lossy().trim().is_empty());
    let file = variable_of_file(name);
    let path = match (given(name), given(&file)) {
        (Some(_), Some(_)) => return Err(format!("{name} and {file} are both set")),
        (Some(_), None) => return Ok(None),
        (None, Some(path)) => PathBuf::from(path),
        (None, None) => {
            let credential = given(DIRECTORY).map(|directory| Path::new(&directory).join(name));
            match credential.filter(|path| path.exists()) {
                Some(path) => path,
                None => return Ok(None),
            }
        }
    };
    let text = read(&path).map_err(|error| format!("{file}: {} cannot be read: {error}", path.display()))?;
    Ok(Some(text.trim_end_matches(['\r', '\n']).to_owned()))
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(LONGEST).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::{collections::HashMap, fs};

    use clap::{Args as _, FromArgMatches as _};
    use secrecy::ExposeSecret as _;

    use super::*;
    use crate::config::Settings;

    /// The session secret and the metrics token of a process with these variables.
    fn secrets(variables: &[(&str, &str)]) -> Result<[Option<String>; 2], String> {
        let variables: HashMap<&str, &str> = variables.iter().copied().collect();
        let command = Command::new("companion").subcommand(Settings::augment_args(Command::new("serve")));
        let mut faults = Vec::new();
        let command = fill(command, &|name| variables.get(name).map(OsString::from), &mut faults);
        if !faults.is_empty() {
            return Err(faults.join("\n"));
        }
        let matches = command.try_get_matches_from(["companion", "serve"]).unwrap();
        let settings = Settings::from_arg_matches(matches.subcommand().unwrap().1).unwrap();
        let found = [settings.secrets.session_secret, settings.operation.metrics_token];
        Ok(found.map(|secret| secret.map(|secret| secret.expose_secret().to_owned())))
    }

    #[test]
    fn a_secret_is_read_from_the_file_that_is_named_and_from_a_credential() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
        fs::write(file("named"), "in a file\n").unwrap();
        fs::write(file("METRICS_TOKEN"), "a credential").unwrap();
        fs::write(file("SESSION_SECRET"), "another").unwrap();
        let (named, credentials) = (file("named"), directory.path().to_str().unwrap().to_owned());
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(secrets(&[]), Ok([None, None]));
        assert_eq!(secrets(&[("SESSION_SECRET_FILE", &named)]), Ok([some("in a file"), None]));
        let both = [("SESSION_SECRET_FILE", &*named), (DIRECTORY, &credentials)];
        assert_eq!(secrets(&both), Ok([some("in a file"), some("a credential")]));
        assert_eq!(secrets(&[("SESSION_SECRET", ""), both[0]]), Ok([some("in a file"), None]), "empty is absent");
        let fault = secrets(&[("SESSION_SECRET", "given"), both[0]]).unwrap_err();
        assert_eq!(fault, "SESSION_SECRET and SESSION_SECRET_FILE are both set");
        let fault = secrets(&[("SESSION_SECRET_FILE", &file("missing"))]).unwrap_err();
        assert!(fault.starts_with("SESSION_SECRET_FILE: ") && fault.contains("missing cannot be read"), "{fault}");
    }

    #[test]
    fn help_shows_no_secret() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("SESSION_SECRET"), "hidden").unwrap();
        let command = Settings::augment_args(Command::new("serve"));
        let credentials = directory.path().as_os_str().to_owned();
        let mut command = fill(command, &|name| (name == DIRECTORY).then(|| credentials.clone()), &mut Vec::new());
        let help = command.render_long_help().to_string();
        assert!(help.contains("--session-secret") && !help.contains("hidden"));
    }
}
