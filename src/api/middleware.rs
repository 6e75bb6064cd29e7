//! Layers around every request, or around the requests of some routes.

pub mod admin_only;
pub mod content_encoding;
pub mod cors;
pub mod head;
pub mod observe;
pub mod rate_limit;
pub mod route_class;
