//! A registered device: everything that its steps gave, most of it secret. Stored sealed by the service, and in a file of
//! its owner's by the helper.

use std::fmt;

use secrecy::{ExposeSecret as _, SecretBox, SecretString, zeroize::Zeroizing};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use serde_json::{Value, json};

use crate::domain::{
    game_login,
    ids::PlatformId,
    registration::{RegistrationStep, StepFailure, StepFault},
    time::Timestamp,
};

/// A device at Google: with both numbers its pushes are received.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceIdentity {
    /// Decimal text: it exceeds what other readers of JSON take as a number.
    #[serde(serialize_with = "write_number", deserialize_with = "read_number")]
    pub android_id: u64,
    #[serde(serialize_with = "write_token", deserialize_with = "read_token")]
    pub security_token: SecretBox<u64>,
}

/// A device, as far as its registration has come. One identity is kept for ever, and is of one account.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RegisteredDevice {
    /// UUID, the key of a registration at the game: the same one again replaces it, and two devices never share one.
    pub device_id: String,
    pub identity: Option<DeviceIdentity>,
    /// Google's token of an installation of the app, from its step until it is used.
    #[serde(default, serialize_with = "write_text", deserialize_with = "read_text")]
    pub installation: Option<SecretString>,
    /// Google's address of the device (FCM token).
    #[serde(serialize_with = "write_text", deserialize_with = "read_text")]
    pub push_address: Option<SecretString>,
    /// Expo's name of that address.
    #[serde(serialize_with = "write_text", deserialize_with = "read_text")]
    pub expo_token: Option<SecretString>,
    /// The newest token of the player's login at the game.
    #[serde(serialize_with = "write_text", deserialize_with = "read_text")]
    pub auth_token: Option<SecretString>,
    /// End of the registration at the game; `None`: it is to be made.
    pub expires_at: Option<Timestamp>,
}

impl RegisteredDevice {
    /// A device without anything; `device_id` is a UUID that was never used.
    pub fn new(device_id: String) -> Self {
        Self {
            device_id,
            identity: None,
            installation: None,
            push_address: None,
            expo_token: None,
            auth_token: None,
            expires_at: None,
        }
    }

    /// JSON, to be sealed or written to a file of its owner's.
    pub fn stored(&self) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(serde_json::to_vec(self).expect("texts and numbers are always JSON"))
    }

    /// The first step that is not made. The login comes first: one that is given up then leaves no device behind.
    pub fn next_step(&self) -> RegistrationStep {
        if self.expires_at.is_some() {
            RegistrationStep::Credential
        } else if self.auth_token.is_none() {
            RegistrationStep::SignIn
        } else if self.identity.is_none() {
            RegistrationStep::CheckIn
        } else if self.push_address.is_none() && self.installation.is_none() {
            RegistrationStep::Installation
        } else if self.push_address.is_none() {
            RegistrationStep::PushAddress
        } else if self.expo_token.is_none() {
            RegistrationStep::ExpoToken
        } else {
            RegistrationStep::GameRegistration
        }
    }

    /// True if there is a token of the account that has not ended, as far as it says itself.
    pub fn has_login(&self, now: Timestamp) -> bool {
        self.auth_token.as_ref().is_some_and(|token| game_login::read_token(token.expose_secret(), now).is_ok())
    }

    /// Discards the part that this failure shows to be refused for good, so that it is made once more; false: there is
    /// none. Google's `AUTHENTICATION_FAILED` is of the identity; the game's 400 is of Expo's token.
    pub fn discard_refused(&mut self, failure: &StepFailure) -> bool {
        match (failure.fault, failure.answer.as_deref()) {
            (StepFault::PushAddressRefused, Some("AUTHENTICATION_FAILED")) => {
                (self.identity, self.push_address, self.expo_token) = (None, None, None);
                true
            }
            (StepFault::GameRefused, Some("status_400")) => self.expo_token.take().is_some(),
            _ => false,
        }
    }

    /// The bundle with which the service receives the pushes of this account; `None` without an identity. The token of
    /// the account is not in it.
    pub fn bundle(&self, owner: &PlatformId) -> Option<Value> {
        let DeviceIdentity { android_id, security_token } = self.identity.as_ref()?;
        Some(json!({
            "platformId": owner,
            "fcm_credentials": { "gcm": {
                "androidId": android_id.to_string(),
                "securityToken": security_token.expose_secret().to_string(),
            } },
            "expiresAt": self.expires_at.map(|at| at.to_wire()),
            "helper": { "version": env!("CARGO_PKG_VERSION"), "deviceId": self.device_id },
        }))
    }
}

impl fmt::Debug for RegisteredDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegisteredDevice").field("next_step", &self.next_step()).finish_non_exhaustive()
    }
}

fn write_number<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(number)
}

fn read_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(|_| D::Error::custom("not an unsigned 64-bit number"))
}

fn write_token<S: Serializer>(token: &SecretBox<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    write_number(token.expose_secret(), serializer)
}

fn read_token<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SecretBox<u64>, D::Error> {
    Ok(SecretBox::new(Box::new(read_number(deserializer)?)))
}

fn write_text<S: Serializer>(text: &Option<SecretString>, serializer: S) -> Result<S::Ok, S::Error> {
    text.as_ref().map(|text| text.expose_secret()).serialize(serializer)
}

fn read_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SecretString>, D::Error> {
    Option::deserialize(deserializer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole() -> RegisteredDevice {
        let identity = DeviceIdentity { android_id: u64::MAX, security_token: SecretBox::new(Box::new(987_654)) };
        RegisteredDevice {
            identity: Some(identity),
            installation: Some("Hunter2-d".into()),
            push_address: Some("Hunter2-a".into()),
            expo_token: Some("Hunter2-b".into()),
            auth_token: Some("Hunter2-c".into()),
            expires_at: Timestamp::from_timestamp(1_800_000_000, 0),
            ..RegisteredDevice::new("device".to_owned())
        }
    }

    #[test]
    fn a_device_is_stored_whole_and_never_printed() {
        let stored = serde_json::to_string(&whole()).unwrap();
        let read: RegisteredDevice = serde_json::from_str(&stored).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), stored);
        // One of a version that kept no installation.
        let older = stored.replace("\"installation\":\"Hunter2-d\",", "");
        let older: RegisteredDevice = serde_json::from_str(&older).unwrap();
        assert!(older.installation.is_none() && older.push_address.is_some());
        assert!(stored.contains("\"18446744073709551615\"") && stored.contains("Hunter2-c"));
        let shown = format!("{read:?}{:?}", read.identity);
        assert!(!shown.contains("Hunter2") && !shown.contains("987654"), "{shown}");
    }

    #[test]
    fn steps_follow_from_what_is_there() {
        let mut device = RegisteredDevice::new("device".to_owned());
        let mut steps = vec![device.next_step()];
        let RegisteredDevice { identity, installation, push_address, expo_token, auth_token, expires_at, .. } = whole();
        device.auth_token = auth_token;
        steps.push(device.next_step());
        device.identity = identity;
        steps.push(device.next_step());
        device.installation = installation;
        steps.push(device.next_step());
        device.push_address = push_address;
        steps.push(device.next_step());
        device.expo_token = expo_token;
        steps.push(device.next_step());
        device.expires_at = expires_at;
        steps.push(device.next_step());
        assert_eq!(steps, RegistrationStep::ALL);
    }

    #[test]
    fn the_bundle_has_no_token_of_the_account() {
        let bundle = whole().bundle(&"76561198000000001".into()).unwrap().to_string();
        assert!(!bundle.contains("Hunter2") && bundle.contains("\"987654\""), "{bundle}");
    }
}
