//! Content that players read: stores, wiki pages, images and items.

pub mod avatars;
pub mod images;
pub mod items;
pub mod stores;
pub mod wiki;
pub mod wiki_html;
