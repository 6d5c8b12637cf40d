//! Proof of possession (DPoP, RFC 9449): that who presents a certificate has the holder's key.
//!
//! A certificate with `cnf` is of no use to who merely saw it pass: each request carries a proof,
//! a JWT signed with that key, for this method, URL and certificate, used once.

mod replay;

use std::sync::{Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::Algorithm;
use serde_json::{Map, Value};

use self::replay::Replays;
use crate::certificate::Certificate;
use crate::fields::{number, object, text};
use crate::id::sha256;
use crate::json;
use crate::jws::{demand_type, only_members};
use crate::jws_error::JwsError;
use crate::proof_error::ProofError;
use crate::thumbprint::HolderJwk;

/// The `typ` of a proof's header.
pub const PROOF_TYPE: &str = "dpop+jwt";
/// Longest proof, in bytes; a longer one is refused before it is parsed.
pub const PROOF_BYTES_MAX: usize = 4 * 1024;
/// Longest `jti` of a proof, in bytes.
pub const PROOF_JTI_BYTES_MAX: usize = 128;
/// How far a proof's time and the verifier's may lie apart by default, in milliseconds.
pub const PROOF_WINDOW_MS_DEFAULT: u64 = 60_000;
/// How many proofs are remembered by default, each for twice the window at most. An entry takes
/// about 200 bytes.
pub const PROOFS_REMEMBERED_DEFAULT: usize = 65_536;

/// A request as it arrived: what its proof must be for.
#[derive(Debug, Clone, Copy)]
pub struct Presented<'a> {
    /// The certificate, verified.
    pub certificate: &'a Certificate,
    /// The certificate's text, as it arrived.
    pub text: &'a str,
    /// The request's method.
    pub method: &'a str,
    /// The request's URL as the client named it: scheme, host and path; a query is passed over.
    pub url: &'a str,
}

/// Checks proofs, and remembers them so that none is used twice.
#[derive(Debug)]
pub struct ProofVerifier {
    window_ms: u64,
    replays: Mutex<Replays>,
}

impl Default for ProofVerifier {
    fn default() -> Self {
        Self::new(PROOF_WINDOW_MS_DEFAULT, PROOFS_REMEMBERED_DEFAULT)
    }
}

impl ProofVerifier {
    /// A verifier of proofs whose time is within `window_ms` milliseconds of now, either way, and
    /// that remembers so many.
    #[must_use]
    pub fn new(window_ms: u64, remembered: usize) -> Self {
        Self {
            window_ms,
            replays: Mutex::new(Replays::new(remembered)),
        }
    }

    /// Checks that `proof` was made with the key that the certificate names, for this request,
    /// about `now_ms` (milliseconds since 1970), and was not used before.
    ///
    /// # Errors
    /// One variant for each check. When no more proofs can be remembered, a fresh one is refused
    /// too.
    pub fn verify(
        &self,
        proof: &str,
        presented: Presented<'_>,
        now_ms: u64,
    ) -> Result<(), ProofError> {
        let confirmation = presented.certificate.claims().confirmation();
        let expected = confirmation.ok_or(ProofError::NotBound)?;
        if proof.len() > PROOF_BYTES_MAX {
            return Err(ProofError::TooLarge { len: proof.len() });
        }
        let (signed, signature) = proof.rsplit_once('.').ok_or(JwsError::NotCompact)?;
        let (header, payload) = signed.split_once('.').ok_or(JwsError::NotCompact)?;
        let key = signer(header)?;
        let found = key.thumbprint;
        if found != expected {
            return Err(ProofError::OtherKey { found, expected });
        }
        if !key.check(signed, signature)? {
            return Err(ProofError::Signature);
        }
        let payload = decode(payload)?;
        let claims = json::object(&payload).map_err(|detail| ProofError::Malformed { detail })?;
        let issued_at_s = self.check_claims(&claims, presented, now_ms)?;
        let jti = text(&claims, "jti")?;
        // A thumbprint has one length, so no two pairs run together.
        let used = sha256(&[&found.to_string(), jti]);
        let until_ms = issued_at_s
            .saturating_mul(1_000)
            .saturating_add(self.window_ms);
        let mut replays = self.replays.lock().unwrap_or_else(PoisonError::into_inner);
        replays.add(used, until_ms, now_ms)
    }

