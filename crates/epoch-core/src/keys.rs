//! Public keys: named by their thumbprint, read from and written as a JWKS document (RFC 7517).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::DecodingKey;
use serde_json::{Map, Value, json};

use crate::id::sha256;
use crate::json;

/// Longest JWKS document, in bytes; a longer one is refused before it is parsed.
pub const JWKS_BYTES_MAX: usize = 64 * 1024;
/// Most keys in a JWKS document, those of other kinds included.
pub const JWKS_KEYS_MAX: usize = 128;

/// A key's name (`kid`): the SHA-256 thumbprint of the public key (RFC 7638), in base64url.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId([u8; 32]);

impl KeyId {
    /// The thumbprint of an Ed25519 public key.
    #[must_use]
    pub fn of(public_key: &[u8; 32]) -> Self {
        // The required members in lexicographic order, without spaces: RFC 7638, section 3.
        let x = URL_SAFE_NO_PAD.encode(public_key);
        Self(sha256(&[&format!(
            r#"{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}"#
        )]))
    }

    /// The hash itself.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// A name as it is stored.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for KeyId {
    type Err = VerifyingKeyError;
    fn from_str(text: &str) -> Result<Self, VerifyingKeyError> {
        bytes32(text).map(Self)
    }
}

fn bytes32(text: &str) -> Result<[u8; 32], VerifyingKeyError> {
    let malformed = || VerifyingKeyError {
        text: json::excerpt(text),
    };
    let bytes = URL_SAFE_NO_PAD
        .decode(text)
        .map_err(|_not_base64| malformed())?;
    <[u8; 32]>::try_from(bytes).map_err(|_wrong_length| malformed())
}

/// Text that is not a key or a key id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not 32 bytes as base64url without padding")]
pub struct VerifyingKeyError {
    /// What was given, cut to 64 characters.
    pub text: String,
}

/// An Ed25519 public key.
#[derive(Clone)]
pub struct VerifyingKey {
    bytes: [u8; 32],
    id: KeyId,
    decoding: DecodingKey,
}

impl VerifyingKey {
    /// The key with these bytes (RFC 8032). Any 32 bytes pass: bytes that are no curve point
    /// verify no signature.
    #[must_use]
    pub fn new(bytes: [u8; 32]) -> Self {
        // The library's "DER" is the raw key here: its verifier takes it to the crypto as it is.
        Self {
            bytes,
            id: KeyId::of(&bytes),
            decoding: DecodingKey::from_ed_der(&bytes),
        }
    }

    /// The key's name.
    #[must_use]
    pub fn id(&self) -> KeyId {
        self.id
    }

    /// The raw public key.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.bytes
    }

    /// The raw public key as base64url without padding, as in a JWK's `x`.
    #[must_use]
    pub fn to_base64url(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.bytes)
    }

    /// The key as a JWK.
    #[must_use]
    pub fn to_jwk(&self) -> Value {
        json!({
            "kty": "OKP",
            "crv": "Ed25519",
            "x": self.to_base64url(),
            "kid": self.id.to_string(),
            "alg": "EdDSA",
            "use": "sig",
        })
    }

    pub(crate) fn decoding(&self) -> &DecodingKey {
        &self.decoding
    }
}

impl FromStr for VerifyingKey {
    type Err = VerifyingKeyError;
    /// Reads the raw key as base64url without padding, as in a JWK's `x`.
    fn from_str(text: &str) -> Result<Self, VerifyingKeyError> {
        bytes32(text).map(Self::new)
    }
}

impl PartialEq for VerifyingKey {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for VerifyingKey {}

impl fmt::Debug for VerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("VerifyingKey").field(&self.id).finish()
    }
}

