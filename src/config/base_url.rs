//! A URL that paths are appended to.

use std::{fmt, ops::Deref};

use url::Url;

/// An absolute URL that paths are appended to; shown without trailing slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseUrl(Url);

impl BaseUrl {
    /// This URL with a path behind its own; `path` begins with a slash.
    pub fn at(&self, path: &str) -> String {
        format!("{self}{path}")
    }
}

impl From<Url> for BaseUrl {
    fn from(url: Url) -> Self {
        Self(url)
    }
}

impl Deref for BaseUrl {
    type Target = Url;

    fn deref(&self) -> &Url {
        &self.0
    }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str().trim_end_matches('/'))
    }
}
