//! What a certificate says: the claims, as types whose values are always valid.

use serde::Serialize;

use crate::decide::Fence;
use crate::id::{ClusterId, EPOCH_EXCLUSIVE_MAX, Epoch, GrantHash, Incarnation, Position};
use crate::jws_error::JwsError;
use crate::keys::KeyId;
use crate::name::{Holder, Scope};
use crate::thumbprint::Thumbprint;

/// Longest certificate of one signature, in bytes: a longer one is refused before it is parsed.
pub const TOKEN_BYTES_MAX: usize = 8 * 1024;
/// Most audiences of one certificate.
pub const AUDIENCES_MAX: usize = 16;
/// Longest audience, in bytes.
pub const AUDIENCE_BYTES_MAX: usize = 256;
/// Longest `jti`, in bytes.
pub const JTI_BYTES_MAX: usize = 64;
/// The `iss` of a cluster's certificates: `epochd:<cluster id>`.
#[must_use]
pub fn issuer(cluster: ClusterId) -> String {
    format!("epochd:{cluster}")
}

/// Whose grant a certificate proves. Not changed by a fresh certificate of the same grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// For whom.
    pub holder: Holder,
    /// Hash of session and request id.
    pub hash: GrantHash,
}

/// When a certificate is valid, and its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Validity {
    /// `iat`: seconds since 1970, below 2^53.
    pub issued_at_s: u64,
    /// `exp`: seconds since 1970, above `issued_at_s`, below 2^53.
    pub expires_at_s: u64,
    /// `jti`: 1 to [`JTI_BYTES_MAX`] bytes, unique for each certificate issued.
    pub jti: String,
}

/// Why claims cannot be put in a certificate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClaimsError {
    /// `exp` is not after `iat`.
    #[error("exp {expires_at_s} is not after iat {issued_at_s}; ask for a longer validity")]
    ValidityEmpty {
        /// `iat`, in seconds.
        issued_at_s: u64,
        /// `exp`, in seconds.
        expires_at_s: u64,
    },
    /// A number is not below 2^53, so it would not be exact in JSON.
    #[error("{claim} is {value}; it must be below 2^53")]
    NumberTooLarge {
        /// Which claim.
        claim: &'static str,
        /// What was given.
        value: u64,
    },
    /// `jti` is empty or too long.
    #[error("jti has {len} bytes; give it 1 to {JTI_BYTES_MAX}")]
    JtiLength {
        /// What was given, in bytes.
        len: usize,
    },
    /// Too many audiences.
    #[error("{count} audiences are given; at most {AUDIENCES_MAX} are allowed")]
    TooManyAudiences {
        /// How many.
        count: usize,
    },
    /// An audience is empty or too long.
    #[error("an audience has {len} bytes; give it 1 to {AUDIENCE_BYTES_MAX}")]
    AudienceLength {
        /// What was given, in bytes.
        len: usize,
    },
    /// All claims together make a token that no verifier would read.
    #[error("the certificate cannot be put together: {0}")]
    Jws(#[from] JwsError),
}

/// The claims of one certificate.
#[derive(Debug, Clone, PartialEq)]
pub struct Claims {
    cluster: ClusterId,
    scope: Scope,
    fence: Fence,
    validity: Validity,
    audiences: Vec<String>,
    confirmation: Option<Thumbprint>,
}

impl Claims {
    /// The claims that `fence` was granted in `scope`. A fence without a grant makes a holderless
    /// certificate (of a revoke), good for barriers only.
    ///
    /// # Errors
    /// `exp` not after `iat`, a number not below 2^53, or a `jti` that is empty or too long.
    pub fn new(
        cluster: ClusterId,
        scope: Scope,
        fence: Fence,
        validity: Validity,
    ) -> Result<Self, ClaimsError> {
        let Position {
            group: _,
            term,
            leader,
            index,
            offset: _,
        } = fence.position;
        let Validity {
            issued_at_s,
            expires_at_s,
            ref jti,
        } = validity;
        for (claim, value) in [
            ("iat", issued_at_s),
            ("exp", expires_at_s),
            ("fence.term", term),
            ("fence.leader", leader),
            ("fence.index", index),
        ] {
            if value >= EPOCH_EXCLUSIVE_MAX {
                return Err(ClaimsError::NumberTooLarge { claim, value });
            }
        }
        if expires_at_s <= issued_at_s {
            return Err(ClaimsError::ValidityEmpty {
                issued_at_s,
                expires_at_s,
            });
        }
        if jti.is_empty() || jti.len() > JTI_BYTES_MAX {
            return Err(ClaimsError::JtiLength { len: jti.len() });
        }
        Ok(Self {
            cluster,
            scope,
            fence,
            validity,
            audiences: Vec::new(),
            confirmation: None,
        })
    }

