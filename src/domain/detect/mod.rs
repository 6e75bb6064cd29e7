//! Successive snapshots in, world events out.
