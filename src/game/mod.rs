pub mod address;
pub mod budget;
pub mod link;
pub mod reading;
pub mod wire;
