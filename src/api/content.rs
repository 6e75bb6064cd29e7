//! Content that players read: stores, wiki pages, images and items.

pub mod images;
pub mod items;
pub mod stores;
pub mod wiki;
