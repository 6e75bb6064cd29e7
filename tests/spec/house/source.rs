//! Rust source, read as far as the rules of the house need it: tokens, the paths that name parts of this crate, and
//! type definitions. Macros are not expanded.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// The names along a path within the crate, without `crate`; the root is empty.
pub type ModulePath = Vec<String>;

/// One file of the library.
pub struct SourceFile {
    /// Relative to `src`.
    pub path: PathBuf,
    pub text: String,
    /// Declared with `#[cfg(test)] mod x;`.
    pub only_tests: bool,
}

/// The library's files by the module that each holds.
pub struct Library(pub BTreeMap<ModulePath, SourceFile>);

impl Library {
    /// Every file below this `src` but the binary and the build script, which are crates of their own.
    pub fn read(src: &Path) -> Self {
        let mut files = BTreeMap::new();
        for path in rust_files(src) {
            let path = path.strip_prefix(src).unwrap().to_owned();
            if path != Path::new("main.rs") && !path.starts_with("build") {
                let text = fs::read_to_string(src.join(&path)).unwrap();
                files.insert(module_of(&path), SourceFile { path, text, only_tests: false });
            }
        }
        Self::new(files)
    }

    pub fn new(mut files: BTreeMap<ModulePath, SourceFile>) -> Self {
        let mut test_files = Vec::new();
        for (module, file) in &files {
            for name in split_tests(&tokens(&file.text)).test_files {
                test_files.push([module.as_slice(), &[name.to_owned()]].concat());
            }
        }
        for module in test_files {
            files.get_mut(&module).unwrap().only_tests = true;
        }
        Self(files)
    }

    /// Every path in this file that names a part of the crate, from the root on.
    pub fn imports(&self, module: &ModulePath) -> Vec<ModulePath> {
        self.paths(module, &tokens(&self.0[module].text))
    }

    /// Imports, without those of tests only.
    pub fn imports_outside_tests(&self, module: &ModulePath) -> Vec<ModulePath> {
        self.paths(module, &split_tests(&tokens(&self.0[module].text)).code)
    }

    /// The types that this file defines, without those that only tests have and those associated with a trait.
    pub fn types(&self, module: &ModulePath) -> Vec<String> {
        types(&split_tests(&tokens(&self.0[module].text)).code)
    }

    /// The module of the file that holds what this path names: the longest part of the path that is a file.
    pub fn file_of(&self, path: &[String]) -> ModulePath {
        let longest = (0..=path.len()).rev().find(|&length| self.0.contains_key(&path[..length]));
        path[..longest.unwrap_or(0)].to_vec()
    }

    fn paths(&self, module: &ModulePath, tokens: &[&str]) -> Vec<ModulePath> {
        let mentions = mentions(module, tokens);
        // Names that `use` binds, so that `hub::Health` after `use crate::relay::hub` is read in full.
        let mut bound: BTreeMap<&str, ModulePath> = BTreeMap::new();
        let mut found = Vec::new();
        let (uses, others): (Vec<_>, Vec<_>) = mentions.iter().partition(|mention| mention.binds.is_some());
        for mention in uses.into_iter().chain(others) {
            if let Some(path) = self.resolve(mention, &bound) {
                if let Some(name) = mention.binds {
                    bound.insert(name, path.clone());
                }
                found.push(path);
            }
        }
        found
    }

    /// The path from the root on; `None` for a path into another crate.
    fn resolve(&self, mention: &Mention, bound: &BTreeMap<&str, ModulePath>) -> Option<ModulePath> {
        let (first, rest) = mention.path.split_first()?;
        let mut rest = rest;
        let mut path = match *first {
            "crate" => Vec::new(),
            "self" => mention.within.clone(),
            "super" => {
                let mut parent = mention.within.clone();
                parent.pop();
                while let Some((&"super", others)) = rest.split_first() {
                    parent.pop();
                    rest = others;
                }
                parent
            }
            name => {
                let child = [mention.within.as_slice(), &[name.to_owned()]].concat();
                let is_module = self.0.keys().any(|module| module.starts_with(&child));
                bound.get(name).cloned().or(is_module.then_some(child))?
            }
        };
        path.extend(rest.iter().map(|&name| name.to_owned()));
        Some(path)
    }
}

