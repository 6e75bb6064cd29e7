//! Imports of JavaScript modules, as far as a browser fetches them before the first line runs.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Modules that `entry` needs, each after the one that names it first; itself not included. `modules` are texts by
/// path. Imports of files that are not there are left out.
pub fn needed_by<'a>(modules: &BTreeMap<&'a str, &'a str>, entry: &str) -> Vec<String> {
    let mut seen = BTreeSet::from([entry.to_owned()]);
    let mut next = VecDeque::from([entry.to_owned()]);
    let mut needed = Vec::new();
    while let Some(path) = next.pop_front() {
        let Some(text) = modules.get(path.as_str()) else { continue };
        for import in imports(text).filter_map(|specifier| resolve(&path, specifier)) {
            if modules.contains_key(import.as_str()) && seen.insert(import.clone()) {
                needed.push(import.clone());
                next.push_back(import);
            }
        }
    }
    needed
}

/// Specifiers of the static imports of a module: `import … from "./a.js";` and `export … from "./a.js";`, each
/// statement at the beginning of a line.
fn imports(text: &str) -> impl Iterator<Item = &str> {
    let statements = text.split('\n').scan(false, |open, line| {
        let begins = line.starts_with("import ") || line.starts_with("export {") || line.starts_with("export *");
        *open = (begins || *open) && !line.trim_end().ends_with(';');
        Some((begins || line.starts_with("} from ")).then_some(line))
    });
    statements.flatten().filter_map(|line| line.trim_end().strip_suffix("\";")?.rsplit_once('"').map(|(_, name)| name))
}

/// The path that a relative specifier in the module at `from` names.
fn resolve(from: &str, specifier: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in specifier.split('/') {
        match part {
            "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    specifier.starts_with('.').then(|| parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_names_what_its_modules_import_and_nothing_that_comes_later() {
        let modules = BTreeMap::from([
            (
                "a/main.js",
                "import { x } from \"./x.js\";\nimport {\n  y,\n  z,\n} from \"../y.js\";\nawait import(\"./late.js\");\n",
            ),
            ("a/x.js", "import \"../y.js\";\nimport { gone } from \"./gone.js\";\n"),
            ("y.js", "export { a } from \"./a/main.js\";\nconst text = \"./a/late.js\";\n"),
            ("a/late.js", ""),
        ]);
        assert_eq!(needed_by(&modules, "a/main.js"), ["a/x.js", "y.js"]);
        assert_eq!(needed_by(&modules, "y.js"), ["a/main.js", "a/x.js"]);
    }

    #[test]
    fn a_specifier_stays_within_the_tree() {
        assert_eq!(resolve("a/b.js", "../c.js").as_deref(), Some("c.js"));
        assert_eq!(resolve("a/b.js", "../../c.js"), None);
        assert_eq!(resolve("a/b.js", "https://elsewhere.test/c.js"), None);
    }
}