    /// Checks all but whether it was used before; its time in seconds since 1970.
    fn check_claims(
        &self,
        claims: &Map<String, Value>,
        presented: Presented<'_>,
        now_ms: u64,
    ) -> Result<u64, ProofError> {
        let len = text(claims, "jti")?.len();
        if !(1..=PROOF_JTI_BYTES_MAX).contains(&len) {
            return Err(ProofError::JtiLength { len });
        }
        let method = text(claims, "htm")?;
        if method != presented.method {
            return Err(ProofError::Method {
                found: json::excerpt(method),
                expected: presented.method.to_owned(),
            });
        }
        let url = text(claims, "htu")?;
        let target = target(presented.url);
        if target.is_none() || target != self::target(url) {
            return Err(ProofError::Url {
                found: json::excerpt(url),
                expected: json::excerpt(presented.url),
            });
        }
        if text(claims, "ath")? != certificate_hash(presented.text) {
            return Err(ProofError::OtherCertificate);
        }
        let issued_at_s = number(claims, "iat")?;
        let window_ms = self.window_ms;
        if issued_at_s.saturating_mul(1_000).abs_diff(now_ms) > window_ms {
            return Err(ProofError::OutOfWindow {
                issued_at_s,
                now_ms,
                window_ms,
            });
        }
        Ok(issued_at_s)
    }
}

/// The key in a header that holds nothing but what it must.
fn signer(encoded: &str) -> Result<HolderJwk, ProofError> {
    let header =
        json::object(&decode(encoded)?).map_err(|detail| JwsError::HeaderMalformed { detail })?;
    only_members(&header, &["typ", "alg", "jwk"])?;
    demand_type(&header, PROOF_TYPE)?;
    let key = HolderJwk::read(object(&header, "jwk")?)?;
    let expected = if key.algorithm == Algorithm::ES256 {
        "ES256"
    } else {
        "EdDSA"
    };
    let alg = header.get("alg");
    if alg.and_then(Value::as_str) != Some(expected) {
        let alg = json::shown(alg);
        return Err(ProofError::Algorithm { alg, expected });
    }
    Ok(key)
}

fn decode(encoded: &str) -> Result<Vec<u8>, JwsError> {
    URL_SAFE_NO_PAD
        .decode(encoded)
        .map_err(|_not_base64| JwsError::NotCompact)
}

/// What a proof says of its certificate (`ath`): SHA-256 of its text, in base64url.
pub(crate) fn certificate_hash(text: &str) -> String {
    URL_SAFE_NO_PAD.encode(sha256(&[text]))
}

/// A URL up to its query and fragment.
pub(crate) fn without_query(url: &str) -> &str {
    url.split(['?', '#']).next().unwrap_or(url)
}

/// Scheme, authority and path of a URL, with what may be written in two ways written in one: case
/// of scheme and host, the default port, an empty path. Escapes in the path are compared as they
/// are. None where there is no scheme and host, or a user.
fn target(url: &str) -> Option<(String, String, &str)> {
    let (scheme, rest) = without_query(url).split_once("://")?;
    let at = rest.find('/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at_checked(at)?;
    let scheme = scheme.to_ascii_lowercase();
    let mut authority = authority.to_ascii_lowercase();
    let default_port = match scheme.as_str() {
        "https" => ":443",
        "http" => ":80",
        _ => return None,
    };
    if let Some(host) = authority.strip_suffix(default_port) {
        authority = host.to_owned();
    }
    if authority.is_empty() || authority.contains('@') {
        return None;
    }
    let path = if path.is_empty() { "/" } else { path };
    Some((scheme, authority, path))
}

#[cfg(test)]
mod tests;
