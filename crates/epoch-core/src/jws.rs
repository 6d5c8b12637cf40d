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
use crate::jws_error::JwsError;
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
    /// A node's new signing key: `epoch-key+jwt`.
    KeyOffer,
}

impl TextKind {
    /// The `typ` of the header.
    #[must_use]
    pub fn typ(self) -> &'static str {
        match self {
            Self::Certificate => "epoch+jwt",
            Self::Bundle => "epoch-bundle+jwt",
            Self::Statement => "epoch-statement+jwt",
            Self::KeyOffer => "epoch-key+jwt",
        }
    }

    /// Longest part (one key's compact JWS), in bytes; a longer one is refused before it is parsed.
    #[must_use]
    pub fn part_bytes_max(self) -> usize {
        match self {
            Self::Certificate => 8 * 1024,
            // A payload of 4,096 bytes, in base64url, with header and signature.
            Self::Bundle => 6 * 1024,
            Self::Statement | Self::KeyOffer => 2 * 1024,
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
            Self::KeyOffer => r#"{"alg":"EdDSA","typ":"epoch-key+jwt","kid":""#,
        }
    }

    /// The usual header of one key, encoded.
    pub(crate) fn header(self, kid: KeyId) -> String {
        URL_SAFE_NO_PAD.encode(format!("{}{kid}\"}}", self.header_start()))
    }
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

impl VerifyingKey {
    /// Whether a signature is by this key over a payload of a kind, under the usual header.
    #[must_use]
    pub fn has_signed(&self, kind: TextKind, payload: &str, signature: &Signature) -> bool {
        let signed = format!(
            "{}.{}",
            kind.header(self.id()),
            URL_SAFE_NO_PAD.encode(payload)
        );
        let signature = URL_SAFE_NO_PAD.encode(signature);
        check(self.decoding(), Algorithm::EdDSA, &signed, &signature) == Ok(true)
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, NOW_MS, forge, payload, signed_by, signing_key, verifier};

    #[test]
    fn a_text_of_one_signature_is_what_one_key_signs() {
        let claims = testing::claims(42, "h");
        let text = signed_by(&[1], TextKind::Certificate, &claims.to_json());
        assert_eq!(signing_key(1).sign(&claims), Ok(text));
    }

    #[test]
    fn a_header_may_be_written_in_any_order_and_with_spaces() {
        let kid = signing_key(1).id();
        for header in [
            format!(r#"{{"kid":"{kid}","typ":"epoch+jwt","alg":"EdDSA"}}"#),
            format!(r#"{{ "alg":"EdDSA", "typ":"epoch+jwt", "kid":"{kid}" }}"#),
            format!(r#"{{"alg":"EdDSA","typ":"epoch\u002bjwt","kid":"{kid}"}}"#),
        ] {
            let token = forge(&header, &payload().to_string());
            assert!(verifier().verify(&token, NOW_MS).is_ok(), "{header}");
            let text = SignedText::parse(TextKind::Certificate, &token).unwrap();
            assert!(!text.parts()[0].usual_header, "{header}");
        }
        let token = forge(&testing::header(), &payload().to_string());
        let text = SignedText::parse(TextKind::Certificate, &token).unwrap();
        assert!(text.parts()[0].usual_header);
        assert_eq!(text.parts()[0].kid, kid);
    }

    /// What stands between the usual header's bytes is a name or it is read as JSON, strictly.
    #[test]
    fn a_usual_header_hides_no_other_member() {
        let kid = signing_key(1).id();
        for hidden in [
            format!(r#"{kid}","crit":"x"#),
            format!(r#"{kid}","kid":"{kid}"#),
            format!("{kid} "),
            format!("{kid}="),
            format!(r#"","jku":"{kid}"#),
        ] {
            let header = format!(r#"{{"alg":"EdDSA","typ":"epoch+jwt","kid":"{hidden}"}}"#);
            let token = forge(&header, &payload().to_string());
            let refused = SignedText::parse(TextKind::Certificate, &token);
            assert!(refused.is_err(), "{header}");
        }
    }

    #[test]
    fn a_payload_too_long_to_be_read_is_not_put_together() {
        for kind in [TextKind::Certificate, TextKind::Bundle, TextKind::Statement] {
            let signed = |len: usize| {
                let payload = "p".repeat(len);
                let key = signing_key(1);
                let signature = key.signature(kind, &payload);
                compose(kind, &payload, &[(key.id(), signature)])
            };
            let around = kind.header(signing_key(1).id()).len() + 2 + 86;
            let longest = (kind.part_bytes_max() - around) * 3 / 4;
            let text = signed(longest).unwrap();
            assert!(SignedText::parse(kind, &text).is_ok());
            let refused = signed(longest + 1);
            let Err(JwsError::TooLarge { len, max }) = refused else {
                panic!("{refused:?}");
            };
            assert!(len > max && len < max + 3, "{len} {max}");
        }
    }
}
