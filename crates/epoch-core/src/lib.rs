//! What a resource needs to refuse a late write: the names, the certificate and its verification,
//! and the one pure fencing decision.
//!
//! Everything here is synchronous and deterministic: no async, no network, no clock, no
//! randomness. The time is an argument wherever it matters, so a verdict can be reproduced.
//!
//! A resource holds a [`Verifier`] (public keys, from a plain key set or from trust bundles that
//! lead back to a pinned root), turns a token into a [`Certificate`] with it, and lets [`decide`]
//! judge each write inside its own atomic step.

#![deny(
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::wildcard_enum_match_arm
)]

mod barrier;
mod bundle;
mod bundle_error;
mod bundle_terms;
mod cached_verifier;
mod certificate;
mod decide;
mod error_chain;
mod fields;
mod grants_digest;
#[cfg(any(test, feature = "sign"))]
mod holder_key;
mod id;
mod intent;
mod json;
mod jws;
mod jws_error;
mod key_offer;
mod keys;
mod name;
mod pin;
mod proof;
mod proof_error;
mod reason;
mod refusal;
#[cfg(any(test, feature = "sign"))]
mod root_key;
#[cfg(any(test, feature = "sign"))]
mod sign;
mod signed_bundle;
mod statement;
mod thumbprint;
mod trust;
mod trust_error;
mod verify;
mod verify_error;

#[cfg(test)]
mod golden;
#[cfg(test)]
mod golden_trust;
#[cfg(test)]
mod mutation;
#[cfg(test)]
mod testing;

pub use barrier::{Barrier, BarrierError, Receipt};
pub use bundle::{BUNDLE_BYTES_MAX, BUNDLE_KEYS_MAX, BUNDLE_NODES_MAX, Bundle, BundleKey};
pub use bundle_error::BundleError;
pub use bundle_terms::{BUNDLE_AGE_S, BUNDLE_LIFETIME_S, BundleRank, BundleTerms};
pub use cached_verifier::{CACHED_BYTES_MAX, CACHED_CERTIFICATES_MAX, CachedVerifier};
pub use certificate::{
    AUDIENCE_BYTES_MAX, AUDIENCES_MAX, Certificate, Claims, ClaimsError, Grant, JTI_BYTES_MAX,
    TOKEN_BYTES_MAX, Validity, issuer,
};
pub use decide::{Advance, Attempt, Decision, Fence, Verdict, decide, decide_advance};
pub use error_chain::error_chain;
pub use fields::FieldError;
pub use grants_digest::GrantsDigest;
#[cfg(any(test, feature = "sign"))]
pub use holder_key::HolderKey;
pub use id::{
    ClusterId, Cursor, EPOCH_EXCLUSIVE_MAX, Epoch, GrantHash, IdError, Incarnation, NodeId, OpenId,
    Position, RequestId, SessionHash, SessionId,
};
pub use intent::{INTENT_ID_BYTES_MAX, Intent, IntentId, IntentRecord, PayloadDigest};
pub use jws::{PARTS_MAX, Signature, TextKind, compose};
pub use jws_error::JwsError;
pub use key_offer::{KeyOffer, OfferError};
pub use keys::{
    JWKS_BYTES_MAX, JWKS_KEYS_MAX, KeyId, KeySet, KeySetError, VerifyingKey, VerifyingKeyError,
};
pub use name::{
    HOLDER_BYTES_MAX, Holder, NameError, PRINCIPAL_BYTES_MAX, Principal, SCOPE_BYTES_MAX, Scope,
};
pub use pin::{Pin, PinError};
pub use proof::{
    PROOF_BYTES_MAX, PROOF_JTI_BYTES_MAX, PROOF_TYPE, PROOF_WINDOW_MS_DEFAULT,
    PROOFS_REMEMBERED_DEFAULT, Presented, ProofVerifier,
};
pub use proof_error::ProofError;
pub use reason::Reason;
pub use refusal::Refusal;
#[cfg(any(test, feature = "sign"))]
pub use root_key::{FirstTerms, ROOT_KEY_BYTES_MAX, RootKey, RootKeyError, RootKeyFileError};
#[cfg(any(test, feature = "sign"))]
pub use sign::{SigningKey, SigningKeyError};
pub use signed_bundle::SignedBundle;
pub use statement::{MAX_FUTURE_S_MAX, Statement, StatementError, StatementKind};
pub use thumbprint::{HOLDER_JWK_BYTES_MAX, HolderJwkError, Thumbprint};
pub use trust::{StoredTrustError, TRUST_BYTES_MAX, Trust};
pub use trust_error::TrustError;
pub use verify::{MAX_FUTURE_MS_DEFAULT, SKEW_MS_DEFAULT, Verifier};
pub use verify_error::VerifyError;
