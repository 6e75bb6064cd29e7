//! The files below one hash, compressed once.

use std::{collections::BTreeMap, fs, io, io::Write as _, path::Path};

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};

use crate::{
    crypto::digest::sha256_hex,
    web::{comments::without_comments, imports},
};

/// Longest path below the directory of the files, and the deepest one.
const DEPTH: usize = 8;

/// A file as browsers get it.
#[derive(Clone, Debug)]
pub struct TreeFile {
    pub media_type: &'static str,
    pub plain: Bytes,
    /// `None`: it would hardly be smaller.
    pub gzip: Option<Bytes>,
}

impl TreeFile {
    /// A file of this path (its ending decides the media type); `level` 0..=9. Scripts are without comments.
    pub fn new(path: &str, bytes: impl Into<Bytes>, level: u32) -> Self {
        let bytes: Bytes = bytes.into();
        let script = path.ends_with(".js").then(|| std::str::from_utf8(&bytes).ok()).flatten();
        let plain = script.map_or_else(|| bytes.clone(), |text| without_comments(text).into());
        let (media_type, is_text) = media_type(path);
        let gzip = is_text.then(|| gzip(&plain, level)).filter(|gzip| gzip.len() < plain.len());
        Self { media_type, plain, gzip }
    }
}

fn gzip(plain: &[u8], level: u32) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(level));
    encoder.write_all(plain).expect("memory takes everything");
    encoder.finish().expect("memory takes everything").into()
}

/// The media type of a path, and true if the file is a text.
fn media_type(path: &str) -> (&'static str, bool) {
    match path.rsplit_once('.').map_or("", |(_, ending)| ending) {
        "js" => ("text/javascript; charset=utf-8", true),
        "css" => ("text/css; charset=utf-8", true),
        "html" => ("text/html; charset=utf-8", true),
        "svg" => ("image/svg+xml", true),
        "webmanifest" => ("application/manifest+json", true),
        "json" => ("application/json", true),
        "png" => ("image/png", false),
        "webp" => ("image/webp", false),
        _ => ("text/plain; charset=utf-8", true),
    }
}

/// All files.
#[derive(Debug)]
pub struct Tree {
    /// 16 hexadecimal characters, over every path and byte.
    pub hash: String,
    files: BTreeMap<String, TreeFile>,
}

impl Tree {
    /// A tree of these files, by path.
    pub fn new<'a>(files: impl IntoIterator<Item = (&'a str, Bytes)>, level: u32) -> Self {
        let files: BTreeMap<String, TreeFile> =
            files.into_iter().map(|(path, bytes)| (path.to_owned(), TreeFile::new(path, bytes, level))).collect();
        let mut all = Vec::new();
        for (path, file) in &files {
            // Lengths, so that no byte of one file can pass for one of another.
            all.extend_from_slice(format!("{path} {}\n", file.plain.len()).as_bytes());
            all.extend_from_slice(&file.plain);
        }
        Self { hash: sha256_hex(&all)[..16].to_owned(), files }
    }

    /// The tree of a directory, without what is no file or cannot be read.
    pub fn read(directory: &Path) -> io::Result<Self> {
        let mut found = Vec::new();
        collect(directory, "", DEPTH, &mut found)?;
        Ok(Self::new(found.iter().map(|(path, bytes)| (path.as_str(), bytes.clone())), 1))
    }

    /// The file at this path below the root.
    pub fn file(&self, path: &str) -> Option<&TreeFile> {
        self.files.get(path)
    }

    /// Modules that a module imports, as [`imports::needed_by`] says.
    pub fn needed_by(&self, entry: &str) -> Vec<String> {
        let modules = self.files.iter().filter(|(path, _)| path.ends_with(".js"));
        let texts = modules.map(|(path, file)| (path.as_str(), std::str::from_utf8(&file.plain).unwrap_or_default()));
        imports::needed_by(&texts.collect(), entry)
    }
}

fn collect(directory: &Path, prefix: &str, depth: usize, found: &mut Vec<(String, Bytes)>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let path = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            if depth > 0 {
                let _ = collect(&entry.path(), &format!("{path}/"), depth - 1, found);
            }
        // A pipe would be read for ever; a link may point to one, or to nothing.
        } else if fs::metadata(entry.path()).is_ok_and(|target| target.is_file())
            && let Ok(bytes) = fs::read(entry.path())
        {
            found.push((path, bytes.into()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&'static str, &'static str)]) -> Tree {
        Tree::new(files.iter().map(|(path, text)| (*path, Bytes::from_static(text.as_bytes()))), 9)
    }

    #[test]
    fn every_byte_and_every_name_counts_in_the_hash() {
        let hash = |files: &[(&'static str, &'static str)]| tree(files).hash;
        let one = hash(&[("a.js", "x"), ("b.js", "")]);
        assert_eq!(one.len(), 16);
        assert_eq!(one, hash(&[("b.js", ""), ("a.js", "x")]));
        for other in
            [hash(&[("a.js", ""), ("b.js", "x")]), hash(&[("a.js", "y"), ("b.js", "")]), hash(&[("a.js", "x")])]
        {
            assert_ne!(one, other);
        }
    }

    #[test]
    fn only_files_are_read_from_a_directory() {
        use std::{os::unix::fs::symlink, process::Command};
        let directory = tempfile::TempDir::new().unwrap();
        let at = |path: &str| directory.path().join(path);
        fs::create_dir(at("map")).unwrap();
        fs::write(at("map/a.js"), "x").unwrap();
        symlink(at("map/a.js"), at("link.js")).unwrap();
        symlink(at("nothing"), at("dangling.js")).unwrap();
        symlink(at("map"), at("folder")).unwrap();
        symlink("/dev/zero", at("endless.js")).unwrap();
        assert!(Command::new("mkfifo").arg(at("pipe.js")).status().unwrap().success());
        let tree = Tree::read(directory.path()).unwrap();
        assert_eq!(tree.files.keys().collect::<Vec<_>>(), ["link.js", "map/a.js"]);
        assert!(Tree::read(&at("nothing")).is_err());
    }

    #[test]
    fn texts_are_compressed_and_pictures_are_not() {
        let text: &'static str = Box::leak("const a = 1;\n".repeat(50).into_boxed_str());
        let tree = tree(&[("a.js", text), ("b.png", text), ("c.css", "a{}")]);
        assert!(tree.file("a.js").unwrap().gzip.as_ref().unwrap().len() < 100);
        assert!(tree.file("b.png").unwrap().gzip.is_none() && tree.file("c.css").unwrap().gzip.is_none());
        assert!(tree.file("a.js").unwrap().media_type.starts_with("text/javascript"));
    }
}