pub fn rust_files(directory: &Path) -> Vec<PathBuf> {
    files(directory, &["rs"])
}

/// Files below the directory with one of these extensions, of which `""` is none, without those of others.
pub fn files(directory: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let own = entries.filter(|path| !path.ends_with("node_modules"));
    let files = own.flat_map(|path| if path.is_dir() { files(&path, extensions) } else { vec![path] });
    let is_wanted = |path: &PathBuf| extensions.iter().any(|wanted| path.extension().unwrap_or_default() == *wanted);
    files.filter(is_wanted).collect()
}

/// `x.rs` and `x/mod.rs` hold the module `x`, `lib.rs` the root.
fn module_of(path: &Path) -> ModulePath {
    let names = path.with_extension("");
    let mut module: ModulePath = names.iter().map(|name| name.to_str().unwrap().to_owned()).collect();
    if module.last().is_some_and(|name| name == "mod") || module == ["lib"] {
        module.pop();
    }
    module
}

/// A path as it is written.
struct Mention<'a> {
    path: Vec<&'a str>,
    /// The module in which it is written.
    within: ModulePath,
    /// The name that it gets, when written after `use`.
    binds: Option<&'a str>,
}

fn mentions<'a>(module: &ModulePath, tokens: &[&'a str]) -> Vec<Mention<'a>> {
    let mut mentions = Vec::new();
    let mut within = module.clone();
    // True for each open brace that opened a module.
    let mut braces = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let before = if at == 0 { "" } else { tokens[at - 1] };
        let after = tokens.get(at + 1).copied().unwrap_or_default();
        match tokens[at] {
            "{" => {
                let opens_module = at > 1 && tokens[at - 2] == "mod";
                if opens_module {
                    within.push(before.to_owned());
                }
                braces.push(opens_module);
            }
            "}" => {
                let closes_module = braces.pop() == Some(true);
                within.truncate(within.len() - usize::from(closes_module));
            }
            // Not the `use<…>` of a type.
            "use" if after != "<" => {
                at += 1;
                for (path, name) in use_tree(tokens, &mut at, &[]) {
                    mentions.push(Mention { path, within: within.clone(), binds: Some(name) });
                }
                continue;
            }
            // A visibility, `pub(in …)`, is no import.
            "in" if at > 1 && tokens[at - 2..at] == ["pub", "("] => {
                while tokens[at] != ")" {
                    at += 1;
                }
            }
            name if is_name(name) && after == "::" && before != "::" && before != "." => {
                let mut path = vec![name];
                while at + 2 < tokens.len() && tokens[at + 1] == "::" && is_name(tokens[at + 2]) {
                    path.push(tokens[at + 2]);
                    at += 2;
                }
                mentions.push(Mention { path, within: within.clone(), binds: None });
            }
            _ => {}
        }
        at += 1;
    }
    mentions
}

/// Every path of a `use` and the name it binds; `at` moves behind the tree.
fn use_tree<'a>(tokens: &[&'a str], at: &mut usize, prefix: &[&'a str]) -> Vec<(Vec<&'a str>, &'a str)> {
    let mut path = prefix.to_vec();
    loop {
        let token = tokens[*at];
        *at += 1;
        match token {
            "::" => {}
            "{" => {
                let mut paths = Vec::new();
                while tokens[*at] != "}" {
                    if tokens[*at] == "," {
                        *at += 1;
                    } else {
                        paths.extend(use_tree(tokens, at, &path));
                    }
                }
                *at += 1;
                return paths;
            }
            name => {
                if name != "self" || path.is_empty() {
                    path.push(name);
                }
                if tokens[*at] == "::" {
                    continue;
                }
                let mut binds = path[path.len() - 1];
                if tokens[*at] == "as" {
                    binds = tokens[*at + 1];
                    *at += 2;
                }
                return vec![(path, binds)];
            }
        }
    }
}

