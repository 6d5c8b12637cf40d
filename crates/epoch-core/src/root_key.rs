//! The operator's root key, as it is kept offline.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;

use crate::bundle::{Bundle, BundleKey};
use crate::bundle_error::BundleError;
use crate::bundle_terms::BundleTerms;
use crate::certificate::Validity;
use crate::fields::{self, FieldError, number, only_members, text};
use crate::id::{ClusterId, Incarnation};
use crate::json;
use crate::jws::TextKind;
use crate::jws_error::JwsError;
use crate::pin::Pin;
use crate::sign::{SigningKey, SigningKeyError};
use crate::signed_bundle::SignedBundle;
use crate::statement::{Statement, StatementError, StatementKind};

/// Longest content of a root key's file, in bytes; a longer one is refused before it is parsed.
pub const ROOT_KEY_BYTES_MAX: usize = 1024;
/// The only format there is yet.
const FORMAT: u64 = 1;
const MEMBERS: [&str; 4] = ["format", "cluster_id", "incarnation", "private_key"];

/// Why something is not a root key's file. No text repeats what was given: it may be the key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RootKeyFileError {
    /// Too long.
    #[error("the file has {len} bytes; a root key's has {ROOT_KEY_BYTES_MAX} at most")]
    TooLarge {
        /// What was given, in bytes.
        len: usize,
    },
    /// Not strict JSON.
    #[error("the file is not a strict JSON object; give the root key's file as it was made")]
    Malformed,
    /// Of a later version.
    #[error("the file is of the format {found}, not {FORMAT}; use a version that knows it")]
    Format {
        /// What was given.
        found: u64,
    },
    /// A member cannot be read.
    #[error("{0}; give the root key's file as it was made")]
    Field(#[from] FieldError),
    /// The key in it is none.
    #[error(transparent)]
    Key(#[from] SigningKeyError),
}

/// Why the root key does not sign something.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RootKeyError {
    /// Another cluster's, or another root's.
    #[error("the bundle is of {found}, the root key of {expected}; give the other key, or chain")]
    OtherPin {
        /// The bundle's, as text.
        found: String,
        /// The key's, as text.
        expected: String,
    },
    /// A life that is over: a bundle for it would not outrank those of the later one.
    #[error(
        "the bundle is of incarnation {found}, and the root key has signed for {known} since; \
         fetch the chain from the cluster as restored"
    )]
    IncarnationVoid {
        /// The bundle's.
        found: Incarnation,
        /// The last one that the key has signed for.
        known: Incarnation,
    },
    /// A new life must be a higher one.
    #[error("incarnation {found} is not above {known}, for which the root key has signed already")]
    IncarnationNotNew {
        /// The new one.
        found: Incarnation,
        /// The last one that the key has signed for.
        known: Incarnation,
    },
    /// The bundle cannot be.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// The statement cannot be.
    #[error(transparent)]
    Statement(#[from] StatementError),
    /// The text would be too long.
    #[error(transparent)]
    Jws(#[from] JwsError),
}

/// What a cluster's first bundle, or the first one of a new life, says besides its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FirstTerms {
    /// `iat`: seconds since 1970.
    pub issued_at_s: u64,
    /// How long it, and each renewed one, lives, in seconds
    /// ([`BUNDLE_LIFETIME_S`](crate::BUNDLE_LIFETIME_S)).
    pub lifetime_s: u64,
    /// How long a resource may go without fetching again, in seconds
    /// ([`BUNDLE_AGE_S`](crate::BUNDLE_AGE_S)); below `lifetime_s`.
    pub max_age_s: u64,
}

/// A cluster's root key, and the last incarnation it has signed a bundle for. Never shown, not even
/// by `Debug`.
pub struct RootKey {
    cluster: ClusterId,
    incarnation: Incarnation,
    key: SigningKey,
}

impl RootKey {
    /// The key of a new cluster, made from 32 secret random bytes, which the caller draws (and
    /// erases).
    ///
    /// # Errors
    /// The crypto library refuses the seed.
    pub fn from_seed(
        cluster: ClusterId,
        incarnation: Incarnation,
        seed: &[u8; 32],
    ) -> Result<Self, SigningKeyError> {
        Ok(Self {
            cluster,
            incarnation,
            key: SigningKey::from_seed(seed)?,
        })
    }

