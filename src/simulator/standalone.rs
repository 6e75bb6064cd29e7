//! The simulator as a program: what `companion simulate` runs.
