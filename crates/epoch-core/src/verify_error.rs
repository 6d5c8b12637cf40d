//! Why a token is not a valid certificate.

use serde_json::Value;

use crate::certificate::{ClaimsError, TOKEN_BYTES_MAX};
use crate::id::Epoch;
use crate::json;
use crate::name::NameError;

/// Why a token is not a valid certificate. Each variant is one check.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// Longer than is read.
    #[error("the token has {len} bytes; at most {TOKEN_BYTES_MAX} are read")]
    TooLarge {
        /// What was given, in bytes.
        len: usize,
    },
    /// Not three parts of base64url without padding.
    #[error("the token is not a compact JWT: three parts of base64url without padding")]
    NotCompact,
    /// The header is not strict JSON.
    #[error("the token's header is not a strict JSON object: {detail}")]
    HeaderMalformed {
        /// What is wrong.
        detail: String,
    },
    /// The header has a member other than `alg`, `typ` and `kid`. Any other either names a key or
    /// changes how the token is to be read (`jwk`, `jku`, `x5c`, `crit`, `zip`, ...).
    #[error("the token's header has the member {name:?}; only alg, typ and kid are allowed")]
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
    /// The type is not `epoch+jwt`.
    #[error("the token's typ is {typ}; it must be \"epoch+jwt\"")]
    Type {
        /// What was given, as JSON, cut to 64 characters.
        typ: String,
    },
    /// There is no `kid`.
    #[error("the token's header has no kid as text")]
    KeyIdMissing,
    /// The key is not in the set: fetch the set again (not often), then verify once more.
    #[error("the key {kid:?} is not in the key set; fetch the key set again")]
    UnknownKey {
        /// The `kid`, cut to 64 characters.
        kid: String,
    },
    /// The signature is not by that key over these bytes.
    #[error("the signature does not verify")]
    Signature,
    /// The claims are not strict JSON.
    #[error("the claims are not a strict JSON object: {detail}")]
    ClaimsMalformed {
        /// What is wrong.
        detail: String,
    },
    /// A claim is missing.
    #[error("the claim {claim} is missing")]
    ClaimMissing {
        /// Which claim.
        claim: &'static str,
    },
    /// A claim has another form.
    #[error("the claim {claim} is not {expected}")]
    ClaimMalformed {
        /// Which claim.
        claim: &'static str,
        /// The form expected.
        expected: &'static str,
    },
    /// A claim is out of bounds.
    #[error("the claims are out of bounds: {0}")]
    ClaimBounds(ClaimsError),
    /// The claim `fence` has a member that this version does not know.
    #[error("the claim fence has the unknown member {name:?}; use a version that knows it")]
    FenceMember {
        /// Which member, cut to 64 characters.
        name: String,
    },
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

/// A JSON value for a message, cut so that it cannot flood it.
pub(crate) fn shown(value: Option<&Value>) -> String {
    value.map_or_else(
        || "missing".to_owned(),
        |value| json::excerpt(&value.to_string()),
    )
}
