//! Signed texts: one payload, signed by one key or by several (RFC 7515, compact form).
//!
//! A text is one compact JWS for each key, joined by commas; all have the same payload, byte for
//! byte. One parser reads all kinds: certificates, trust bundles and statements differ in the
//! header's `typ` alone, so that none can be taken for another.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::crypto::{CryptoProvider, aws_lc};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde_json::{Map, Value};

use crate::json;
use crate::keys::{KeyId, VerifyingKey};

/// Most keys that may sign one payload: one for each node of the largest cluster.
pub const PARTS_MAX: usize = 9;
/// A raw Ed25519 signature.
pub type Signature = [u8; 64];

/// What a signed text is, told by its header's `typ`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextKind {
    /// A certificate: `epoch+jwt`.
    Certificate,
    /// A trust bundle: `epoch-bundle+jwt`.
    Bundle,
    /// An operator's statement: `epoch-statement+jwt`.
    Statement,
}

impl TextKind {
    /// The `typ` of the header.
    #[must_use]
    pub fn typ(self) -> &'static str {
        match self {
            Self::Certificate => "epoch+jwt",
            Self::Bundle => "epoch-bundle+jwt",
            Self::Statement => "epoch-statement+jwt",
        }
    }

    /// Longest part (one key's compact JWS), in bytes; a longer one is refused before it is parsed.
    #[must_use]
    pub fn part_bytes_max(self) -> usize {
        match self {
            Self::Certificate => 8 * 1024,
            // A payload of 4,096 bytes, in base64url, with header and signature.
            Self::Bundle => 6 * 1024,
            Self::Statement => 2 * 1024,
        }
    }

    /// Longest text: all parts and the commas between, in bytes.
    #[must_use]
    pub fn bytes_max(self) -> usize {
        PARTS_MAX * (self.part_bytes_max() + 1) - 1
    }

    /// What stands in the usual header before the key's name.
    fn header_start(self) -> &'static str {
        match self {
            Self::Certificate => r#"{"alg":"EdDSA","typ":"epoch+jwt","kid":""#,
            Self::Bundle => r#"{"alg":"EdDSA","typ":"epoch-bundle+jwt","kid":""#,
            Self::Statement => r#"{"alg":"EdDSA","typ":"epoch-statement+jwt","kid":""#,
        }
    }

    /// The usual header of one key, encoded.
    pub(crate) fn header(self, kid: KeyId) -> String {
        URL_SAFE_NO_PAD.encode(format!("{}{kid}\"}}", self.header_start()))
    }
}

/// Why a text is not one of its kind, or a signature does not hold. Each variant is one check.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JwsError {
    /// Longer than is read.
    #[error("the token has {len} bytes; at most {max} are read")]
    TooLarge {
        /// What was given, in bytes.
        len: usize,
        /// The bound, in bytes.
        max: usize,
    },
    /// More parts than a cluster has nodes.
    #[error("the token has more than {PARTS_MAX} parts; ask for fewer signatures")]
    TooManyParts,
    /// Nobody signed.
    #[error("there is no signature; collect one at least")]
    NoSignature,
    /// Not three parts of base64url without padding.
    #[error("the token is not a compact JWT: three parts of base64url without padding")]
    NotCompact,
    /// Two parts sign different payloads.
    #[error("the token's parts have different payloads; all must sign the same bytes")]
    PayloadsDiffer,
    /// One key signs twice.
    #[error("the key {kid} signs twice; give each key's part once")]
    KeyTwice {
        /// The key.
        kid: KeyId,
    },
    /// The header is not strict JSON.
    #[error("the token's header is not a strict JSON object: {detail}")]
    HeaderMalformed {
        /// What is wrong.
        detail: String,
    },
    /// The header has a member other than `alg`, `typ` and `kid`. Any other either names a key or
    /// changes how the token is to be read (`jwk`, `jku`, `x5c`, `crit`, `zip`, ...).
    #[error("the token's header has the member {name:?}, which is not allowed there")]
    HeaderMember {
        /// Which member, cut to 64 characters.
        name: String,
    },
    /// The algorithm is not `EdDSA`.
    #[error("the token's alg is {alg}; it must be \"EdDSA\"")]
    Algorithm {
        /// What was given, as JSON, cut to 64 characters.
        alg: String,
    },
    /// The type is another one.
    #[error("the token's typ is {typ}; it must be {expected:?}")]
    Type {
        /// What was given, as JSON, cut to 64 characters.
        typ: String,
        /// The type expected.
        expected: &'static str,
    },
    /// There is no `kid`, or it is not the thumbprint of a key.
    #[error("the token's kid is {kid}; it must be a key's thumbprint as base64url")]
    KeyId {
        /// What was given, as JSON, cut to 64 characters.
        kid: String,
    },
    /// The signature is not by that key over these bytes.
    #[error("the signature of the key {kid} does not verify; do not accept it")]
    Signature {
        /// The key.
        kid: KeyId,
    },
}

