//! Why something is not a trust bundle.

use crate::bundle::{BUNDLE_BYTES_MAX, BUNDLE_KEYS_MAX, BUNDLE_NODES_MAX};
use crate::fields::FieldError;
use crate::jws_error::JwsError;
use crate::keys::KeyId;

/// Why something is not a trust bundle. Each variant is one check.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BundleError {
    /// The signed text is not one.
    #[error(transparent)]
    Jws(#[from] JwsError),
    /// A header is written in another way than nodes write it, so its signature could not be kept
    /// without it.
    #[error(
        "a header of the bundle is not written as {{\"alg\",\"typ\",\"kid\"}} without spaces; \
         sign it with epochd's own tools"
    )]
    HeaderUnusual,
    /// The payload is not strict JSON.
    #[error("the bundle is not a strict JSON object: {detail}; fetch it again")]
    Malformed {
        /// What is wrong.
        detail: String,
    },
    /// A member cannot be read.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// The payload is too long.
    #[error("the bundle has {len} bytes; at most {BUNDLE_BYTES_MAX} are read; drop old keys")]
    TooLarge {
        /// What was given, in bytes.
        len: usize,
    },
    /// A number is out of bounds.
    #[error("{claim} of the bundle is {value}; it must be from {min} to {max}")]
    OutOfBounds {
        /// Which number.
        claim: &'static str,
        /// What was given.
        value: u64,
        /// The lowest allowed.
        min: u64,
        /// The highest allowed.
        max: u64,
    },
    /// `exp` is not after `iat`.
    #[error("exp {expires_at_s} is not after iat {issued_at_s}; give the bundle a longer life")]
    ValidityEmpty {
        /// `iat`, in seconds.
        issued_at_s: u64,
        /// `exp`, in seconds.
        expires_at_s: u64,
    },
    /// Resources might fetch again only after the bundle's end.
    #[error("max_age {max_age_s} s is not below lifetime {lifetime_s} s; shorten it")]
    AgeNotBelowLifetime {
        /// `max_age`, in seconds.
        max_age_s: u64,
        /// `lifetime`, in seconds.
        lifetime_s: u64,
    },
    /// There are no keys, or too many.
    #[error("the bundle has {count} keys; it must have 1 to {BUNDLE_KEYS_MAX}; retire old ones")]
    KeyCount {
        /// How many.
        count: usize,
    },
    /// The keys are of too many nodes.
    #[error("the bundle has keys of {count} nodes; at most {BUNDLE_NODES_MAX} are allowed")]
    TooManyNodes {
        /// How many.
        count: usize,
    },
    /// One key stands twice.
    #[error("the key {kid} stands twice in the bundle; give each key once")]
    KeyTwice {
        /// The key.
        kid: KeyId,
    },
    /// The root key stands among the nodes' keys.
    #[error("the root key stands among the nodes' keys; a node must have a key of its own")]
    RootAmongKeys,
    /// The keys are not in order.
    #[error("the bundle's keys are not ordered by node, since and x; sort them")]
    KeyOrder,
    /// The successor would be older.
    #[error("iat {issued_at_s} is before the last bundle's {earliest_s}; check the clock")]
    IssuedBefore {
        /// `iat`, in seconds.
        issued_at_s: u64,
        /// The last bundle's `iat`, in seconds.
        earliest_s: u64,
    },
}