    /// Reads the content of its file.
    ///
    /// # Errors
    /// Too long, not strict JSON, another format, a member that is missing, malformed or unknown,
    /// or no Ed25519 key.
    pub fn from_json(content: &[u8]) -> Result<Self, RootKeyFileError> {
        if content.len() > ROOT_KEY_BYTES_MAX {
            let len = content.len();
            return Err(RootKeyFileError::TooLarge { len });
        }
        let map = json::object(content).map_err(|_may_be_secret| RootKeyFileError::Malformed)?;
        match number(&map, "format")? {
            FORMAT => {}
            found => return Err(RootKeyFileError::Format { found }),
        }
        only_members(&map, "the root key's file", &MEMBERS)?;
        let malformed = |claim, expected| FieldError::Malformed { claim, expected };
        let id = text(&map, "cluster_id")?;
        let cluster: Option<ClusterId> = id.parse().ok();
        // One cluster has one spelling.
        let cluster = cluster.filter(|cluster| cluster.to_string() == id);
        let document = URL_SAFE_NO_PAD
            .decode(text(&map, "private_key")?)
            .map_err(|_not_base64| malformed("private_key", "PKCS#8 as base64url"))?;
        Ok(Self {
            cluster: cluster
                .ok_or_else(|| malformed("cluster_id", "a hyphenated lower-case UUID"))?,
            incarnation: fields::incarnation(&map, "incarnation")?,
            key: SigningKey::from_pkcs8(&document)?,
        })
    }

    /// The content of its file: secret. One line of JSON, with its end.
    ///
    /// # Errors
    /// The crypto library fails.
    pub fn to_json(&self) -> Result<String, SigningKeyError> {
        let wire = WireRootKey {
            format: FORMAT,
            cluster_id: self.cluster.to_string(),
            incarnation: self.incarnation.to_string(),
            private_key: URL_SAFE_NO_PAD.encode(self.key.to_pkcs8()?),
        };
        // Strings and numbers always serialise; the fallback is read by nobody.
        let content = serde_json::to_string(&wire).unwrap_or_default();
        Ok(content + "\n")
    }

    /// What is given to resources: no secret.
    #[must_use]
    pub fn pin(&self) -> Pin {
        Pin {
            cluster: self.cluster,
            root: self.key.verifying_key().clone(),
        }
    }

    /// The last incarnation it has signed a bundle for.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// The key for a new life of the cluster. Its file is to be replaced before anything that it
    /// signs is given away, so that no incarnation is begun twice.
    ///
    /// # Errors
    /// The incarnation is not a higher one.
    pub fn for_new_life(self, incarnation: Incarnation) -> Result<Self, RootKeyError> {
        if incarnation <= self.incarnation {
            return Err(RootKeyError::IncarnationNotNew {
                found: incarnation,
                known: self.incarnation,
            });
        }
        Ok(Self {
            incarnation,
            ..self
        })
    }

    /// The first bundle of the incarnation: the number 1, with these keys.
    ///
    /// # Errors
    /// Terms or keys out of bounds.
    pub fn sign_first(
        &self,
        terms: FirstTerms,
        keys: Vec<BundleKey>,
    ) -> Result<SignedBundle, RootKeyError> {
        let FirstTerms {
            issued_at_s,
            lifetime_s,
            max_age_s,
        } = terms;
        let terms = BundleTerms {
            cluster: self.cluster,
            incarnation: self.incarnation,
            sequence: 1,
            root: self.key.verifying_key().clone(),
            issued_at_s,
            expires_at_s: issued_at_s.saturating_add(lifetime_s),
            lifetime_s,
            max_age_s,
        };
        self.sign(&Bundle::new(terms, keys)?)
    }

    /// The bundle that follows `current`: the next number, the same terms, these keys, signed by
    /// the root alone.
    ///
    /// # Errors
    /// `current` is of another pin or of a life that is over; issued before it; keys out of bounds.
    pub fn sign_next(
        &self,
        current: &Bundle,
        issued_at_s: u64,
        keys: Vec<BundleKey>,
    ) -> Result<SignedBundle, RootKeyError> {
        let of = Pin {
            cluster: current.terms().cluster,
            root: current.terms().root.clone(),
        };
        let pin = self.pin();
        if of != pin {
            return Err(RootKeyError::OtherPin {
                found: of.to_string(),
                expected: pin.to_string(),
            });
        }
        let found = current.terms().incarnation;
        if found < self.incarnation {
            let known = self.incarnation;
            return Err(RootKeyError::IncarnationVoid { found, known });
        }
        self.sign(&current.next(issued_at_s, keys)?)
    }

    /// An operator's statement: its text.
    ///
    /// # Errors
    /// Validity or content out of bounds.
    pub fn sign_statement(
        &self,
        validity: Validity,
        kind: StatementKind,
    ) -> Result<String, RootKeyError> {
        let statement = Statement::new(self.cluster, validity, kind)?;
        Ok(self.key.sign_statement(&statement)?)
    }

    fn sign(&self, bundle: &Bundle) -> Result<SignedBundle, RootKeyError> {
        let payload = bundle.to_json();
        let signature = self.key.signature(TextKind::Bundle, &payload);
        let signed = SignedBundle::from_parts(payload, vec![(self.key.id(), signature)])?;
        Ok(signed)
    }
}

impl fmt::Debug for RootKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RootKey")
            .field("pin", &self.pin().to_string())
            .field("incarnation", &self.incarnation)
            .finish_non_exhaustive()
    }
}

#[derive(Serialize)]
struct WireRootKey {
    format: u64,
    cluster_id: String,
    incarnation: String,
    private_key: String,
}

#[cfg(test)]
mod tests;
