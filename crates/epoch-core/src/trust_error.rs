//! Why a bundle or statement is not adopted.

use crate::bundle_terms::BundleRank;
use crate::id::ClusterId;
use crate::jws_error::JwsError;
use crate::keys::KeyId;

/// Why a bundle is not to be trusted. Each variant is one check.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TrustError {
    /// A signature does not verify.
    #[error("a signature of the bundle: {0}")]
    Jws(#[from] JwsError),
    /// There is no bundle in the chain.
    #[error("the chain has no bundle; fetch it again")]
    EmptyChain,
    /// Another cluster's.
    #[error("the bundle is of cluster {found}, expected {expected}; check the address and the pin")]
    OtherCluster {
        /// What was given.
        found: ClusterId,
        /// The cluster trusted.
        expected: ClusterId,
    },
    /// It names another root.
    #[error("the bundle names the root key {found}, expected {expected}; check the pin")]
    OtherRoot {
        /// What was given.
        found: KeyId,
        /// The root trusted.
        expected: KeyId,
    },
    /// The root key has to sign it, and did not.
    #[error(
        "bundle {rank} must be signed by the root key: nothing known leads to it; \
         fetch the chain from the last root-signed bundle"
    )]
    NotRootSigned {
        /// Which one.
        rank: BundleRank,
    },
    /// Somebody else signed.
    #[error("the bundle is signed by the key {kid}, which may not sign it; fetch the chain again")]
    UnknownSigner {
        /// The key.
        kid: KeyId,
    },
    /// The root signed it, but it is not newer than the one before it.
    #[error("bundle {rank} is not newer than {last}, which it follows; fetch the chain again")]
    NotNewer {
        /// Which one.
        rank: BundleRank,
        /// The one before.
        last: BundleRank,
    },
    /// Bundles are missing between.
    #[error(
        "bundle {rank} is not the next after {last}; fetch the chain from the last root-signed"
    )]
    NotNext {
        /// Which one.
        rank: BundleRank,
        /// The one before.
        last: BundleRank,
    },
    /// Too few nodes signed it.
    #[error("signatures by different nodes: {found}, needed: {needed}; do not accept the bundle")]
    TooFewNodes {
        /// How many nodes signed.
        found: usize,
        /// How many must.
        needed: usize,
    },
    /// Nodes may change keys and renew; the rest takes the root.
    #[error(
        "bundle {rank} changes more than its keys and dates, or was issued before the last; \
         only the root key may do that"
    )]
    TermsChanged {
        /// Which one.
        rank: BundleRank,
    },
    /// The newest offered is older than what is trusted.
    #[error(
        "the newest bundle offered is {offered}, {current} is trusted already; the node was \
         rolled back or lags: ask another one"
    )]
    Rollback {
        /// The newest offered.
        offered: BundleRank,
        /// The one trusted.
        current: BundleRank,
    },
    /// There are two bundles of one number.
    #[error(
        "there are two different bundles {rank}; stop and call an operator: \
         keys were stolen or disks rolled back"
    )]
    Fork {
        /// Their rank.
        rank: BundleRank,
    },
    /// The verifier has a plain key set.
    #[error("this verifier has a plain key set, no pinned root; give it the pin")]
    NotPinned,
    /// The verifier takes its keys from bundles.
    #[error("this verifier has a pinned root; give it bundles, not a plain key set")]
    Pinned,
}
