//! The registration for the game's pushes: its neighbours, and the constants by which they know the game's app. They
//! are in the app and in every public tool; all but the key have defaults here, and all of them may change any day.

use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;

use crate::config::{
    base_url::BaseUrl,
    check::{Check, HTTP, given_secret},
};

/// The registration, as given.
#[derive(Clone, Debug, clap::Args)]
pub struct RegistrationSettings {
    /// API key of the game's app at Google, `AIza…`; without it the service registers nothing itself. Paired helpers get it
    #[arg(long, env, hide_env_values = true)]
    pub registration_api_key: Option<SecretString>,
    /// Base URL of Google's check-in and push registration
    #[arg(long, env, default_value = "https://android.clients.google.com")]
    pub registration_google_url: String,
    /// Base URL of Google's Firebase installations
    #[arg(long, env, default_value = "https://firebaseinstallations.googleapis.com")]
    pub registration_installations_url: String,
    /// Base URL of Expo, through which the game sends its pushes
    #[arg(long, env, default_value = "https://exp.host")]
    pub registration_expo_url: String,
    /// Base URL of the game's companion site: login and registration
    #[arg(long, env, default_value = "https://companion-rust.facepunch.com")]
    pub registration_game_url: String,
    /// Firebase project of the game's app
    #[arg(long, env, default_value = "rust-companion-app")]
    pub registration_project: String,
    /// Sender id of the project
    #[arg(long, env, default_value = "976529667804")]
    pub registration_sender_id: String,
    /// Firebase id of the app
    #[arg(long, env, default_value = "1:976529667804:android:d6f1ddeb4403b338fea619")]
    pub registration_app_id: String,
    /// Android package of the app
    #[arg(long, env, default_value = "com.facepunch.rust.companion")]
    pub registration_package: String,
    /// SHA-1 of the app's certificate, 40 hex digits
    #[arg(long, env, default_value = "E28D05345FB78A7A1A63D70F4A302DBF426CA5AD")]
    pub registration_certificate: String,
    /// Project of the app at Expo
    #[arg(long, env, default_value = "49451aca-a822-41e6-ad59-955718d0ff9c")]
    pub registration_expo_project: String,
}

/// The registration's neighbours, and the game's app as they know it.
#[derive(Clone, Debug)]
pub struct Registration {
    /// Empty: not known. Never so in the service.
    pub api_key: SecretString,
    pub google_url: BaseUrl,
    pub installations_url: BaseUrl,
    pub expo_url: BaseUrl,
    pub game_url: BaseUrl,
    pub project: String,
    pub sender_id: String,
    pub app_id: String,
    pub package: String,
    pub certificate: String,
    pub expo_project: String,
}

impl Registration {
    /// True if Google can be asked.
    pub fn has_key(&self) -> bool {
        !self.api_key.expose_secret().is_empty()
    }
}

/// The game's app as Google and Expo know it, which a service gives to the helpers of its users.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GameApp {
    api_key: SecretString,
    project: String,
    sender_id: String,
    app_id: String,
    package: String,
    certificate: String,
    expo_project: String,
}

impl RegistrationSettings {
    /// These sites, with this app.
    pub fn for_app(self, app: GameApp) -> Self {
        let GameApp { api_key, project, sender_id, app_id, package, certificate, expo_project } = app;
        Self {
            registration_api_key: Some(api_key),
            registration_project: project,
            registration_sender_id: sender_id,
            registration_app_id: app_id,
            registration_package: package,
            registration_certificate: certificate,
            registration_expo_project: expo_project,
            ..self
        }
    }

    /// `Some(None)`: there is no key, and users bring the bundles of other tools.
    pub(super) fn check(self, check: &mut Check) -> Option<Option<Registration>> {
        Some(Some(self.check_all(check)?).filter(Registration::has_key))
    }

