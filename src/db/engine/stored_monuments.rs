//! Monuments as a column keeps them: JSON, `[token, x, y]` of each.

use serde_json::{Value, json};

use crate::domain::monument::Monument;

/// The text of the column.
pub fn write(monuments: &[Monument]) -> String {
    monuments.iter().map(|monument| json!([monument.token(), monument.x, monument.y])).collect::<Value>().to_string()
}

/// Reads what [`write()`] wrote; `None` for what cannot be read, which is asked for again.
pub fn read(stored: &str) -> Option<Vec<Monument>> {
    let places: Vec<(String, f64, f64)> = serde_json::from_str(stored).ok()?;
    Some(places.iter().filter_map(|(token, x, y)| Monument::new(token, *x, *y)).collect())
}