/// Type definitions: an alias inside anything but a module belongs to a trait or a function.
fn types(tokens: &[&str]) -> Vec<String> {
    let mut types = Vec::new();
    let mut braces = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        match *token {
            "{" => braces.push(at > 1 && tokens[at - 2] == "mod"),
            "}" => {
                braces.pop();
            }
            "type" if braces.contains(&false) => {}
            "struct" | "enum" | "trait" | "type" => {
                types.extend(tokens.get(at + 1).filter(|name| is_name(name)).map(|&name| name.to_owned()));
            }
            _ => {}
        }
    }
    types
}

struct Split<'a> {
    /// Everything but the items under `#[cfg(test)]`.
    code: Vec<&'a str>,
    /// The files among those items: `mod x;`.
    test_files: BTreeSet<&'a str>,
}

fn split_tests<'a>(tokens: &[&'a str]) -> Split<'a> {
    const TEST: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let (mut code, mut test_files) = (Vec::new(), BTreeSet::new());
    let mut rest = tokens;
    while let Some((&token, behind)) = rest.split_first() {
        if let Some(item) = rest.strip_prefix(&TEST) {
            let (item, behind) = item.split_at(item_length(item));
            if let [.., "mod", name, ";"] = item {
                test_files.insert(*name);
            }
            rest = behind;
        } else {
            code.push(token);
            rest = behind;
        }
    }
    Split { code, test_files }
}

/// An item ends with its `;` or with the brace that closes its body.
fn item_length(tokens: &[&str]) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate() {
        match *token {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" => depth -= 1,
            "}" if depth == 1 => return at + 1,
            "}" => depth -= 1,
            ";" if depth == 0 => return at + 1,
            _ => {}
        }
    }
    tokens.len()
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Names, `::` and single punctuation marks, without comments, texts and characters.
pub fn tokens(text: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    scan(text, |token| tokens.push(token), |_| ());
    tokens
}

/// Texts, byte texts and characters, with their quotes; lifetimes are their mark alone.
pub fn literals(text: &str) -> Vec<&str> {
    let mut literals = Vec::new();
    scan(text, |_| (), |literal| literals.push(literal));
    literals
}

/// Reads source without its comments.
fn scan<'a>(text: &'a str, mut on_token: impl FnMut(&'a str), mut on_literal: impl FnMut(&'a str)) {
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = if let Some(length) = comment(rest) {
            length
        } else if let Some(length) = literal(rest) {
            on_literal(&rest[..length]);
            length
        } else if first.is_whitespace() {
            first.len_utf8()
        } else {
            let length = match name_length(rest) {
                0 if rest.starts_with("::") => 2,
                0 => first.len_utf8(),
                length => length,
            };
            on_token(&rest[..length]);
            length
        };
        rest = &rest[length..];
    }
}

fn name_length(text: &str) -> usize {
    let name = |text: &str| text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    match text.strip_prefix("r#") {
        Some(raw) if name(raw) > 0 => 2 + name(raw),
        _ => name(text),
    }
}

fn comment(text: &str) -> Option<usize> {
    if text.starts_with("//") {
        return Some(text.find('\n').unwrap_or(text.len()));
    }
    let mut depth = 0;
    let mut at = 0;
    loop {
        let rest = &text.as_bytes()[at..];
        if rest.starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if depth == 0 {
            return None;
        } else if rest.starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return Some(at);
            }
        } else if rest.is_empty() {
            return Some(at);
        } else {
            at += 1;
        }
    }
}

