//! Every number that bounds what one user, address or request may take.

use std::time::Duration;

/// How far the clock of the identity provider may be from ours.
pub const PROVIDER_CLOCK_SKEW: Duration = Duration::from_secs(5 * 60);

/// Largest JSON body, bytes.
pub const JSON_BODY: usize = 64 * 1024;

/// Requests to the sign-in routes per client address: burst, and how many come back per minute.
pub const SIGN_IN_PER_ADDRESS: u32 = 30;

/// Requests of one signed-in user: burst, and how many come back per minute.
pub const REQUESTS_PER_USER: u32 = 300;

/// Paired servers of one user.
pub const PAIRED_SERVERS_PER_USER: usize = 50;

/// Smart devices of one paired server.
pub const DEVICES_PER_SERVER: usize = 200;
