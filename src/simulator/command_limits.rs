//! The chat platform's limits on the commands of a bot.

use serde_json::Value;

/// Commands of one scope.
const MOST_COMMANDS: usize = 100;
/// Options of a command, and choices of an option.
const MOST_OPTIONS: usize = 25;
const LONGEST_NAME: usize = 32;
const LONGEST_DESCRIPTION: usize = 100;
/// Name and value of a choice.
const LONGEST_CHOICE: usize = 100;
/// Characters of all names, descriptions and values of a command.
const LONGEST_COMMAND: usize = 8_000;
/// Kinds of option.
const SUB_COMMAND: u64 = 1;
const SUB_COMMAND_GROUP: u64 = 2;
const KINDS: std::ops::RangeInclusive<u64> = SUB_COMMAND..=11;

/// A limit of the platform that a list of commands breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaFault {
    /// Names and array indexes joined by dots, such as `0.options.1.name`; empty for the whole list.
    pub path: String,
    /// The fault, in words.
    pub message: &'static str,
}

/// All faults of a list of chat-input commands.
pub fn faults(commands: &Value) -> Vec<SchemaFault> {
    let mut check = SchemaCheck::default();
    let Some(list) = commands.as_array() else {
        check.fault("", "must be an array");
        return check.0;
    };
    if list.len() > MOST_COMMANDS {
        check.fault("", "has more than 100 commands");
    }
    check.unique("", list);
    for (place, command) in list.iter().enumerate() {
        let path = place.to_string();
        check.fields(&path, command, &["name", "type", "description", "options", "nsfw", "default_member_permissions"]);
        check.named(&path, command);
        if !command["type"].is_null() && command["type"] != 1 {
            check.fault(&format!("{path}.type"), "must be 1, chat input");
        }
        check.options(&path, &command["options"], SUB_COMMAND_GROUP);
        if characters(command) > LONGEST_COMMAND {
            check.fault(&path, "has more than 8000 characters of names, descriptions and values");
        }
    }
    check.0
}

#[derive(Default)]
struct SchemaCheck(Vec<SchemaFault>);

impl SchemaCheck {
    fn fault(&mut self, path: &str, message: &'static str) {
        self.0.push(SchemaFault { path: path.to_owned(), message });
    }

    fn fields(&mut self, path: &str, object: &Value, known: &[&str]) {
        let Some(fields) = object.as_object() else { return self.fault(path, "must be an object") };
        for name in fields.keys().filter(|name| !known.contains(&name.as_str())) {
            self.fault(&format!("{path}.{name}"), "is not known");
        }
    }

    fn named(&mut self, path: &str, object: &Value) {
        if !object["name"].as_str().is_some_and(is_name) {
            self.fault(&format!("{path}.name"), "must be 1 to 32 lower-case letters, digits, - _ or '");
        }
        if !length(&object["description"]).is_some_and(|length| (1..=LONGEST_DESCRIPTION).contains(&length)) {
            self.fault(&format!("{path}.description"), "must have 1 to 100 characters");
        }
    }

    /// No two of them have the same name.
    fn unique(&mut self, path: &str, list: &[Value]) {
        let names: Vec<&Value> = list.iter().map(|one| &one["name"]).collect();
        for (place, name) in names.iter().enumerate() {
            if names[..place].contains(name) {
                self.fault(&format!("{path}{place}.name"), "comes twice");
            }
        }
    }

