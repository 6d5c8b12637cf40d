//! Why a proof of possession is refused.

use crate::fields::FieldError;
use crate::jws_error::JwsError;
use crate::proof::{PROOF_BYTES_MAX, PROOF_JTI_BYTES_MAX};
use crate::thumbprint::{HolderJwkError, Thumbprint};

/// Why a proof of possession is refused. Each variant is one check.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProofError {
    /// The certificate names no key of the holder.
    #[error("the certificate is bound to no key; open the session with one")]
    NotBound,
    /// Longer than is read.
    #[error("the proof has {len} bytes; at most {PROOF_BYTES_MAX} are read")]
    TooLarge {
        /// What was given, in bytes.
        len: usize,
    },
    /// Not a compact JWT, or a header member is wrong.
    #[error("the proof: {0}")]
    Jws(#[from] JwsError),
    /// The algorithm is not that of the key.
    #[error("the proof's alg is {alg}; it must be {expected:?}, that of its key")]
    Algorithm {
        /// What was given, as JSON, cut to 64 characters.
        alg: String,
        /// What fits the key.
        expected: &'static str,
    },
    /// The header's key is none.
    #[error("the proof's jwk: {0}")]
    Jwk(#[from] HolderJwkError),
    /// It is by another key than the certificate names.
    #[error(
        "the proof is by the key {found}, the certificate is bound to {expected}; use that key"
    )]
    OtherKey {
        /// Who made the proof.
        found: Thumbprint,
        /// Whom the certificate names.
        expected: Thumbprint,
    },
    /// The signature is not by that key over these bytes.
    #[error("the proof's signature does not verify; sign it with the key in its jwk")]
    Signature,
    /// The claims are not strict JSON.
    #[error("the proof's claims are not a strict JSON object: {detail}")]
    Malformed {
        /// What is wrong.
        detail: String,
    },
    /// A claim cannot be read.
    #[error("the proof: {0}")]
    Field(#[from] FieldError),
    /// `jti` is empty or too long.
    #[error("the proof's jti has {len} bytes; give it 1 to {PROOF_JTI_BYTES_MAX}")]
    JtiLength {
        /// What was given, in bytes.
        len: usize,
    },
    /// It is for another method.
    #[error("the proof is for the method {found:?}, not {expected:?}; make one for this request")]
    Method {
        /// What was given, cut to 64 characters.
        found: String,
        /// The request's.
        expected: String,
    },
    /// It is for another URL.
    #[error("the proof is for {found:?}, not {expected:?}; make one for this request")]
    Url {
        /// What was given, cut to 64 characters.
        found: String,
        /// The request's, cut to 64 characters.
        expected: String,
    },
    /// It is for another certificate.
    #[error("the proof is for another certificate (ath); make one for this request")]
    OtherCertificate,
    /// It was made too long ago, or in the future.
    #[error(
        "the proof is of {issued_at_s} s, now is {now_ms} ms; it must be within {window_ms} ms: \
         make a fresh one, and check the clocks"
    )]
    OutOfWindow {
        /// `iat`, in seconds.
        issued_at_s: u64,
        /// The verifier's time, in milliseconds.
        now_ms: u64,
        /// How far they may lie apart, in milliseconds.
        window_ms: u64,
    },
    /// It was used before.
    #[error("the proof was used before; make a fresh one, with a new jti, for every request")]
    Replayed,
    /// So many proofs are remembered that a replay could not be told any more.
    #[error("{entries} proofs are remembered, no more can be; try again within a minute")]
    ReplayCacheFull {
        /// How many.
        entries: usize,
    },
}
