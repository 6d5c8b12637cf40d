//! Why a token is not a valid certificate.

use crate::certificate::ClaimsError;
use crate::fields::FieldError;
use crate::id::{Epoch, Incarnation};
use crate::jws_error::JwsError;
use crate::keys::KeyId;
use crate::name::NameError;
use crate::reason::Reason;

/// Why a token is not a valid certificate. Each variant is one check.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// The token is not a signed text, or a signature does not verify.
    #[error(transparent)]
    Jws(#[from] JwsError),
    /// The key is not known: fetch the key set or the bundle again (not often), then verify once
    /// more.
    #[error("the key {kid} is not known; fetch the key set or the chain of bundles again")]
    UnknownKey {
        /// Which key.
        kid: KeyId,
    },
    /// More signatures are demanded than can be told apart without a bundle.
    #[error(
        "{needed} signatures are demanded, and a plain key set does not say which node has which \
         key; pin the root and give the verifier bundles"
    )]
    BundleNeeded {
        /// How many nodes must have signed.
        needed: usize,
    },
    /// There is no bundle yet.
    #[error("no trust bundle has been adopted yet; fetch the chain of bundles")]
    NoBundle,
    /// The bundle has expired: fetch it again.
    #[error(
        "the trust bundle expired at {expires_at_s}, now is {} (seconds since 1970); \
         fetch the chain of bundles again",
        .now_ms / 1_000
    )]
    BundleExpired {
        /// `exp`, in seconds.
        expires_at_s: u64,
        /// The verifier's time, in milliseconds.
        now_ms: u64,
    },
    /// Too few nodes signed.
    #[error(
        "signatures by different nodes: {found}, needed: {needed}; ask for a quorum certificate"
    )]
    TooFewSignatures {
        /// How many different nodes signed.
        found: usize,
        /// How many must.
        needed: usize,
    },
    /// The cluster was restored since.
    #[error("incarnation {presented} is below the bundle's {current}; {}", Reason::IncarnationVoid.next_step())]
    IncarnationVoid {
        /// The certificate's.
        presented: Incarnation,
        /// The bundle's.
        current: Incarnation,
    },
    /// The cluster was restored, and the bundle is of before.
    #[error(
        "incarnation {presented} is above the bundle's {current}; fetch the chain of bundles again"
    )]
    IncarnationUnknown {
        /// The certificate's.
        presented: Incarnation,
        /// The bundle's.
        current: Incarnation,
    },
    /// The claims are not strict JSON.
    #[error("the claims are not a strict JSON object: {detail}")]
    ClaimsMalformed {
        /// What is wrong.
        detail: String,
    },
    /// A claim cannot be read.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// A claim is out of bounds.
    #[error("the claims are out of bounds: {0}")]
    ClaimBounds(ClaimsError),
    /// Another cluster's certificate.
    #[error("the issuer is {found:?}, expected {expected:?}")]
    Issuer {
        /// What was given, cut to 64 characters.
        found: String,
        /// This verifier's cluster.
        expected: String,
    },
    /// The verifier has an audience, the certificate names none.
    #[error("the certificate names no audience; ask for one with aud {expected:?}")]
    AudienceMissing {
        /// This verifier's audience.
        expected: String,
    },
    /// The certificate is for other resources.
    #[error("the certificate is for another audience; ask for one with this resource's aud")]
    Audience,
    /// Issued in the future.
    #[error(
        "the certificate is issued at {issued_at_s} s, after now ({now_ms} ms); check the clocks"
    )]
    IssuedInFuture {
        /// `iat`, in seconds.
        issued_at_s: u64,
        /// The verifier's time, in milliseconds.
        now_ms: u64,
    },
    /// Not valid yet (`nbf`).
    #[error("the certificate is not valid before {not_before_s} s, now is {now_ms} ms")]
    NotYetValid {
        /// `nbf`, in seconds.
        not_before_s: u64,
        /// The verifier's time, in milliseconds.
        now_ms: u64,
    },
    /// Expired: the holder asks for a fresh one of the same grant.
    #[error(
        "the certificate expired at {expires_at_s}, now is {} (seconds since 1970); \
         ask for a fresh one",
        .now_ms / 1_000
    )]
    Expired {
        /// `exp`, in seconds.
        expires_at_s: u64,
        /// The verifier's time, in milliseconds.
        now_ms: u64,
    },
    /// The epoch is not an integer from 1 to 2^53 - 1.
    #[error("the epoch is {found}; it must be an integer from 1 to 2^53 - 1")]
    Epoch {
        /// What was given, as JSON, cut to 64 characters.
        found: String,
    },
    /// The epoch's time is too far ahead: it would lock the scope until then.
    #[error(
        "epoch {epoch} lies too far ahead of now ({now_ms} ms); check the clocks of cluster and resource"
    )]
    EpochTooFar {
        /// The epoch.
        epoch: Epoch,
        /// The verifier's time, in milliseconds.
        now_ms: u64,
    },
    /// The scope is not a scope.
    #[error("fence.scope: {0}")]
    Scope(NameError),
    /// The holder is not a holder.
    #[error("sub: {0}")]
    Holder(NameError),
    /// One of `sub` and `fence.grant` without the other.
    #[error("sub and fence.grant must both be there, or neither")]
    GrantIncomplete,
}

impl VerifyError {
    /// Whether newer keys may mend it: fetch the key set or the chain of bundles again (not often),
    /// then verify once more.
    #[must_use]
    pub fn is_for_want_of_keys(&self) -> bool {
        matches!(
            self,
            Self::UnknownKey { .. }
                | Self::NoBundle
                | Self::BundleExpired { .. }
                | Self::IncarnationUnknown { .. }
        )
    }

    /// The public reason.
    #[must_use]
    pub fn reason(&self) -> Reason {
        if matches!(self, Self::IncarnationVoid { .. }) {
            Reason::IncarnationVoid
        } else {
            Reason::CertificateInvalid
        }
    }
}
