//! The holder's own key, and its name.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, DecodingKey};
use serde_json::{Map, Value};

use crate::fields::{FieldError, text};
use crate::id::{IdError, sha256};
use crate::json;
use crate::jws;
use crate::jws_error::JwsError;

/// Longest JWK of a holder, in bytes; a longer one is refused before it is parsed.
pub const HOLDER_JWK_BYTES_MAX: usize = 2 * 1024;
/// What only a private or secret key has: RFC 7518, section 6, and RFC 8037.
const PRIVATE_MEMBERS: [&str; 8] = ["d", "k", "p", "q", "dp", "dq", "qi", "oth"];

/// The name of a holder's public key (`jkt`): its SHA-256 thumbprint (RFC 7638), in base64url.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Thumbprint([u8; 32]);

impl Thumbprint {
    /// The thumbprint of a public JWK: Ed25519, or EC on P-256.
    ///
    /// # Errors
    /// Not such a key, or a private one.
    pub fn of_jwk(document: &[u8]) -> Result<Self, HolderJwkError> {
        if document.len() > HOLDER_JWK_BYTES_MAX {
            let len = document.len();
            return Err(HolderJwkError::TooLarge { len });
        }
        let jwk = json::object(document).map_err(|detail| HolderJwkError::Malformed { detail })?;
        HolderJwk::read(&jwk).map(|jwk| jwk.thumbprint)
    }

    /// The hash itself.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The thumbprint with these bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for Thumbprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl fmt::Debug for Thumbprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Thumbprint {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        let form = "32 bytes as base64url without padding";
        let malformed = || IdError::malformed("thumbprint", text, form);
        let bytes = URL_SAFE_NO_PAD
            .decode(text)
            .map_err(|_not_base64| malformed())?;
        <[u8; 32]>::try_from(bytes)
            .map(Self)
            .map_err(|_wrong_length| malformed())
    }
}

/// Why a JWK is not a holder's public key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HolderJwkError {
    /// Too long.
    #[error("the key has {len} bytes; at most {HOLDER_JWK_BYTES_MAX} are read")]
    TooLarge {
        /// What was given, in bytes.
        len: usize,
    },
    /// Not strict JSON.
    #[error("the key is not a strict JSON object: {detail}; give a JWK")]
    Malformed {
        /// What is wrong.
        detail: String,
    },
    /// A private key.
    #[error("the key has the private member {name:?}; replace that key, and give its public half")]
    Private {
        /// Which member.
        name: &'static str,
    },
    /// Another kind of key.
    #[error("the key has kty {kty}, crv {crv}; use OKP with Ed25519, or EC with P-256")]
    Kind {
        /// What was given, as JSON, cut to 64 characters.
        kty: String,
        /// What was given, as JSON, cut to 64 characters.
        crv: String,
    },
    /// A member cannot be read.
    #[error("the key: {0}")]
    Field(#[from] FieldError),
}

/// A holder's public key.
#[derive(Debug)]
pub(crate) struct HolderJwk {
    pub(crate) thumbprint: Thumbprint,
    pub(crate) algorithm: Algorithm,
    key: DecodingKey,
}

impl HolderJwk {
    /// Reads a JWK. Members that say what the key is for are passed over: it is used for proofs
    /// and nothing else.
    pub(crate) fn read(jwk: &Map<String, Value>) -> Result<Self, HolderJwkError> {
        let private = |name: &&&str| jwk.contains_key(**name);
        if let Some(name) = PRIVATE_MEMBERS.iter().find(private) {
            return Err(HolderJwkError::Private { name });
        }
        let member = |name| jwk.get(name).and_then(Value::as_str);
        match (member("kty"), member("crv")) {
            (Some("OKP"), Some("Ed25519")) => {
                let (x, bytes) = coordinate(jwk, "x")?;
                // The required members in lexicographic order, without spaces: RFC 7638.
                let form = format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}"#);
                Ok(Self {
                    thumbprint: Thumbprint(sha256(&[&form])),
                    algorithm: Algorithm::EdDSA,
                    key: DecodingKey::from_ed_der(&bytes),
                })
            }
            (Some("EC"), Some("P-256")) => {
                let (x, first) = coordinate(jwk, "x")?;
                let (y, second) = coordinate(jwk, "y")?;
                let form = format!(r#"{{"crv":"P-256","kty":"EC","x":"{x}","y":"{y}"}}"#);
                // An uncompressed point: SEC 1, section 2.3.3.
                let point = [&[4][..], &first, &second].concat();
                Ok(Self {
                    thumbprint: Thumbprint(sha256(&[&form])),
                    algorithm: Algorithm::ES256,
                    key: DecodingKey::from_ec_der(&point),
                })
            }
            _ => Err(HolderJwkError::Kind {
                kty: json::shown(jwk.get("kty")),
                crv: json::shown(jwk.get("crv")),
            }),
        }
    }

