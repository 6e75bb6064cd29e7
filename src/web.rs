//! The bundled pages: dashboard and overlay, as JavaScript modules that browsers load as they are, without their
//! comments (`src/web/files`).
//!
//! Every file is served below the hash of all of them, so that browsers keep it for good; only the pages themselves are
//! asked for again each time. They are embedded when the program is built. `WEB_DIR` reads them from a directory
//! instead, at each request, for those who write them.

pub mod comments;
pub mod embedded;
pub mod imports;
pub mod pages;
pub mod tree;
