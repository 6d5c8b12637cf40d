//! Signing certificates: for the node. A resource needs only the public keys.

use std::fmt;

use aws_lc_rs::encoding::AsBigEndian as _;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::bundle_error::BundleError;
use crate::certificate::{Claims, ClaimsError};
use crate::id::{ClusterId, Incarnation, NodeId};
use crate::jws::{Signature, TextKind, compose};
use crate::jws_error::JwsError;
use crate::key_offer::KeyOffer;
use crate::keys::{KeyId, VerifyingKey};
use crate::statement::Statement;

/// Why a private key cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SigningKeyError {
    /// The bytes are no Ed25519 private key.
    #[error("the bytes are not an Ed25519 private key: {detail}; restore or replace the key file")]
    Invalid {
        /// What the crypto library says.
        detail: String,
    },
    /// The crypto library could not do it.
    #[error("the crypto library could not {step}; report it")]
    Crypto {
        /// What was tried.
        step: &'static str,
    },
}

/// An Ed25519 private key. Never shown, not even by `Debug`.
pub struct SigningKey {
    pair: Ed25519KeyPair,
    verifying: VerifyingKey,
    /// The encoded header and its dot: the same for every certificate of this key.
    header: String,
}

impl SigningKey {
    /// The key made from 32 secret random bytes, which the caller draws (and erases).
    ///
    /// # Errors
    /// The crypto library refuses the seed.
    pub fn from_seed(seed: &[u8; 32]) -> Result<Self, SigningKeyError> {
        Ed25519KeyPair::from_seed_unchecked(seed)
            .map_err(invalid)
            .and_then(Self::from_pair)
    }

    /// Reads a PKCS#8 document (version 1 or 2), as [`to_pkcs8`](Self::to_pkcs8) and OpenSSL make.
    ///
    /// # Errors
    /// Not such a document, or not an Ed25519 key.
    pub fn from_pkcs8(document: &[u8]) -> Result<Self, SigningKeyError> {
        Ed25519KeyPair::from_pkcs8_maybe_unchecked(document)
            .map_err(invalid)
            .and_then(Self::from_pair)
    }

    fn from_pair(pair: Ed25519KeyPair) -> Result<Self, SigningKeyError> {
        let public = <[u8; 32]>::try_from(pair.public_key().as_ref()).map_err(|_wrong_length| {
            SigningKeyError::Crypto {
                step: "give the public key",
            }
        })?;
        let verifying = VerifyingKey::new(public);
        let header = format!("{}.", TextKind::Certificate.header(verifying.id()));
        Ok(Self {
            pair,
            verifying,
            header,
        })
    }

    /// The key as a PKCS#8 version 2 document: secret. It has the public key too, so that damage to
    /// either is found when it is read.
    ///
    /// # Errors
    /// The crypto library fails.
    pub fn to_pkcs8(&self) -> Result<Vec<u8>, SigningKeyError> {
        let document = self
            .pair
            .to_pkcs8()
            .map_err(|_unspecified| SigningKeyError::Crypto {
                step: "encode the key",
            })?;
        Ok(document.as_ref().to_vec())
    }

    /// The key's 32 seed bytes: secret.
    ///
    /// # Errors
    /// The crypto library fails.
    pub fn to_seed(&self) -> Result<[u8; 32], SigningKeyError> {
        let failed = || SigningKeyError::Crypto {
            step: "give the key's seed",
        };
        let seed = self.pair.seed().map_err(|_unspecified| failed())?;
        let bytes = seed.as_be_bytes().map_err(|_unspecified| failed())?;
        <[u8; 32]>::try_from(bytes.as_ref()).map_err(|_wrong_length| failed())
    }

    /// The public half.
    #[must_use]
    pub fn verifying_key(&self) -> &VerifyingKey {
        &self.verifying
    }

    /// The key's name.
    #[must_use]
    pub fn id(&self) -> KeyId {
        self.verifying.id()
    }

    /// Signs `claims`: the certificate's token. The same claims give the same token.
    ///
    /// # Errors
    /// The token would be longer than a verifier reads.
    pub fn sign(&self, claims: &Claims) -> Result<String, ClaimsError> {
        Ok(self.sign_checked(TextKind::Certificate, &claims.to_json())?)
    }

    /// Signs a statement, as the root key alone may: its text.
    ///
    /// # Errors
    /// The text would be longer than is read.
    pub fn sign_statement(&self, statement: &Statement) -> Result<String, JwsError> {
        self.sign_checked(TextKind::Statement, &statement.to_json())
    }

