//! The files as they were when the program was built; the build script lists them.

include!(concat!(env!("OUT_DIR"), "/web_files.rs"));
