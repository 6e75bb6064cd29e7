//! Names of operations for generated clients, each once: `GET /paired-servers/{id}/chat` is `getPairedServersByIdChat`.

/// The name of this operation.
pub fn operation_name(method: &str, path: &str) -> String {
    let mut name = method.to_owned();
    for part in path.split('/').filter(|part| !part.is_empty()) {
        let words = match part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) {
            Some(parameter) => format!("by-{parameter}"),
            None => part.to_owned(),
        };
        for word in words.split(|character: char| !character.is_ascii_alphanumeric()) {
            let mut letters = word.chars();
            name.extend(letters.next().map(|first| first.to_ascii_uppercase()));
            name.push_str(letters.as_str());
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_is_called_by_its_method_and_path() {
        for (method, path, name) in [
            ("get", "/", "get"),
            ("get", "/relay.schema.json", "getRelaySchemaJson"),
            ("post", "/paired-servers/{id}/devices/{deviceId}/toggle", "postPairedServersByIdDevicesByDeviceIdToggle"),
        ] {
            assert_eq!(operation_name(method, path), name);
        }
    }
}
