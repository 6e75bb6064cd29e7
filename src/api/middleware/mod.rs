//! Layers around every request, or around the requests of some routes.

pub mod admin_only;
pub mod head;
pub mod observe;
pub mod rate_limit;
