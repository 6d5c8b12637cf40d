//! JSON read strictly: a key given twice is refused at every depth.
//!
//! `serde_json` keeps the last of two equal keys and other libraries the first, so a document with
//! both says one thing to its signer's checks and another to its reader.

use std::fmt;

use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// A JSON value without duplicate keys. Nesting is bounded by `serde_json` (128 levels).
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StrictValue(pub(crate) Value);

/// Parses a document that must be one object.
pub(crate) fn object(bytes: &[u8]) -> Result<Map<String, Value>, String> {
    let StrictValue(value) = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    match value {
        Value::Object(map) => Ok(map),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err("not an object".to_owned())
        }
    }
}

/// Text from outside, cut so that it cannot flood a message or a log.
pub(crate) fn excerpt(text: &str) -> String {
    text.chars().take(64).collect()
}

/// A JSON value for a message, cut so that it cannot flood it.
pub(crate) fn shown(value: Option<&Value>) -> String {
    value.map_or_else(|| "missing".to_owned(), |value| excerpt(&value.to_string()))
}

impl<'de> Deserialize<'de> for StrictValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(Self)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON without duplicate keys")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(StrictValue(item)) = seq.next_element()? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if map.contains_key(&key) {
                return Err(Error::custom(format!(
                    "the key {:?} is given twice",
                    excerpt(&key)
                )));
            }
            let StrictValue(value) = entries.next_value()?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_given_twice_is_refused_at_every_depth() {
        for bad in [
            r#"{"a":1,"a":1}"#,
            r#"{"a":{"b":1,"b":2}}"#,
            r#"{"a":[{"b":1,"c":2,"b":1}]}"#,
            r#"{"a":1,"\u0061":2}"#,
        ] {
            let error = object(bad.as_bytes()).unwrap_err();
            assert!(error.contains("given twice"), "{bad}: {error}");
        }
    }

    #[test]
    fn other_documents_read_as_they_are() {
        let text = r#"{"a":[1,-2,1.5,"x",null,true],"b":{"a":{}}}"#;
        let map = object(text.as_bytes()).unwrap();
        assert_eq!(
            Value::Object(map),
            serde_json::from_str::<Value>(text).unwrap()
        );
    }

    #[test]
    fn other_than_one_object_is_refused() {
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        for bad in ["", "1", "[]", "null", "{} {}", "{", deep.as_str()] {
            assert!(object(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
