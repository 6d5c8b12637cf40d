//! The holder's side of a proof of possession (DPoP, RFC 9449).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use serde_json::{Value, json};

use crate::proof::{PROOF_TYPE, certificate_hash, without_query};
use crate::sign::{SigningKey, SigningKeyError};
use crate::thumbprint::Thumbprint;

/// A holder's own Ed25519 private key. Never shown, not even by `Debug`.
#[derive(Debug)]
pub struct HolderKey {
    key: SigningKey,
    /// The encoded header and its dot: the same for every proof.
    header: String,
}

impl HolderKey {
    /// The key made from 32 secret random bytes, which the caller draws (and erases).
    ///
    /// # Errors
    /// The crypto library refuses the seed.
    pub fn from_seed(seed: &[u8; 32]) -> Result<Self, SigningKeyError> {
        SigningKey::from_seed(seed).map(Self::new)
    }

    /// Reads a PKCS#8 document: see [`SigningKey::from_pkcs8`].
    ///
    /// # Errors
    /// Not such a document, or not an Ed25519 key.
    pub fn from_pkcs8(document: &[u8]) -> Result<Self, SigningKeyError> {
        SigningKey::from_pkcs8(document).map(Self::new)
    }

    /// The key as a PKCS#8 document: secret.
    ///
    /// # Errors
    /// The crypto library fails.
    pub fn to_pkcs8(&self) -> Result<Vec<u8>, SigningKeyError> {
        self.key.to_pkcs8()
    }

    fn new(key: SigningKey) -> Self {
        let x = key.verifying_key().to_base64url();
        let header = format!(
            r#"{{"typ":"{PROOF_TYPE}","alg":"EdDSA","jwk":{{"kty":"OKP","crv":"Ed25519","x":"{x}"}}}}"#
        );
        let header = format!("{}.", URL_SAFE_NO_PAD.encode(header));
        Self { key, header }
    }

    /// The public half as a JWK: what a session is opened with.
    #[must_use]
    pub fn public_jwk(&self) -> Value {
        let x = self.key.verifying_key().to_base64url();
        json!({ "kty": "OKP", "crv": "Ed25519", "x": x })
    }

    /// The public half's name, as it stands in certificates.
    #[must_use]
    pub fn thumbprint(&self) -> Thumbprint {
        Thumbprint::from_bytes(*self.key.id().as_bytes())
    }

    /// The proof that goes with one request: a JWT. `certificate` is the certificate's text as
    /// sent, `issued_at_s` the time in seconds since 1970, `jti` never used before with this key.
    #[must_use]
    pub fn proof(
        &self,
        method: &str,
        url: &str,
        certificate: &str,
        issued_at_s: u64,
        jti: &str,
    ) -> String {
        let wire = WireProof {
            jti,
            htm: method,
            htu: without_query(url),
            iat: issued_at_s,
            ath: certificate_hash(certificate),
        };
        // Strings and numbers always serialise; the fallback verifies nowhere.
        let payload = serde_json::to_string(&wire).unwrap_or_default();
        self.key.sign_under(&self.header, &payload)
    }
}

#[derive(Serialize)]
struct WireProof<'a> {
    jti: &'a str,
    htm: &'a str,
    htu: &'a str,
    iat: u64,
    ath: String,
}
