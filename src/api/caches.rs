//! Values that are computed or read once and then shared from memory.

pub mod activity;
pub mod camera_drawing;
pub mod image_uploads;
pub mod item_answers;
pub mod map_pictures;
pub mod own_state;
pub mod service_status;
pub mod short_cache;
pub mod store_answers;
