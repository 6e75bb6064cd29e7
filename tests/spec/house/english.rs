//! Plain English: comments say what things are by nouns and verbs, without the riddles of a dialect.

use std::{fs, path::Path};

use super::source::{files, literals, rust_files, tokens};

/// Words of the dialect: in comments of sources and scripts, in the documentation, and in what is deployed.
const WORDS: [&str; 12] = [
    "told",
    "tells",
    "tell",
    "anew",
    "whom",
    "whoever",
    "nobody",
    "somebody",
    "so many",
    "stands",
    "any more",
    "of before",
];
/// Openings that hide what a sentence is about.
const OPENINGS: [&str; 14] =
    ["What", "Whether", "Who", "Whoever", "Whom", "Whose", "How", "Why", "Of", "It", "Those", "So", "That", "The same"];
/// Marks of headings and lists.
const MARKS: [char; 4] = ['#', '-', '*', ' '];

/// The text of a comment's line.
fn comment(line: &str) -> Option<&str> {
    let line = line.trim_start().strip_prefix("//")?;
    let text = line.strip_prefix(['/', '!']).unwrap_or(line);
    Some(text.strip_prefix(' ').unwrap_or(text))
}

/// A script with its comments as Rust has them: `/** A. */`, and the lines of a block that begin with `*`.
fn as_rust(script: &str) -> String {
    let line = |line: &str| {
        let text = line.trim_start();
        let text = text.strip_prefix("/**").or_else(|| text.strip_prefix("* "));
        text.map_or_else(|| line.to_owned(), |text| format!("//{}", text.trim_end_matches("*/")))
    };
    script.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// Times that the text has these words, alone.
fn count(text: &str, words: &str) -> usize {
    let text = text.to_lowercase();
    let is_alone = |at: usize| {
        let (before, after) = (text[..at].chars().next_back(), text[at + words.len()..].chars().next());
        ![before, after].into_iter().flatten().any(|beside| beside.is_alphanumeric() || beside == '_')
    };
    text.match_indices(words).filter(|(at, _)| is_alone(*at)).count()
}

fn opens(text: &str) -> bool {
    let text = text.trim_start_matches(MARKS);
    OPENINGS.iter().any(|opening| {
        text.strip_prefix(opening).is_some_and(|rest| !rest.starts_with(|next: char| next.is_alphanumeric()))
    })
}

/// The words of a name: `NobodyWatches`, `nobody_watches`.
fn words_of(name: &str) -> String {
    let mut words = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && words.ends_with(char::is_lowercase) {
            words.push(' ');
        }
        words.push(if letter == '_' { ' ' } else { letter });
    }
    words
}

/// Words of the dialect in the names of a source: of functions, types, variables.
fn named(source: &str) -> usize {
    tokens(source).into_iter().map(words_of).flat_map(|name| WORDS.map(|word| count(&name, word))).sum()
}

/// Words of the dialect in the texts of a source, outside its comments.
fn said(source: &str) -> usize {
    let texts = literals(source).into_iter().map(|text| text.replace("\\n", " "));
    texts.flat_map(|text| WORDS.map(|word| count(&text, word))).sum()
}

/// Counts of one text: words of the dialect, hidden openings, lines of comments.
fn counted(source: &str) -> (usize, usize, usize) {
    let (mut words, mut openings, mut lines) = (0, 0, 0);
    let mut begins = true;
    for line in source.lines() {
        let Some(text) = comment(line) else {
            begins = true;
            continue;
        };
        lines += 1;
        words += WORDS.iter().map(|word| count(text, word)).sum::<usize>();
        openings += usize::from(begins && opens(text));
        begins = text.is_empty() || text.starts_with('#') || text.trim_end().ends_with(['.', ':']);
    }
    (words, openings, lines)
}

#[test]
fn comments_and_documentation_are_plain_english() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut total = (0_usize, 0_usize, 0_usize);
    let (mut texts, mut names) = (0, 0);
    let mut add = |(words, openings, lines): (usize, usize, usize)| {
        total = (total.0 + words, total.1 + openings, total.2 + lines)
    };
    for directory in ["src/web/files", "tests/web", "tests/peers"] {
        for path in files(&root.join(directory), &["js", "mjs"]) {
            add(counted(&as_rust(&fs::read_to_string(path).unwrap())));
        }
    }
    for directory in ["src", "tests", "benches"] {
        for path in rust_files(&root.join(directory)) {
            let source = fs::read_to_string(path).unwrap();
            add(counted(&source));
            names += named(&source);
            // Texts of tests have what users might send.
            texts += if directory == "src" { said(&source) } else { 0 };
        }
    }
    assert_eq!((texts, names), (0, 0), "of {WORDS:?} in texts and names");
    let pages =
        fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    let deployed = files(&root.join("deploy"), &["", "conf", "env", "json", "service", "sh", "timer", "yml"]);
    for page in pages.chain([root.join("README.md"), root.join("CHANGELOG.md")]).chain(deployed) {
        let text = fs::read_to_string(&page).unwrap();
        total.0 += WORDS.iter().map(|word| count(&text, word)).sum::<usize>();
    }
    let (words, openings, lines) = total;
    assert_eq!(words, 0, "words of the dialect {WORDS:?}");
    assert_eq!(openings, 0, "of {lines} lines open with {OPENINGS:?}");
}

#[test]
fn words_and_openings_are_found() {
    let source = "//! Whoever asks is told.\n\n/// Retold: foretells nothing.\n/// It has\n/// it. It\nfn what() {}\n// What for\n";
    assert_eq!(counted(source), (2, 3, 5));
    let source =
        "/// \"told\"\nfn it_is_told() {\n    let told = [('\"', \"nobody\"), ('\\\"', \"retold \\\"anew\\\"\")];\n}\n";
    assert_eq!((said(source), named(source)), (2, 2));
    let source =
        "//! # What it is\n//! Whose\n//! - Of it\nconst A: LinkReason = LinkReason::NobodyWatches(\"\\nNobody\");\n";
    assert_eq!((counted(source), said(source), named(source)), ((0, 2, 3), 1, 1));
    let script = "/** Whoever. @param {string} a */\nlet x; // What\n/**\n * Of before.\n * It is.\n */\n";
    assert_eq!(counted(&as_rust(script)), (2, 3, 4));
}
