//! What happens around every request, or around every request of a family.

pub mod csrf;
pub mod observe;
pub mod rate_limit;