    /// Offers this key as a node's next one, endorsed by one of that node's that is in the bundle.
    ///
    /// # Errors
    /// Not reached: such a payload is short.
    pub fn offer(
        &self,
        cluster: ClusterId,
        incarnation: Incarnation,
        node: NodeId,
        endorser: Option<&Self>,
    ) -> Result<KeyOffer, BundleError> {
        let payload = KeyOffer::payload(cluster, incarnation, node, self.verifying_key());
        let signers = std::iter::once(self).chain(endorser);
        let signatures: Vec<_> = signers
            .map(|key| (key.id(), key.signature(TextKind::KeyOffer, &payload)))
            .collect();
        KeyOffer::parse(&compose(TextKind::KeyOffer, &payload, &signatures)?)
    }

    fn sign_checked(&self, kind: TextKind, payload: &str) -> Result<String, JwsError> {
        let token = match kind {
            TextKind::Certificate => self.sign_under(&self.header, payload),
            TextKind::Bundle | TextKind::Statement | TextKind::KeyOffer => {
                self.sign_under(&format!("{}.", kind.header(self.id())), payload)
            }
        };
        let (len, max) = (token.len(), kind.part_bytes_max());
        if len > max {
            return Err(JwsError::TooLarge { len, max });
        }
        Ok(token)
    }

    /// Signs a payload that others sign too: what [`compose`](crate::compose) makes a text of.
    #[must_use]
    pub fn signature(&self, kind: TextKind, payload: &str) -> Signature {
        let mut signed = kind.header(self.id());
        signed.push('.');
        URL_SAFE_NO_PAD.encode_string(payload, &mut signed);
        self.sign_bytes(signed.as_bytes())
    }

    /// The raw Ed25519 signature of `message`, for what is no text of a [`TextKind`]. The message
    /// must begin with its own magic, so that it can never be read as one.
    #[must_use]
    pub fn sign_bytes(&self, message: &[u8]) -> Signature {
        let mut signature = [0; 64];
        // An Ed25519 signature has 64 bytes.
        for (to, from) in signature.iter_mut().zip(self.pair.sign(message).as_ref()) {
            *to = *from;
        }
        signature
    }

    /// A compact JWS under an encoded header that ends with its dot.
    pub(crate) fn sign_under(&self, header: &str, payload: &str) -> String {
        // Header, payload and signature in base64, and the dot between.
        let len = header.len() + payload.len().div_ceil(3) * 4 + 1 + 88;
        let mut token = String::with_capacity(len);
        token.push_str(header);
        URL_SAFE_NO_PAD.encode_string(payload, &mut token);
        let signature = self.pair.sign(token.as_bytes());
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(signature, &mut token);
        token
    }
}

fn invalid(rejected: aws_lc_rs::error::KeyRejected) -> SigningKeyError {
    SigningKeyError::Invalid {
        detail: rejected.to_string(),
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey")
            .field("id", &self.id())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn keys_round_trip_as_seed_and_as_pkcs8() {
        let key = testing::signing_key(7);
        assert_eq!(key.to_seed(), Ok([7; 32]));
        let document = key.to_pkcs8().unwrap();
        let again = SigningKey::from_pkcs8(&document).unwrap();
        assert_eq!(again.verifying_key(), key.verifying_key());
        let claims = testing::claims(42, "h");
        assert_eq!(again.sign(&claims), key.sign(&claims));
        assert!(SigningKey::from_pkcs8(&document[1..]).is_err());
        for bit in 0..document.len() * 8 {
            let mut damaged = document.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let same = SigningKey::from_pkcs8(&damaged)
                .is_ok_and(|read| read.verifying_key() == key.verifying_key());
            let refused = SigningKey::from_pkcs8(&damaged).is_err();
            assert!(same || refused, "bit {bit} makes another key");
        }
        assert!(SigningKey::from_pkcs8(b"").is_err());
    }

    #[test]
    fn a_private_key_is_not_shown() {
        let key = testing::signing_key(7);
        let shown = format!("{key:?}");
        assert_eq!(shown, format!("SigningKey {{ id: {}, .. }}", key.id()));
    }

    #[test]
    fn claims_too_large_for_a_verifier_are_not_signed() {
        let audiences = vec!["\"".repeat(256); 16];
        let claims = testing::claims(42, "h").with_audiences(audiences).unwrap();
        let refused = testing::signing_key(1).sign(&claims);
        assert!(matches!(
            refused,
            Err(ClaimsError::Jws(JwsError::TooLarge { .. }))
        ));
    }
}
