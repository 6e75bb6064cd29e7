//! `.env.example` and docs/configuration.md have every variable of the settings, as the command line defines it.

use std::{env, fmt::Write as _, fs, path::Path};

use clap::{Args as _, Command};
use companion::config::Settings;

/// Set, the files are written again.
const UPDATE: &str = "UPDATE_ENV_EXAMPLE";
const FILE: &str = ".env.example";
const PAGE: &str = "docs/configuration.md";
/// The table of the page is between these.
const TABLE_BEGINS: &str = "by `UPDATE_ENV_EXAMPLE=1 cargo test --test spec env_example` -->\n";
const TABLE_ENDS: &str = "<!-- end of settings -->";

/// A variable: its name, default and help.
fn variables() -> Vec<(String, String, String)> {
    let mut variables = Vec::new();
    for argument in Settings::augment_args(Command::new("serve")).get_arguments() {
        let Some(variable) = argument.get_env().and_then(|variable| variable.to_str()) else { continue };
        let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
        let defaults: Vec<_> = argument.get_default_values().iter().filter_map(|value| value.to_str()).collect();
        variables.push((variable.to_owned(), defaults.join(","), help));
    }
    variables
}

/// The page with the table of now.
fn rendered_page(page: &str) -> String {
    let (before, rest) = page.split_once(TABLE_BEGINS).expect("the page has a place for the table");
    let (_, after) = rest.split_once(TABLE_ENDS).expect("the table has an end");
    let mut table = "\n| Variable | Default | Meaning |\n|---|---|---|\n".to_owned();
    for (variable, default, help) in variables() {
        let default = if default.is_empty() { String::new() } else { format!("`{default}`") };
        writeln!(table, "| `{variable}` | {default} | {} |", help.replace('|', "\\|")).unwrap();
    }
    format!("{before}{TABLE_BEGINS}{table}\n{TABLE_ENDS}{after}")
}

fn rendered() -> String {
    let mut text = "# Every variable of companion; those that are commented out have the value shown, or none. `companion serve`\n\
                    # reads `.env` of its working directory, or the file that --env-file names. `companion gen-secrets` prints\n\
                    # values for the secrets. A secret can be in a file: SESSION_SECRET_FILE names that of SESSION_SECRET, and so on.\n"
        .to_owned();
    for (variable, default, help) in variables() {
        write!(text, "\n# {help}\n#{variable}={default}\n").unwrap();
    }
    text
}

#[test]
fn the_example_of_variables_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE);
    if env::var_os(UPDATE).is_some() {
        fs::write(&path, rendered()).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(written == rendered(), "{FILE} is out of date: `{UPDATE}=1 cargo test --test spec env_example` writes it");
    for (number, line) in written.lines().enumerate() {
        assert!(line.is_empty() || line.starts_with('#'), "line {number} sets something: {line}");
    }
}

#[test]
fn the_page_of_settings_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    let written = fs::read_to_string(&path).unwrap();
    let page = rendered_page(&written);
    if env::var_os(UPDATE).is_some() {
        fs::write(&path, &page).unwrap();
        return;
    }
    assert!(written == page, "{PAGE} is out of date: `{UPDATE}=1 cargo test --test spec env_example` writes it again");
}

#[test]
fn clients_of_a_composed_service_learn_where_the_relay_is() {
    let compose = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/compose.yml")).unwrap();
    for url in ["      BASE_URL: https://${API_DOMAIN:?}\n", "      RELAY_URL: wss://${RELAY_DOMAIN:?}\n"] {
        assert!(compose.contains(url), "{url}");
    }
}

#[test]
fn the_settings_of_the_systemd_unit_are_all_in_its_file_and_all_known() {
    let read = |file| fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
    let known = rendered();
    let settings = read("deploy/companion.env");
    let names: Vec<&str> = settings
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| Some(line.split_once('=')?.0))
        .collect();
    assert!(names.contains(&"APP_ENV") && names.contains(&"DATA_DIR"));
    for name in names {
        assert!(known.contains(&format!("\n#{name}=")), "{name} is no setting");
    }
    let unit = read("deploy/companion.service");
    assert!(unit.lines().all(|line| !line.starts_with("Environment=")), "a command would not see it");
    let backup = read("deploy/companion-backup.service");
    let mut own = backup.lines().filter_map(|line| line.strip_prefix("Environment=")).flat_map(str::split_whitespace);
    assert!(own.all(|variable| variable.starts_with("BACKUP_")), "it would save what the service does not have");
    assert!(backup.contains("EnvironmentFile=/etc/companion/companion.env"));
    assert!(read("deploy/companionctl").contains("EnvironmentFile=/etc/companion/companion.env"));
}

/// The first place to look after a leak.
#[test]
fn the_table_of_secrets_says_of_each_how_it_is_rotated() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/operations.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, rest) = page.split_once("\n## Secrets, and how each is rotated\n").expect("the page has the section");
    let (section, _) = rest.split_once("\n## ").expect("another section follows");
    let table: Vec<&str> = section.lines().filter(|line| line.starts_with('|')).collect();
    let mut missing = Vec::new();
    for argument in Settings::augment_args(Command::new("serve")).get_arguments() {
        let Some(variable) = argument.get_env().and_then(|variable| variable.to_str()) else { continue };
        let is_named = table.iter().any(|row| row.contains(&format!("`{variable}`")));
        if argument.is_hide_env_values_set() && !is_named {
            missing.push(variable.to_owned());
        }
    }
    assert!(missing.is_empty(), "docs/operations.md, Secrets, has no row for {}", missing.join(", "));
}