/// Why a JWKS document was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeySetError {
    /// The document is too long.
    #[error("the key set has {len} bytes; at most {JWKS_BYTES_MAX} are read")]
    TooLarge {
        /// What was given, in bytes.
        len: usize,
    },
    /// The document is not JSON, or has a key twice.
    #[error("the key set is not strict JSON: {detail}; fetch it again")]
    Malformed {
        /// What is wrong.
        detail: String,
    },
    /// There is no list of keys.
    #[error("the key set has no list \"keys\" of objects; check the address it came from")]
    NoKeys,
    /// The list is too long.
    #[error("the key set has {count} keys; at most {JWKS_KEYS_MAX} are read")]
    TooManyKeys {
        /// How many.
        count: usize,
    },
    /// Two keys carry one name.
    #[error("the key set has two keys with the kid {kid:?}; fetch it again")]
    DuplicateKeyId {
        /// The name.
        kid: String,
    },
    /// An Ed25519 key's `x` is missing or malformed.
    #[error("a key of the set has no valid x: 32 bytes as base64url without padding")]
    InvalidKey,
    /// A key's name is not its thumbprint.
    #[error("the key {expected} is named {kid:?} in the key set; fetch it again")]
    KeyIdMismatch {
        /// What the document says.
        kid: String,
        /// The key's thumbprint.
        expected: KeyId,
    },
    /// A private key stands in a public document.
    #[error("the key set contains a private key; replace that key at once")]
    PrivateKey,
}

/// The keys a verifier trusts, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeySet {
    keys: BTreeMap<KeyId, VerifyingKey>,
}

impl KeySet {
    /// Reads a JWKS document. Keys other than Ed25519 signing keys are skipped.
    ///
    /// # Errors
    /// Too long, not strict JSON, a `kid` given twice or not the key's thumbprint, or a private
    /// key.
    pub fn from_jwks(document: &[u8]) -> Result<Self, KeySetError> {
        if document.len() > JWKS_BYTES_MAX {
            return Err(KeySetError::TooLarge {
                len: document.len(),
            });
        }
        let map = json::object(document).map_err(|detail| KeySetError::Malformed { detail })?;
        let list = map
            .get("keys")
            .and_then(Value::as_array)
            .ok_or(KeySetError::NoKeys)?;
        if list.len() > JWKS_KEYS_MAX {
            return Err(KeySetError::TooManyKeys { count: list.len() });
        }
        let mut names = BTreeSet::new();
        let mut keys = Self::default();
        for jwk in list {
            let jwk = jwk.as_object().ok_or(KeySetError::NoKeys)?;
            if let Some(kid) = jwk.get("kid").and_then(Value::as_str)
                && !names.insert(kid)
            {
                return Err(KeySetError::DuplicateKeyId {
                    kid: json::excerpt(kid),
                });
            }
            if let Some(key) = signing_key(jwk)?
                && let Some(twice) = keys.keys.insert(key.id, key)
            {
                return Err(KeySetError::DuplicateKeyId {
                    kid: twice.id.to_string(),
                });
            }
        }
        Ok(keys)
    }

    /// The set as a JWKS document, ordered by name.
    #[must_use]
    pub fn to_jwks(&self) -> Value {
        json!({ "keys": self.iter().map(VerifyingKey::to_jwk).collect::<Vec<_>>() })
    }

    /// Adds a key; true if it was not there.
    pub fn insert(&mut self, key: VerifyingKey) -> bool {
        self.keys.insert(key.id, key).is_none()
    }

    /// Finds a key by its name.
    #[must_use]
    pub fn find(&self, id: KeyId) -> Option<&VerifyingKey> {
        self.keys.get(&id)
    }

    /// The keys, ordered by name.
    pub fn iter(&self) -> impl Iterator<Item = &VerifyingKey> {
        self.keys.values()
    }

