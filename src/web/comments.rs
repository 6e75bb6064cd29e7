//! JavaScript without its comments: they are a fifth of what a first visit would load.

/// The text with an empty line for each line of a comment, so that an error names the line of the source. Comments are
/// those that begin a line, with `//` or `/**`; `/*!`, as of a licence, and what is behind code stays. Within a template,
/// no line begins so: `tests/web/comments.test.mjs` holds that.
pub fn without_comments(text: &str) -> String {
    let mut is_open = false;
    let lines = text.split('\n').map(|line| {
        let start = line.trim_start();
        if !is_open && start.starts_with("//") {
            return "";
        }
        is_open |= start.starts_with("/**");
        match line.split_once("*/") {
            _ if !is_open => line,
            Some((_, code)) => {
                is_open = false;
                code.trim_start()
            }
            None => "",
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_comments_are_empty_and_all_others_stay() {
        for (text, served) in [
            ("// a\nx(); // b\n  // c\n", "\nx(); // b\n\n"),
            ("/** a */\nf();\n", "\nf();\n"),
            ("/**\n * a\n // b\n */\nf(\"//\");", "\n\n\n\nf(\"//\");"),
            ("  /** @type {A} */ b: 1,\n/** @type {B} */ (c).d();", "b: 1,\n(c).d();"),
            ("/*! by A */\nx = /** @type {A} */ (y);\n", "/*! by A */\nx = /** @type {A} */ (y);\n"),
            ("a = b /* c */ + d;\nconst url = `http://${a}`;", "a = b /* c */ + d;\nconst url = `http://${a}`;"),
        ] {
            assert_eq!(without_comments(text), served, "{text}");
        }
    }
}