    /// Names the resources the certificate is for (`aud`); an empty list is none.
    ///
    /// # Errors
    /// Too many, or one that is empty or too long.
    pub fn with_audiences(mut self, audiences: Vec<String>) -> Result<Self, ClaimsError> {
        if audiences.len() > AUDIENCES_MAX {
            return Err(ClaimsError::TooManyAudiences {
                count: audiences.len(),
            });
        }
        let fits = |audience: &&String| (1..=AUDIENCE_BYTES_MAX).contains(&audience.len());
        if let Some(bad) = audiences.iter().find(|audience| !fits(audience)) {
            return Err(ClaimsError::AudienceLength { len: bad.len() });
        }
        self.audiences = audiences;
        Ok(self)
    }

    /// Binds the certificate to the holder's own key (`cnf`, RFC 7800 and RFC 9449).
    #[must_use]
    pub fn with_confirmation(mut self, key: Thumbprint) -> Self {
        self.confirmation = Some(key);
        self
    }

    /// The cluster that granted.
    #[must_use]
    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// The scope granted.
    #[must_use]
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// What a resource's fence becomes when it admits this certificate.
    #[must_use]
    pub fn fence(&self) -> &Fence {
        &self.fence
    }

    /// The cluster's life in which it was granted.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.fence.incarnation
    }

    /// The epoch granted.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.fence.epoch
    }

    /// Where the grant stands in the log.
    #[must_use]
    pub fn position(&self) -> Position {
        self.fence.position
    }

    /// Whose grant; none for a holderless certificate, which is good for barriers only.
    #[must_use]
    pub fn grant(&self) -> Option<&Grant> {
        self.fence.grant.as_ref()
    }

    /// The holder, unless the certificate is holderless.
    #[must_use]
    pub fn holder(&self) -> Option<&Holder> {
        self.grant().map(|grant| &grant.holder)
    }

    /// When it is valid, and its number.
    #[must_use]
    pub fn validity(&self) -> &Validity {
        &self.validity
    }

    /// The resources it is for; empty when not restricted.
    #[must_use]
    pub fn audiences(&self) -> &[String] {
        &self.audiences
    }

    /// The holder's own key (`cnf`), if the session brought one: who presents the certificate must
    /// prove that he has it.
    #[must_use]
    pub fn confirmation(&self) -> Option<Thumbprint> {
        self.confirmation
    }

    /// The token's payload: JSON, the same bytes whoever signs it.
    #[must_use]
    pub fn to_json(&self) -> String {
        let Fence {
            incarnation,
            epoch,
            position,
            grant,
        } = &self.fence;
        let wire = WireClaims {
            iss: issuer(self.cluster),
            sub: grant.as_ref().map(|grant| grant.holder.as_str()),
            aud: &self.audiences,
            iat: self.validity.issued_at_s,
            exp: self.validity.expires_at_s,
            jti: &self.validity.jti,
            cnf: self.confirmation.map(|key| WireConfirmation {
                jkt: key.to_string(),
            }),
            fence: WireFence {
                scope: self.scope.as_str(),
                incarnation: incarnation.to_string(),
                epoch: epoch.get(),
                group: position.group,
                term: position.term,
                leader: position.leader,
                index: position.index,
                offset: position.offset,
                grant: grant.as_ref().map(|grant| grant.hash.to_string()),
            },
        };
        // Strings, numbers and a parsed value always serialise; the fallback verifies nowhere.
        serde_json::to_string(&wire).unwrap_or_default()
    }
}

#[derive(Serialize)]
struct WireClaims<'a> {
    iss: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    sub: Option<&'a str>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    aud: &'a [String],
    iat: u64,
    exp: u64,
    jti: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cnf: Option<WireConfirmation>,
    fence: WireFence<'a>,
}