    /// The options below a command or a sub-command; `deepest` is the deepest nesting that may begin here.
    fn options(&mut self, path: &str, options: &Value, deepest: u64) {
        if options.is_null() {
            return;
        }
        let path = format!("{path}.options");
        let Some(list) = options.as_array() else { return self.fault(&path, "must be an array") };
        if list.len() > MOST_OPTIONS {
            self.fault(&path, "has more than 25 options");
        }
        self.unique(&format!("{path}."), list);
        let nests = |option: &&Value| matches!(option["type"].as_u64(), Some(SUB_COMMAND | SUB_COMMAND_GROUP));
        let nesting = list.iter().filter(nests).count();
        if nesting > 0 && nesting < list.len() {
            self.fault(&path, "mixes sub-commands with other options");
        }
        let mut optional = false;
        for (place, option) in list.iter().enumerate() {
            let path = format!("{path}.{place}");
            self.named(&path, option);
            let Some(kind) = option["type"].as_u64().filter(|kind| KINDS.contains(kind)) else {
                self.fault(&format!("{path}.type"), "must be a kind of option");
                continue;
            };
            if matches!(kind, SUB_COMMAND | SUB_COMMAND_GROUP) {
                self.fields(&path, option, &["name", "type", "description", "options"]);
                match kind <= deepest {
                    true => self.options(&path, &option["options"], kind - 1),
                    false => self.fault(&format!("{path}.type"), "nests too deep"),
                }
                continue;
            }
            self.value(&path, option);
            let required = option["required"] == true;
            if required && optional {
                self.fault(&format!("{path}.required"), "must come before options that may be left out");
            }
            optional |= !required;
        }
    }

    /// An option that holds a value.
    fn value(&mut self, path: &str, option: &Value) {
        let known = ["name", "type", "description", "required", "choices", "autocomplete"];
        let bounds = ["min_value", "max_value", "min_length", "max_length", "channel_types"];
        self.fields(path, option, &[&known[..], &bounds[..]].concat());
        for (field, least) in [("min_length", 0), ("max_length", 1)] {
            let length = &option[field];
            if !length.is_null() && !length.as_u64().is_some_and(|length| (least..=6_000).contains(&length)) {
                self.fault(&format!("{path}.{field}"), "must be at most 6000");
            }
        }
        for (least, most) in [("min_length", "max_length"), ("min_value", "max_value")] {
            if option[least].as_f64().zip(option[most].as_f64()).is_some_and(|(least, most)| least > most) {
                self.fault(&format!("{path}.{least}"), "is more than the most");
            }
        }
        let choices = option["choices"].as_array().map(Vec::as_slice).unwrap_or_default();
        if choices.len() > MOST_OPTIONS {
            self.fault(&format!("{path}.choices"), "has more than 25 choices");
        }
        if !choices.is_empty() && option["autocomplete"] == true {
            self.fault(&format!("{path}.autocomplete"), "cannot be combined with choices");
        }
        for (place, choice) in choices.iter().enumerate() {
            let is_good = |length: Option<usize>| length.is_some_and(|length| (1..=LONGEST_CHOICE).contains(&length));
            if !is_good(length(&choice["name"])) {
                self.fault(&format!("{path}.choices.{place}.name"), "must have 1 to 100 characters");
            }
            if !choice["value"].is_number() && !is_good(length(&choice["value"])) {
                self.fault(&format!("{path}.choices.{place}.value"), "must be a number or 1 to 100 characters");
            }
        }
    }
}

fn is_name(name: &str) -> bool {
    let is_good = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '\'');
    (1..=LONGEST_NAME).contains(&name.chars().count()) && name.chars().all(is_good) && name.to_lowercase() == name
}

fn length(text: &Value) -> Option<usize> {
    text.as_str().map(|text| text.chars().count())
}