/// The length of a text, byte text or character.
fn literal(text: &str) -> Option<usize> {
    let behind = |prefix: usize, end: &str| text[prefix..].find(end).map_or(text.len(), |at| prefix + at + end.len());
    if let Some(rest) = text.strip_prefix('\'') {
        let mut characters = rest.chars();
        return match (characters.next()?, characters.next()) {
            // From behind the escaped character, which may be a quote.
            ('\\', Some(escaped)) => Some(behind(2 + escaped.len_utf8(), "'")),
            (character, Some('\'')) => Some(2 + character.len_utf8()),
            _ => Some(1), // a lifetime
        };
    }
    let marks = text.find(|c| !matches!(c, 'b' | 'c' | 'r'))?;
    let hashes = text[marks..].bytes().take_while(|&byte| byte == b'#').count();
    let begin = marks + hashes + 1;
    if marks > 2 || !text[marks + hashes..].starts_with('"') {
        return None;
    }
    if text[..marks].ends_with('r') {
        return Some(behind(begin, &format!("\"{}", "#".repeat(hashes))));
    }
    if hashes > 0 {
        return None;
    }
    let mut escaped = false;
    let end = text[begin..].find(|character| {
        let ends = character == '"' && !escaped;
        escaped = character == '\\' && !escaped;
        ends
    });
    Some(end.map_or(text.len(), |at| begin + at + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn library(files: &[(&str, &str)]) -> Library {
        let file = |path: &str, text: &str| SourceFile { path: path.into(), text: text.into(), only_tests: false };
        Library::new(files.iter().map(|(path, text)| (module_of(Path::new(path)), file(path, text))).collect())
    }

    fn imports(library: &Library, module: &str) -> Vec<String> {
        let paths = library.imports_outside_tests(&module.split("::").map(str::to_owned).collect());
        paths.iter().map(|path| path.join("::")).collect()
    }

    #[test]
    fn imports_are_read_from_every_form() {
        let source = "
            //! use crate::comment;
            /* use crate::block; /* nested */ crate::comment::f() */
            use crate::{
                a::{self, b::{C, D as Other}},
                d::*,
            };
            use super::sibling;
            use self::child::Child;
            use std::fmt;
            pub fn f<'a>(text: &'a str) -> impl Fn() + use<'a> {
                let not = (\"crate::text\", r#\"a \" crate::raw\"#, b'\\'', '\"', '\\u{22}', \"\\\" crate::quoted\");
                crate::i::j(); super::super::up(); child::go(); a::go::<a::Type>(); Other::new(); fmt::format();
                value.method::<crate::k::L>();
            }
            mod inner { use super::child::Within; }
            #[cfg(test)]
            mod tests { use crate::only_tests; fn f() { { crate::only_tests::f() } } }
            #[cfg(test)]
            use crate::{only_tests};
            fn last() { crate::last() }
        ";
        let library = library(&[("x/y/mod.rs", source), ("x/y/child.rs", "")]);
        let expected = [
            "a",
            "a::b::C",
            "a::b::D",
            "d::*",
            "x::sibling",
            "x::y::child::Child",
            "x::y::child::Within",
            "i::j",
            "up",
            "x::y::child::go",
            "a::go",
            "a::Type",
            "a::b::D::new",
            "k::L",
            "last",
        ];
        assert_eq!(imports(&library, "x::y"), expected);
        assert_eq!(library.imports(&vec!["x".into(), "y".into()]).len(), expected.len() + 3);
    }

    #[test]
    fn a_path_belongs_to_the_longest_file_in_it() {
        let library = library(&[("lib.rs", ""), ("a/mod.rs", ""), ("a/b.rs", ""), ("c.rs", "")]);
        let file_of = |path: &str| {
            let path: ModulePath = path.split("::").map(str::to_owned).collect();
            library.file_of(&path).join("::")
        };
        assert_eq!(file_of("a::b::C"), "a::b");
        assert_eq!(file_of("a::f"), "a");
        assert_eq!(file_of("c"), "c");
        assert_eq!(file_of("macro_of_the_root"), "");
    }

    #[test]
    fn types_are_read_without_associated_ones_and_those_of_tests() {
        let source = "
            pub struct A<T>(T); enum B {} trait C { type D; } type E = u8; mod m { pub type F = u8; }
            impl Iterator for A<u8> { type Item = u8; }
            macro_rules! id { ($name:ident) => { struct $name; } }
            fn f(r#type: u8) { struct G; }
            #[cfg(test)] pub(crate) mod testing;
            #[cfg(test)] struct H { a: [u8; 4] }
        ";
        let library = library(&[("x/mod.rs", source), ("x/testing.rs", "pub struct I;")]);
        assert_eq!(library.types(&vec!["x".into()]), ["A", "B", "C", "E", "F", "G"]);
        assert!(library.0[&vec!["x".to_owned(), "testing".into()]].only_tests);
    }
}