    /// Whether `signature` (base64url) is by this key over `signed`.
    pub(crate) fn check(&self, signed: &str, signature: &str) -> Result<bool, JwsError> {
        jws::check(&self.key, self.algorithm, signed, signature)
    }
}

/// A coordinate of 32 bytes, as text and decoded.
fn coordinate<'a>(
    jwk: &'a Map<String, Value>,
    name: &'static str,
) -> Result<(&'a str, [u8; 32]), FieldError> {
    let malformed = || FieldError::Malformed {
        claim: name,
        expected: "32 bytes as base64url without padding",
    };
    let text = text(jwk, name)?;
    let bytes = URL_SAFE_NO_PAD
        .decode(text)
        .map_err(|_not_base64| malformed())?;
    let bytes = <[u8; 32]>::try_from(bytes).map_err(|_wrong_length| malformed())?;
    Ok((text, bytes))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(jwk: &Value) -> Result<Thumbprint, HolderJwkError> {
        Thumbprint::of_jwk(jwk.to_string().as_bytes())
    }

    /// The key of RFC 8037, appendix A.3, and that of RFC 9449, section 4.1 with the thumbprint of
    /// section 6.1.
    #[test]
    fn the_thumbprints_are_those_of_the_standards() {
        let ed25519 = json!({
            "kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
        });
        let thumbprint = of(&ed25519).unwrap();
        assert_eq!(
            thumbprint.to_string(),
            "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"
        );
        assert_eq!(thumbprint.to_string().parse(), Ok(thumbprint));
        assert_eq!(Thumbprint::from_bytes(*thumbprint.as_bytes()), thumbprint);
        let p256 = json!({
            "kty": "EC", "crv": "P-256", "use": "sig",
            "x": "l8tFrhx-34tV3hRICRDY9zCkDlpBhF42UQUfWVAWBFs",
            "y": "9VE4jf_Ok_o64zbTTlcuNJajHmt6v9TDVrU0CdvGRDA",
        });
        assert_eq!(
            of(&p256).unwrap().to_string(),
            "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I"
        );
    }

    #[test]
    fn keys_that_are_private_of_another_kind_or_malformed_are_refused() {
        let usual = json!({
            "kty": "EC", "crv": "P-256",
            "x": "l8tFrhx-34tV3hRICRDY9zCkDlpBhF42UQUfWVAWBFs",
            "y": "9VE4jf_Ok_o64zbTTlcuNJajHmt6v9TDVrU0CdvGRDA",
        });
        let with = |name: &str, value: Value| {
            let mut jwk = usual.clone();
            jwk[name] = value;
            of(&jwk)
        };
        assert!(of(&usual).is_ok());
        for name in PRIVATE_MEMBERS {
            let refused = with(name, json!("AA"));
            assert_eq!(refused, Err(HolderJwkError::Private { name }));
        }
        for (name, value) in [
            ("kty", json!("RSA")),
            ("kty", json!(null)),
            ("crv", json!("P-384")),
            ("crv", json!("secp256k1")),
        ] {
            let refused = with(name, value);
            assert!(matches!(refused, Err(HolderJwkError::Kind { .. })));
        }
        for (name, value) in [("x", json!("AA")), ("y", json!(1)), ("y", json!(null))] {
            let refused = with(name, value);
            assert!(matches!(
                refused,
                Err(HolderJwkError::Field(FieldError::Malformed { .. }))
            ));
        }
        let twice = br#"{"kty":"EC","kty":"EC"}"#;
        assert!(matches!(
            Thumbprint::of_jwk(twice),
            Err(HolderJwkError::Malformed { .. })
        ));
        let len = HOLDER_JWK_BYTES_MAX + 1;
        let long = " ".repeat(len);
        assert_eq!(
            Thumbprint::of_jwk(long.as_bytes()),
            Err(HolderJwkError::TooLarge { len })
        );
        for bad in ["", "AA", "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k="] {
            assert!(bad.parse::<Thumbprint>().is_err(), "{bad}");
        }
    }
}
