//! What a node wrote about itself: JSON lines on stderr.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::Value;

/// One line of a node's log.
#[derive(Debug, Clone)]
pub struct LogLine {
    /// The line, with the event's own fields at the top.
    fields: Value,
}

impl LogLine {
    /// The event's text.
    #[must_use]
    pub fn message(&self) -> &str {
        self.fields
            .get("message")
            .and_then(Value::as_str)
            .unwrap_or("")
    }

    /// A number among the event's fields.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u64> {
        self.fields.get(name)?.as_u64()
    }
}

/// The log so far. Lines that are not JSON (a panic's, say) become messages as they are.
///
/// # Errors
/// The file cannot be read.
pub fn read(path: &Path) -> Result<Vec<LogLine>> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    Ok(text.lines().map(parse).collect())
}

fn parse(line: &str) -> LogLine {
    let fields = match serde_json::from_str::<Value>(line) {
        Ok(mut event) => match event.get_mut("fields").map(Value::take) {
            Some(fields) => fields,
            None => event,
        },
        Err(_not_json) => Value::from_iter([("message", line)]),
    };
    LogLine { fields }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_nested_flat_and_in_plain_text() {
        let nested = parse(r#"{"level":"INFO","fields":{"message":"leading","term":3}}"#);
        let flat = parse(r#"{"level":"INFO","message":"leading","term":3}"#);
        for line in [nested, flat] {
            assert_eq!((line.message(), line.number("term")), ("leading", Some(3)));
        }
        assert_eq!(
            parse("thread 'main' panicked").message(),
            "thread 'main' panicked"
        );
    }
}
