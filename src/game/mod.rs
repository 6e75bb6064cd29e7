pub mod address;
pub mod budget;
pub mod wire;
