//! Where uploaded images are kept.

use std::path::{Path, PathBuf};

use secrecy::SecretString;

use crate::config::{
    base_url::BaseUrl,
    check::{Check, HTTP, given, given_secret},
};

/// The storage of images, as given.
#[derive(Clone, Debug, clap::Args)]
pub struct ImageSettings {
    /// S3 bucket for uploaded images; without it they are kept in the data directory
    #[arg(long, env)]
    pub images_s3_bucket: Option<String>,
    /// URL of the S3 service [default: that of Amazon's region]
    #[arg(long, env)]
    pub images_s3_endpoint: Option<String>,
    /// Region of the bucket
    #[arg(long, env, default_value = "us-east-1")]
    pub images_s3_region: String,
    /// Access key of the bucket
    #[arg(long, env)]
    pub images_s3_access_key_id: Option<String>,
    /// Secret of the access key
    #[arg(long, env, hide_env_values = true)]
    pub images_s3_secret_access_key: Option<SecretString>,
}

/// Where uploaded images are kept.
#[derive(Clone, Debug)]
pub enum ImageStorage {
    Directory(PathBuf),
    S3(ImageBucket),
}

/// A bucket of an S3 service.
#[derive(Clone, Debug)]
pub struct ImageBucket {
    pub name: String,
    /// `None`: Amazon's.
    pub endpoint: Option<BaseUrl>,
    pub region: String,
    pub access_key_id: String,
    pub secret_access_key: SecretString,
}

impl ImageSettings {
    pub(super) fn check(self, data_dir: &Path, check: &mut Check) -> Option<ImageStorage> {
        let endpoint = given(self.images_s3_endpoint);
        let (key, secret) = (given(self.images_s3_access_key_id), given_secret(self.images_s3_secret_access_key));
        let Some(name) = given(self.images_s3_bucket) else {
            let without = [
                ("IMAGES_S3_ENDPOINT", endpoint.is_some()),
                ("IMAGES_S3_ACCESS_KEY_ID", key.is_some()),
                ("IMAGES_S3_SECRET_ACCESS_KEY", secret.is_some()),
            ];
            let faults = check.faults.len();
            for (variable, _) in without.into_iter().filter(|(_, is_set)| *is_set) {
                check.fault(variable, "is set without IMAGES_S3_BUCKET");
            }
            return (check.faults.len() == faults).then(|| ImageStorage::Directory(data_dir.join("images")));
        };
        let endpoint = endpoint.map(|url| check.url("IMAGES_S3_ENDPOINT", &url, HTTP));
        for (variable, is_missing) in
            [("IMAGES_S3_ACCESS_KEY_ID", key.is_none()), ("IMAGES_S3_SECRET_ACCESS_KEY", secret.is_none())]
        {
            if is_missing {
                check.fault(variable, "is missing");
            }
        }
        let endpoint = match endpoint {
            Some(url) => Some(url?),
            None => None,
        };
        let region = self.images_s3_region.trim().to_owned();
        Some(ImageStorage::S3(ImageBucket { name, endpoint, region, access_key_id: key?, secret_access_key: secret? }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(bucket: &str, endpoint: &str, key: &str, secret: &str) -> (Option<ImageStorage>, Vec<String>) {
        let settings = ImageSettings {
            images_s3_bucket: Some(bucket.into()),
            images_s3_endpoint: Some(endpoint.into()),
            images_s3_region: " eu ".into(),
            images_s3_access_key_id: Some(key.into()),
            images_s3_secret_access_key: Some(secret.into()),
        };
        let mut check = Check { production: true, ..Check::default() };
        (settings.check(Path::new("data"), &mut check), check.faults)
    }

    #[test]
    fn images_are_in_the_data_directory_unless_a_bucket_is_named() {
        let (storage, faults) = checked(" ", "", "", "");
        assert!(matches!(storage, Some(ImageStorage::Directory(path)) if path == Path::new("data/images")));
        assert_eq!(faults, [""; 0]);
        let (storage, _) = checked("icons", "https://s3.test/", "key", "Hunter2");
        let Some(ImageStorage::S3(bucket)) = storage else { panic!("a bucket") };
        assert_eq!((bucket.name.as_str(), bucket.region.as_str()), ("icons", "eu"));
        assert_eq!(bucket.endpoint.as_ref().map(ToString::to_string).as_deref(), Some("https://s3.test"));
        assert!(!format!("{bucket:?}").contains("Hunter2"));
    }

    #[test]
    fn a_bucket_is_named_with_all_that_it_takes_or_not_at_all() {
        assert_eq!(checked("", "https://s3.test", "key", "secret").1.len(), 3);
        assert_eq!(checked("icons", "", "", "").1.len(), 2);
        assert_eq!(checked("icons", "http://s3.test", "key", "secret").1.len(), 1, "in plain text");
        assert!(checked("icons", "http://127.0.0.1:9", "key", "secret").0.is_some());
    }
}
