//! Parts that answers are made of: errors, pages, lists, entity tags and fields.

pub mod chat_problem;
pub mod done;
pub mod error;
pub mod etags;
pub mod fields;
pub mod fixed_answer;
pub mod list_page;
pub mod map_places;
pub mod page;
pub mod registration_problem;
pub mod request_log_fields;
pub mod tier_limits;