    /// How many keys there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether no certificate can verify.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

impl FromIterator<VerifyingKey> for KeySet {
    fn from_iter<I: IntoIterator<Item = VerifyingKey>>(keys: I) -> Self {
        Self {
            keys: keys.into_iter().map(|key| (key.id, key)).collect(),
        }
    }
}

/// The key of one JWK, or none when it is of another kind.
fn signing_key(jwk: &Map<String, Value>) -> Result<Option<VerifyingKey>, KeySetError> {
    let text = |name| jwk.get(name).and_then(Value::as_str);
    let says = |name, allowed| !jwk.contains_key(name) || text(name) == Some(allowed);
    if text("kty") != Some("OKP") || text("crv") != Some("Ed25519") {
        return Ok(None);
    }
    if jwk.contains_key("d") {
        return Err(KeySetError::PrivateKey);
    }
    if !says("alg", "EdDSA") || !says("use", "sig") {
        return Ok(None);
    }
    let x = text("x").ok_or(KeySetError::InvalidKey)?;
    let key: VerifyingKey = x.parse().map_err(|_malformed| KeySetError::InvalidKey)?;
    match jwk.get("kid") {
        Some(kid) if kid.as_str() != Some(key.id.to_string().as_str()) => {
            let kid = json::excerpt(kid.as_str().unwrap_or("not text"));
            Err(KeySetError::KeyIdMismatch {
                kid,
                expected: key.id,
            })
        }
        Some(_) | None => Ok(Some(key)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn read(document: &Value) -> Result<KeySet, KeySetError> {
        KeySet::from_jwks(document.to_string().as_bytes())
    }

    /// The key and thumbprint of RFC 8037, appendix A.3.
    #[test]
    fn the_thumbprint_is_that_of_the_standard() {
        let key: VerifyingKey = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"
            .parse()
            .unwrap();
        assert_eq!(
            key.id().to_string(),
            "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"
        );
        assert_eq!(key.id().to_string().parse(), Ok(key.id()));
    }

    #[test]
    fn a_key_set_round_trips_and_skips_other_kinds() {
        let keys = testing::key_set(&[1, 2]);
        let mut document = keys.to_jwks();
        let others = [
            json!({ "kty": "RSA", "n": "AQAB", "e": "AQAB", "kid": "r" }),
            json!({ "kty": "EC", "crv": "P-256", "x": "AA", "y": "AA" }),
            json!({ "kty": "OKP", "crv": "X25519", "x": "AA" }),
            json!({ "kty": "oct", "k": "AA" }),
            json!({ "kty": "OKP", "crv": "Ed25519", "x": "AA", "use": "enc" }),
            json!({ "kty": "OKP", "crv": "Ed25519", "x": "AA", "alg": "ES256" }),
        ];
        document["keys"].as_array_mut().unwrap().extend(others);
        assert_eq!(read(&document), Ok(keys));
    }

    #[test]
    fn a_kid_given_twice_is_refused() {
        let jwk = testing::signing_key(1).verifying_key().to_jwk();
        let twice = json!({ "keys": [jwk, jwk] });
        assert!(matches!(
            read(&twice),
            Err(KeySetError::DuplicateKeyId { .. })
        ));
        let mut nameless = jwk.clone();
        nameless.as_object_mut().unwrap().remove("kid");
        assert!(read(&json!({ "keys": [nameless] })).is_ok());
        let twice = json!({ "keys": [nameless, jwk] });
        assert!(matches!(
            read(&twice),
            Err(KeySetError::DuplicateKeyId { .. })
        ));
        let others = json!({ "keys": [{ "kty": "RSA", "kid": "r" }, { "kty": "EC", "kid": "r" }] });
        assert!(matches!(
            read(&others),
            Err(KeySetError::DuplicateKeyId { .. })
        ));
    }

    #[test]
    fn documents_that_cannot_be_trusted_are_refused() {
        let jwk = testing::signing_key(1).verifying_key().to_jwk();
        let with = |name: &str, value: Value| {
            let mut jwk = jwk.clone();
            jwk[name] = value;
            read(&json!({ "keys": [jwk] }))
        };
        assert!(matches!(
            with("kid", json!("other")),
            Err(KeySetError::KeyIdMismatch { .. })
        ));
        assert!(matches!(
            with("kid", json!(1)),
            Err(KeySetError::KeyIdMismatch { .. })
        ));
        assert_eq!(with("x", json!("AA")), Err(KeySetError::InvalidKey));
        assert_eq!(with("x", json!(1)), Err(KeySetError::InvalidKey));
        assert_eq!(with("d", json!("AA")), Err(KeySetError::PrivateKey));
        assert_eq!(read(&json!({})), Err(KeySetError::NoKeys));
        assert_eq!(read(&json!({ "keys": [1] })), Err(KeySetError::NoKeys));
        let many = vec![json!({ "kty": "RSA" }); JWKS_KEYS_MAX + 1];
        assert!(matches!(
            read(&json!({ "keys": many })),
            Err(KeySetError::TooManyKeys { .. })
        ));
        let long = " ".repeat(JWKS_BYTES_MAX + 1);
        assert!(matches!(
            KeySet::from_jwks(long.as_bytes()),
            Err(KeySetError::TooLarge { .. })
        ));
        let twice = br#"{"keys":[],"keys":[]}"#;
        assert!(matches!(
            KeySet::from_jwks(twice),
            Err(KeySetError::Malformed { .. })
        ));
    }
}