/// Characters of this object and all below it that count toward [`LONGEST_COMMAND`].
fn characters(object: &Value) -> usize {
    let own = ["name", "description", "value"].iter().filter_map(|field| length(&object[*field])).sum::<usize>();
    let below = ["options", "choices"].iter().filter_map(|field| object[*field].as_array()).flatten();
    own + below.map(characters).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::domain::bot::chat_commands::SCHEMA;

    fn paths(commands: &Value) -> Vec<String> {
        faults(commands).into_iter().map(|fault| fault.path).collect()
    }

    #[test]
    fn our_commands_are_within_the_limits_of_the_platform() {
        assert_eq!(faults(&serde_json::from_str(SCHEMA).unwrap()), []);
    }

    #[test]
    fn what_is_beyond_a_limit_is_found_where_it_is() {
        let option = |name: &str| json!({ "type": 3, "name": name, "description": "d" });
        let command = |options: Vec<Value>| json!([{ "name": "a", "description": "d", "options": options }]);
        let choices = |count: usize| vec![json!({ "name": "n", "value": "v" }); count];
        let changed = |field: &str, value: Value| {
            let mut option = option("a");
            option[field] = value;
            command(vec![option])
        };
        for (commands, expected) in [
            (json!({}), vec![""]),
            (json!([3]), vec!["0", "0.name", "0.description"]),
            (json!([{ "name": "Craft", "description": "d" }]), vec!["0.name"]),
            (json!([{ "name": "a b", "description": "d" }]), vec!["0.name"]),
            (json!([{ "name": "a".repeat(33), "description": "d" }]), vec!["0.name"]),
            (json!([{ "name": "a", "description": "d".repeat(101) }]), vec!["0.description"]),
            (json!([{ "name": "a", "description": "" }]), vec!["0.description"]),
            (json!([{ "name": "a", "description": "d", "kind": 1 }]), vec!["0.kind"]),
            (json!([{ "name": "a", "description": "d", "type": 2 }]), vec!["0.type"]),
            (json!([{ "name": "a", "description": "d" }, { "name": "a", "description": "e" }]), vec!["1.name"]),
            (command((0..26).map(|n| option(&format!("o{n}"))).collect()), vec!["0.options"]),
            (command(vec![option("a"), option("a")]), vec!["0.options.1.name"]),
            (changed("type", json!(12)), vec!["0.options.0.type"]),
            (changed("max_length", json!(0)), vec!["0.options.0.max_length"]),
            (changed("min_length", json!(6_001)), vec!["0.options.0.min_length"]),
            (changed("choices", json!(choices(26))), vec!["0.options.0.choices"]),
            (
                changed("choices", json!([{ "name": "", "value": true }])),
                vec!["0.options.0.choices.0.name", "0.options.0.choices.0.value"],
            ),
            (json!(vec![json!({ "name": "a", "description": "d" }); 101]), {
                let mut twice = vec![""];
                twice.resize(101, "twice");
                twice
            }),
        ] {
            let found = paths(&commands);
            match expected.last() {
                Some(&"twice") => assert_eq!((found.len(), found[0].as_str()), (expected.len(), "")),
                _ => assert_eq!(found, expected, "{commands}"),
            }
        }
        let required = json!({ "type": 3, "name": "b", "description": "d", "required": true });
        assert_eq!(paths(&command(vec![option("a"), required])), ["0.options.1.required"]);
        let both = json!({
            "type": 3, "name": "b", "description": "d", "min_value": 2, "max_value": 1, "autocomplete": true,
            "choices": choices(1),
        });
        assert_eq!(paths(&command(vec![both])), ["0.options.0.min_value", "0.options.0.autocomplete"]);
    }

    #[test]
    fn sub_commands_nest_twice_and_stand_alone() {
        let nested = |kind: u64, options: Vec<Value>| json!({ "type": kind, "name": "s", "description": "d", "options": options });
        let plain = json!({ "type": 3, "name": "o", "description": "d" });
        let command = |options: Vec<Value>| json!([{ "name": "a", "description": "d", "options": options }]);
        assert_eq!(faults(&command(vec![nested(2, vec![nested(1, vec![plain.clone()])])])), []);
        assert_eq!(paths(&command(vec![nested(1, vec![nested(1, vec![])])])), ["0.options.0.options.0.type"]);
        assert_eq!(paths(&command(vec![nested(2, vec![nested(2, vec![])])])), ["0.options.0.options.0.type"]);
        assert_eq!(paths(&command(vec![nested(1, vec![]), plain])), ["0.options"]);
    }

    #[test]
    fn all_texts_of_a_command_count_toward_its_size() {
        let choice = json!({ "name": "n".repeat(100), "value": "v".repeat(100) });
        let option = |place: usize, choices: usize| json!({ "type": 3, "name": format!("o{place}"), "description": "d", "choices": vec![choice.clone(); choices] });
        let command =
            |last: usize| json!([{ "name": "a", "description": "d", "options": [option(0, 25), option(1, last)] }]);
        // 2 of the command, 3 of each option, 200 of each choice.
        assert_eq!(faults(&command(14)), []);
        assert_eq!(paths(&command(15)), ["0"]);
    }
}
