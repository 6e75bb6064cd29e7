//! Findings, and their remedies.

use std::fmt;

/// State of an observed thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Diagnosis {
    Fine,
    /// The service runs, and something will go wrong, or is not as it should be.
    Doubtful,
    Broken,
}

/// One line: what was looked at, how it is, and what to do about it.
#[derive(Clone, Debug)]
pub struct Observation {
    subject: &'static str,
    pub diagnosis: Diagnosis,
    pub text: String,
}

impl Observation {
    pub(crate) fn fine(subject: &'static str, text: impl Into<String>) -> Self {
        Self { subject, diagnosis: Diagnosis::Fine, text: text.into() }
    }

    pub(crate) fn doubtful(subject: &'static str, text: impl Into<String>) -> Self {
        Self { subject, diagnosis: Diagnosis::Doubtful, text: text.into() }
    }

    pub(crate) fn broken(subject: &'static str, text: impl Into<String>) -> Self {
        Self { subject, diagnosis: Diagnosis::Broken, text: text.into() }
    }
}

impl fmt::Display for Observation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let diagnosis = match self.diagnosis {
            Diagnosis::Fine => "ok",
            Diagnosis::Doubtful => "warn",
            Diagnosis::Broken => "FAIL",
        };
        write!(f, "{diagnosis:<4}  {:<12}  {}", self.subject, self.text)
    }
}
