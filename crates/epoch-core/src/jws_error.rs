//! Why a signed text is not one.

use crate::jws::PARTS_MAX;
use crate::keys::KeyId;

/// Why a text is not one of its kind, or a signature does not hold. Each variant is one check.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JwsError {
    /// Longer than is read.
    #[error("the token has {len} bytes; at most {max} are read")]
    TooLarge {
        /// What was given, in bytes.
        len: usize,
        /// The bound, in bytes.
        max: usize,
    },
    /// More parts than a cluster has nodes.
    #[error("the token has more than {PARTS_MAX} parts; ask for fewer signatures")]
    TooManyParts,
    /// Nobody signed.
    #[error("there is no signature; collect one at least")]
    NoSignature,
    /// Not three parts of base64url without padding.
    #[error("the token is not a compact JWT: three parts of base64url without padding")]
    NotCompact,
    /// Two parts sign different payloads.
    #[error("the token's parts have different payloads; all must sign the same bytes")]
    PayloadsDiffer,
    /// One key signs twice.
    #[error("the key {kid} signs twice; give each key's part once")]
    KeyTwice {
        /// The key.
        kid: KeyId,
    },
    /// The header is not strict JSON.
    #[error("the token's header is not a strict JSON object: {detail}")]
    HeaderMalformed {
        /// What is wrong.
        detail: String,
    },
    /// The header has a member other than `alg`, `typ` and `kid`. Any other either names a key or
    /// changes how the token is to be read (`jwk`, `jku`, `x5c`, `crit`, `zip`, ...).
    #[error("the token's header has the member {name:?}, which is not allowed there")]
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
    /// The type is another one.
    #[error("the token's typ is {typ}; it must be {expected:?}")]
    Type {
        /// What was given, as JSON, cut to 64 characters.
        typ: String,
        /// The type expected.
        expected: &'static str,
    },
    /// There is no `kid`, or it is not the thumbprint of a key.
    #[error("the token's kid is {kid}; it must be a key's thumbprint as base64url")]
    KeyId {
        /// What was given, as JSON, cut to 64 characters.
        kid: String,
    },
    /// The signature is not by that key over these bytes.
    #[error("the signature of the key {kid} does not verify; do not accept it")]
    Signature {
        /// The key.
        kid: KeyId,
    },
}
