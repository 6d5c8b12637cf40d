//! Bytes in JSON: base64url without padding.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Deserializer, Serializer, de};

/// Writes the text.
///
/// # Errors
/// The serializer's own.
pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&base64::display::Base64Display::new(
        bytes,
        &URL_SAFE_NO_PAD,
    ))
}

/// Reads the text.
///
/// # Errors
/// Anything else, padding included.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(deserializer)?;
    URL_SAFE_NO_PAD
        .decode(text)
        .map_err(|error| de::Error::custom(format!("not base64url without padding: {error}")))
}

/// The same for bytes that may be absent.
pub mod option {
    use serde::{Deserialize, Deserializer, Serializer};

    #[derive(Deserialize)]
    struct Bytes(#[serde(with = "super")] Vec<u8>);

    /// Writes the text.
    ///
    /// # Errors
    /// The serializer's own.
    pub fn serialize<S: Serializer>(
        bytes: &Option<Vec<u8>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match bytes {
            None => serializer.serialize_none(),
            Some(bytes) => super::serialize(bytes, serializer),
        }
    }

    /// Reads the text.
    ///
    /// # Errors
    /// Anything else, padding included.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Vec<u8>>, D::Error> {
        let bytes = Option::<Bytes>::deserialize(deserializer)?;
        Ok(bytes.map(|Bytes(bytes)| bytes))
    }
}

#[cfg(test)]
mod tests {
    use crate::v1::{PutRecordRequest, Record};

    #[test]
    fn bytes_survive_and_padding_is_refused() {
        let put = PutRecordRequest {
            value: vec![0xfb, 0xff, 0],
            ..PutRecordRequest::default()
        };
        let json = serde_json::to_value(&put).unwrap();
        assert_eq!(json["value"], "-_8A");
        assert_eq!(
            serde_json::from_value::<PutRecordRequest>(json).unwrap(),
            put
        );
        for text in ["-_8A=", "+/8A", "-_8A5"] {
            let json = serde_json::json!({ "value": text });
            assert!(
                serde_json::from_value::<PutRecordRequest>(json).is_err(),
                "{text}"
            );
        }
    }

    #[test]
    fn no_value_and_an_empty_one_are_told_apart() {
        for value in [None, Some(Vec::new()), Some(vec![1])] {
            let record = Record {
                value,
                ..Record::default()
            };
            let json = serde_json::to_value(&record).unwrap();
            assert_eq!(json.get("value").is_some(), record.value.is_some());
            assert_eq!(serde_json::from_value::<Record>(json).unwrap(), record);
        }
    }
}