/// A text taken apart. Nothing in it is verified yet.
#[derive(Debug)]
pub(crate) struct SignedText<'a> {
    payload: &'a str,
    parts: Vec<Part<'a>>,
}

/// One key's compact JWS.
#[derive(Debug)]
pub(crate) struct Part<'a> {
    pub(crate) kid: KeyId,
    /// Header and payload, as signed.
    signed: &'a str,
    signature: &'a str,
    /// Whether the header is the one this code writes, so that it need not be kept.
    pub(crate) usual_header: bool,
}

impl<'a> SignedText<'a> {
    pub(crate) fn parse(kind: TextKind, text: &'a str) -> Result<Self, JwsError> {
        let too_large = |len, max| Err(JwsError::TooLarge { len, max });
        if text.len() > kind.bytes_max() {
            return too_large(text.len(), kind.bytes_max());
        }
        let mut payload = None;
        let mut parts: Vec<Part<'a>> = Vec::with_capacity(1);
        for part in text.split(',') {
            if parts.len() == PARTS_MAX {
                return Err(JwsError::TooManyParts);
            }
            if part.len() > kind.part_bytes_max() {
                return too_large(part.len(), kind.part_bytes_max());
            }
            let (signed, signature) = part.rsplit_once('.').ok_or(JwsError::NotCompact)?;
            let (header, body) = signed.split_once('.').ok_or(JwsError::NotCompact)?;
            if body.contains('.') {
                return Err(JwsError::NotCompact);
            }
            if *payload.get_or_insert(body) != body {
                return Err(JwsError::PayloadsDiffer);
            }
            let (kid, usual_header) = key_id(kind, header)?;
            if parts.iter().any(|part| part.kid == kid) {
                return Err(JwsError::KeyTwice { kid });
            }
            parts.push(Part {
                kid,
                signed,
                signature,
                usual_header,
            });
        }
        Ok(Self {
            payload: payload.ok_or(JwsError::NotCompact)?,
            parts,
        })
    }

    pub(crate) fn parts(&self) -> &[Part<'a>] {
        &self.parts
    }

    /// The payload's bytes.
    pub(crate) fn payload(&self) -> Result<Vec<u8>, JwsError> {
        URL_SAFE_NO_PAD
            .decode(self.payload)
            .map_err(|_not_base64| JwsError::NotCompact)
    }
}

impl Part<'_> {
    /// Checks the signature.
    pub(crate) fn check(&self, key: &VerifyingKey) -> Result<(), JwsError> {
        check(
            key.decoding(),
            Algorithm::EdDSA,
            self.signed,
            self.signature,
        )?
        .then_some(())
        .ok_or(JwsError::Signature { kid: self.kid })
    }

    /// The raw signature.
    pub(crate) fn signature(&self) -> Result<Signature, JwsError> {
        let bytes = URL_SAFE_NO_PAD
            .decode(self.signature)
            .map_err(|_not_base64| JwsError::NotCompact)?;
        Signature::try_from(bytes).map_err(|_wrong_length| JwsError::Signature { kid: self.kid })
    }
}

/// Whether `signature` (base64url) is by `key` over `signed`.
pub(crate) fn check(
    key: &DecodingKey,
    algorithm: Algorithm,
    signed: &str,
    signature: &str,
) -> Result<bool, JwsError> {
    if CryptoProvider::try_get_default().is_none() {
        // Where another crate has switched on a second provider, the library panics at the first
        // token unless one was chosen. A choice made meanwhile by another is as good.
        let _chosen = aws_lc::DEFAULT_PROVIDER.install_default();
    }
    // The library checks the signature alone. All else is checked here: its own time checks read
    // the clock, round floats and let claims of a wrong type pass.
    jsonwebtoken::crypto::verify(signature, signed.as_bytes(), key, algorithm)
        .map_err(|_not_base64| JwsError::NotCompact)
}

