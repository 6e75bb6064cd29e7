//! The OpenAPI document and its page, and the check that a request has nothing else.

pub mod docs;
pub mod example_values;
pub mod known_input;
pub mod openapi;
pub mod openapi_completion;
pub mod operation_names;
