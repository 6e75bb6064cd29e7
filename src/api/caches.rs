//! Values that are computed or read once and then shared from memory.

pub mod activity;
pub mod admin_overview;
pub mod avatars;
pub mod camera_drawing;
pub mod image_uploads;
pub mod item_responses;
pub mod map_pictures;
pub mod service_health;
pub mod short_cache;
pub mod store_responses;