/// The key that a header names, once the header holds nothing but what it must; and whether it is
/// the header that this code writes.
fn key_id(kind: TextKind, encoded: &str) -> Result<(KeyId, bool), JwsError> {
    let bytes = URL_SAFE_NO_PAD
        .decode(encoded)
        .map_err(|_not_base64| JwsError::NotCompact)?;
    // The usual header is told by its bytes: a name between them that reads as a thumbprint has
    // no character that JSON could take for anything else.
    let usual = bytes
        .strip_prefix(kind.header_start().as_bytes())
        .and_then(|rest| rest.strip_suffix(b"\"}"))
        .and_then(|kid| std::str::from_utf8(kid).ok()?.parse().ok());
    if let Some(kid) = usual {
        return Ok((kid, true));
    }
    let header = json::object(&bytes).map_err(|detail| JwsError::HeaderMalformed { detail })?;
    only_members(&header, &["alg", "typ", "kid"])?;
    let alg = header.get("alg");
    if alg.and_then(Value::as_str) != Some("EdDSA") {
        let alg = json::shown(alg);
        return Err(JwsError::Algorithm { alg });
    }
    demand_type(&header, kind.typ())?;
    let kid = header.get("kid");
    kid.and_then(Value::as_str)
        .and_then(|kid| kid.parse().ok())
        .map(|kid| (kid, false))
        .ok_or_else(|| JwsError::KeyId {
            kid: json::shown(kid),
        })
}

/// Refuses a header with other members than these.
pub(crate) fn only_members(header: &Map<String, Value>, allowed: &[&str]) -> Result<(), JwsError> {
    match header.keys().find(|name| !allowed.contains(&name.as_str())) {
        Some(name) => Err(JwsError::HeaderMember {
            name: json::excerpt(name),
        }),
        None => Ok(()),
    }
}

/// Refuses a header of another type.
pub(crate) fn demand_type(
    header: &Map<String, Value>,
    expected: &'static str,
) -> Result<(), JwsError> {
    let typ = header.get("typ");
    if typ.and_then(Value::as_str) == Some(expected) {
        return Ok(());
    }
    let typ = json::shown(typ);
    Err(JwsError::Type { typ, expected })
}

/// Checks that these keys may sign a payload of this length together.
pub(crate) fn check_signers(
    kind: TextKind,
    payload_len: usize,
    signatures: &[(KeyId, Signature)],
) -> Result<(), JwsError> {
    if signatures.is_empty() {
        return Err(JwsError::NoSignature);
    }
    if signatures.len() > PARTS_MAX {
        return Err(JwsError::TooManyParts);
    }
    let kids = || signatures.iter().map(|(kid, _)| *kid);
    if let Some(kid) = kids().find(|kid| kids().filter(|other| other == kid).count() > 1) {
        return Err(JwsError::KeyTwice { kid });
    }
    // Header, payload and signature with their two dots; all names have one length.
    let header_len = kids().next().map_or(0, |kid| kind.header(kid).len());
    let len = header_len + encoded_len(payload_len) + encoded_len(64) + 2;
    let max = kind.part_bytes_max();
    if len > max {
        return Err(JwsError::TooLarge { len, max });
    }
    Ok(())
}

/// The length of so many bytes as base64url without padding.
fn encoded_len(len: usize) -> usize {
    len.saturating_mul(4).div_ceil(3)
}

/// The text of `payload` with these signatures, in their order.
///
/// # Errors
/// No signature, more than [`PARTS_MAX`], two of one key, or a part longer than is read.
pub fn compose(
    kind: TextKind,
    payload: &str,
    signatures: &[(KeyId, Signature)],
) -> Result<String, JwsError> {
    check_signers(kind, payload.len(), signatures)?;
    Ok(compose_checked(kind, payload, signatures))
}

pub(crate) fn compose_checked(
    kind: TextKind,
    payload: &str,
    signatures: &[(KeyId, Signature)],
) -> String {
    let payload = URL_SAFE_NO_PAD.encode(payload);
    let part = |(kid, signature): &(KeyId, Signature)| {
        let signature = URL_SAFE_NO_PAD.encode(signature);
        format!("{}.{payload}.{signature}", kind.header(*kid))
    };
    signatures.iter().map(part).collect::<Vec<_>>().join(",")
}