    fn check_all(self, check: &mut Check) -> Option<Registration> {
        let google_url = check.url("REGISTRATION_GOOGLE_URL", &self.registration_google_url, HTTP);
        let installations_url = check.url("REGISTRATION_INSTALLATIONS_URL", &self.registration_installations_url, HTTP);
        let expo_url = check.url("REGISTRATION_EXPO_URL", &self.registration_expo_url, HTTP);
        let game_url = check.url("REGISTRATION_GAME_URL", &self.registration_game_url, HTTP);
        // Some of them become headers and parts of paths.
        let mut constant = |variable: &str, text: String| {
            let text = text.trim().to_owned();
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || b".:-_".contains(&byte);
            if text.is_empty() || !text.bytes().all(fits) {
                check.fault(variable, "is not of letters, digits, dots, colons, hyphens and underscores");
            }
            text
        };
        let project = constant("REGISTRATION_PROJECT", self.registration_project);
        let sender_id = constant("REGISTRATION_SENDER_ID", self.registration_sender_id);
        let app_id = constant("REGISTRATION_APP_ID", self.registration_app_id);
        let package = constant("REGISTRATION_PACKAGE", self.registration_package);
        let certificate = constant("REGISTRATION_CERTIFICATE", self.registration_certificate);
        let expo_project = constant("REGISTRATION_EXPO_PROJECT", self.registration_expo_project);
        let api_key = given_secret(self.registration_api_key).unwrap_or_else(|| "".into());
        if !api_key.expose_secret().bytes().all(|byte| byte.is_ascii_graphic()) {
            check.fault("REGISTRATION_API_KEY", "is not a key of Google's");
        }
        Some(Registration {
            api_key,
            google_url: google_url?,
            installations_url: installations_url?,
            expo_url: expo_url?,
            game_url: game_url?,
            project,
            sender_id,
            app_id,
            package,
            certificate,
            expo_project,
        })
    }

    /// The registration of a program that is not the service, which may have no key; the error has one line for each
    /// fault.
    pub fn check_alone(self) -> Result<Registration, String> {
        let mut check = Check::default();
        let checked = self.check_all(&mut check);
        checked.filter(|_| check.faults.is_empty()).ok_or_else(|| check.faults.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct CommandLine {
        #[command(flatten)]
        settings: RegistrationSettings,
    }

    fn checked(flags: &[&str]) -> Result<Registration, String> {
        let line = CommandLine::try_parse_from(["companion"].iter().chain(flags)).expect("the flags parse");
        line.settings.check_alone()
    }

    #[test]
    fn the_key_alone_turns_it_on() {
        assert!(!checked(&["--registration-api-key= "]).unwrap().has_key());
        let registration = checked(&["--registration-api-key=AIza"]).unwrap();
        assert!(registration.has_key());
        assert_eq!(registration.game_url.at("/login"), "https://companion-rust.facepunch.com/login");
        assert_eq!(registration.app_id, "1:976529667804:android:d6f1ddeb4403b338fea619");
    }

    #[test]
    fn the_app_of_a_service_is_checked_like_one_of_the_command_line() {
        let app = |package: &str| -> GameApp {
            serde_json::from_value(serde_json::json!({
                "apiKey": "AIzaService", "project": "p", "senderId": "97", "appId": "1:97", "package": package,
                "certificate": "E28D", "expoProject": "expo",
            }))
            .unwrap()
        };
        let settings =
            || CommandLine::try_parse_from(["companion", "--registration-game-url=http://game.test"]).unwrap();
        let registration = settings().settings.for_app(app("a.package")).check_alone().unwrap();
        assert!(registration.has_key() && registration.package == "a.package" && registration.sender_id == "97");
        assert_eq!(
            registration.game_url.at("/login"),
            "http://game.test/login",
            "the sites are never those of a service"
        );
        assert!(settings().settings.for_app(app("a\r\nb")).check_alone().unwrap_err().contains("REGISTRATION_PACKAGE"));
    }

    #[test]
    fn a_constant_that_would_change_a_header_or_path_is_refused() {
        let faults = checked(&[
            "--registration-api-key=a b",
            "--registration-expo-url=exp.host",
            "--registration-project=a/b",
            "--registration-certificate=",
        ]);
        let faults = faults.unwrap_err();
        let named: Vec<&str> = faults.lines().map(|line| line.split(' ').next().unwrap()).collect();
        let expected =
            ["REGISTRATION_EXPO_URL", "REGISTRATION_PROJECT", "REGISTRATION_CERTIFICATE", "REGISTRATION_API_KEY"];
        assert_eq!(named, expected);
    }
}
