//! All that a trust bundle says besides its keys.

use std::fmt;
use std::ops::RangeInclusive;

use crate::bundle_error::BundleError;
use crate::id::{ClusterId, EPOCH_EXCLUSIVE_MAX, Incarnation};
use crate::keys::VerifyingKey;

/// How long a renewed bundle may live, in seconds: 10 s to 10 years.
pub const BUNDLE_LIFETIME_S: RangeInclusive<u64> = 10..=3_653 * 86_400;
/// How long a resource may go without fetching again, in seconds: 1 s to 1 day.
pub const BUNDLE_AGE_S: RangeInclusive<u64> = 1..=86_400;

/// How new a bundle is: of two, the one of the higher incarnation, then of the higher sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BundleRank {
    /// The cluster's life.
    pub incarnation: Incarnation,
    /// The bundle's number in it.
    pub sequence: u64,
}

impl fmt::Display for BundleRank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of incarnation {}", self.sequence, self.incarnation)
    }
}

/// All that a bundle says besides its keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundleTerms {
    /// The cluster.
    pub cluster: ClusterId,
    /// The cluster's life: certificates of a lower one are void.
    pub incarnation: Incarnation,
    /// The bundle's number in that life, from 1 to 2^53 - 1.
    pub sequence: u64,
    /// The key that the operator keeps offline.
    pub root: VerifyingKey,
    /// `iat`: seconds since 1970, below 2^53.
    pub issued_at_s: u64,
    /// `exp`: seconds since 1970, above `issued_at_s`, below 2^53.
    pub expires_at_s: u64,
    /// How long a renewed bundle lives, in seconds ([`BUNDLE_LIFETIME_S`]).
    pub lifetime_s: u64,
    /// How long a resource may go without fetching again, and a new key waits before it signs, in
    /// seconds ([`BUNDLE_AGE_S`]); below `lifetime_s`.
    pub max_age_s: u64,
}

impl BundleTerms {
    /// Checks every bound.
    pub(crate) fn check(&self) -> Result<(), BundleError> {
        let whole = 0..=EPOCH_EXCLUSIVE_MAX - 1;
        in_bounds("sequence", self.sequence, 1..=EPOCH_EXCLUSIVE_MAX - 1)?;
        in_bounds("iat", self.issued_at_s, whole.clone())?;
        in_bounds("exp", self.expires_at_s, whole)?;
        in_bounds("lifetime", self.lifetime_s, BUNDLE_LIFETIME_S)?;
        in_bounds("max_age", self.max_age_s, BUNDLE_AGE_S)?;
        if self.expires_at_s <= self.issued_at_s {
            return Err(BundleError::ValidityEmpty {
                issued_at_s: self.issued_at_s,
                expires_at_s: self.expires_at_s,
            });
        }
        if self.max_age_s >= self.lifetime_s {
            return Err(BundleError::AgeNotBelowLifetime {
                max_age_s: self.max_age_s,
                lifetime_s: self.lifetime_s,
            });
        }
        Ok(())
    }
}

pub(crate) fn in_bounds(
    claim: &'static str,
    value: u64,
    bounds: RangeInclusive<u64>,
) -> Result<(), BundleError> {
    if bounds.contains(&value) {
        return Ok(());
    }
    let (min, max) = bounds.into_inner();
    Err(BundleError::OutOfBounds {
        claim,
        value,
        min,
        max,
    })
}