#[derive(Serialize)]
struct WireConfirmation {
    jkt: String,
}

#[derive(Serialize)]
struct WireFence<'a> {
    scope: &'a str,
    incarnation: String,
    epoch: u64,
    group: u32,
    term: u64,
    leader: u64,
    index: u64,
    offset: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    grant: Option<String>,
}

/// A certificate that has been verified: only [`Verifier::verify`](crate::Verifier::verify) makes
/// one, so a decision can never be taken on claims nobody signed.
#[derive(Debug, Clone, PartialEq)]
pub struct Certificate {
    claims: Claims,
    key: KeyId,
    cosigners: Vec<KeyId>,
}

impl Certificate {
    pub(crate) fn verified(claims: Claims, key: KeyId, cosigners: Vec<KeyId>) -> Self {
        Self {
            claims,
            key,
            cosigners,
        }
    }

    /// The claims.
    #[must_use]
    pub fn claims(&self) -> &Claims {
        &self.claims
    }

    /// The key that signed it; of several, the first.
    #[must_use]
    pub fn key(&self) -> KeyId {
        self.key
    }

    /// All keys that signed it, in the order of its parts.
    pub fn signers(&self) -> impl Iterator<Item = KeyId> {
        std::iter::once(self.key).chain(self.cosigners.iter().copied())
    }

    /// The scope granted. A resource compares it with its own; it never takes it from here.
    #[must_use]
    pub fn scope(&self) -> &Scope {
        self.claims.scope()
    }

    /// What a resource's fence becomes when it admits this certificate.
    #[must_use]
    pub fn fence(&self) -> &Fence {
        self.claims.fence()
    }

    /// The epoch granted.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.claims.epoch()
    }

    /// The cluster's life in which it was granted.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.claims.incarnation()
    }

    /// Whose grant; none for a holderless certificate, which is good for barriers only.
    #[must_use]
    pub fn grant(&self) -> Option<&Grant> {
        self.claims.grant()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn a_certificate_for_a_64_byte_scope_is_under_1_kib() {
        let scope = Scope::parse(&"s".repeat(64)).unwrap();
        let claims = testing::claims_in(
            scope,
            testing::fence(42, "holder-of-thirty-two-bytes-------"),
        );
        let token = testing::signing_key(1).sign(&claims).unwrap();
        assert!(token.len() < 1024, "{}", token.len());
    }

    #[test]
    fn claims_out_of_bounds_are_refused() {
        let new = |validity| {
            Claims::new(
                testing::cluster(),
                testing::scope(),
                testing::fence(42, "h"),
                validity,
            )
        };
        let validity = testing::validity();
        assert!(new(validity.clone()).is_ok());
        let empty = Validity {
            expires_at_s: validity.issued_at_s,
            ..validity.clone()
        };
        assert!(matches!(new(empty), Err(ClaimsError::ValidityEmpty { .. })));
        let far = Validity {
            expires_at_s: EPOCH_EXCLUSIVE_MAX,
            ..validity.clone()
        };
        assert!(matches!(
            new(far),
            Err(ClaimsError::NumberTooLarge { claim: "exp", .. })
        ));
        for jti in [String::new(), "j".repeat(JTI_BYTES_MAX + 1)] {
            let bad = Validity {
                jti,
                ..validity.clone()
            };
            assert!(matches!(new(bad), Err(ClaimsError::JtiLength { .. })));
        }
        let claims = testing::claims(42, "h");
        assert!(claims.clone().with_audiences(vec![String::new()]).is_err());
        assert!(
            claims
                .clone()
                .with_audiences(vec!["a".into(); AUDIENCES_MAX + 1])
                .is_err()
        );
        assert!(
            claims
                .with_audiences(vec!["a".repeat(AUDIENCE_BYTES_MAX + 1)])
                .is_err()
        );
    }

    #[test]
    fn a_position_that_is_not_exact_in_json_is_refused() {
        let mut fence = testing::fence(42, "h");
        fence.position.index = EPOCH_EXCLUSIVE_MAX;
        let claims = Claims::new(
            testing::cluster(),
            testing::scope(),
            fence,
            testing::validity(),
        );
        assert!(matches!(
            claims,
            Err(ClaimsError::NumberTooLarge {
                claim: "fence.index",
                ..
            })
        ));
    }
}
