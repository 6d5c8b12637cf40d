//! What a resource needs to refuse a late write: the names, the certificate and its verification,
//! and the one pure fencing decision.
//!
//! Everything here is synchronous and deterministic: no async, no network, no clock, no
//! randomness. The time is an argument wherever it matters, so a verdict can be reproduced.
//!
//! A resource holds a [`Verifier`] (the cluster's id and public keys), turns a token into a
//! [`Certificate`] with it, and lets [`decide`] judge each write inside its own atomic step.

#![deny(
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::wildcard_enum_match_arm
)]

mod barrier;
mod certificate;
mod decide;
mod error_chain;
mod fields;
mod grants_digest;
mod id;
mod intent;
mod json;
mod keys;
mod name;
mod reason;
mod refusal;
#[cfg(any(test, feature = "sign"))]
mod sign;
mod verify;
mod verify_error;

#[cfg(test)]
mod golden;
#[cfg(test)]
mod testing;

pub use barrier::{Barrier, BarrierError, Receipt};
pub use certificate::{
    AUDIENCE_BYTES_MAX, AUDIENCES_MAX, CONFIRMATION_BYTES_MAX, Certificate, Claims, ClaimsError,
    Grant, JTI_BYTES_MAX, TOKEN_BYTES_MAX, TOKEN_TYPE, Validity, issuer,
};
pub use decide::{Advance, Attempt, Decision, Fence, Verdict, decide, decide_advance};
pub use error_chain::error_chain;
pub use grants_digest::GrantsDigest;
pub use id::{
    ClusterId, Cursor, EPOCH_EXCLUSIVE_MAX, Epoch, GrantHash, IdError, Incarnation, NodeId, OpenId,
    Position, RequestId, SessionHash, SessionId,
};
pub use intent::{INTENT_ID_BYTES_MAX, Intent, IntentId, IntentRecord, PayloadDigest};
pub use keys::{
    JWKS_BYTES_MAX, JWKS_KEYS_MAX, KeyId, KeySet, KeySetError, VerifyingKey, VerifyingKeyError,
};
pub use name::{HOLDER_BYTES_MAX, Holder, NameError, SCOPE_BYTES_MAX, Scope};
pub use reason::Reason;
pub use refusal::Refusal;
#[cfg(any(test, feature = "sign"))]
pub use sign::{SigningKey, SigningKeyError};
pub use verify::{MAX_FUTURE_MS_DEFAULT, SKEW_MS_DEFAULT, Verifier};
pub use verify_error::VerifyError;
