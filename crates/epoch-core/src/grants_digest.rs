//! A digest of all grants of a session, so that a keepalive can tell whether both sides believe in
//! the same ones.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::digest::{Context, SHA256};

use crate::id::{Epoch, IdError};
use crate::name::Scope;

/// The digest of a set of grants: for each, the first 8 bytes of SHA-256 over the scope, a zero
/// byte and the epoch in decimal, as a big-endian number; their sum modulo 2^64, written in 16
/// lower-case hexadecimal digits. A sum, so that it follows each change at a constant cost.
///
/// It finds differences that come about by themselves; who wants to can forge one for its own
/// session, and gains nothing by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GrantsDigest(u64);

impl GrantsDigest {
    /// With one grant more.
    #[must_use]
    pub fn with(self, scope: &str, epoch: Epoch) -> Self {
        Self(self.0.wrapping_add(one(scope, epoch)))
    }

    /// With one grant less.
    #[must_use]
    pub fn without(self, scope: &str, epoch: Epoch) -> Self {
        Self(self.0.wrapping_sub(one(scope, epoch)))
    }
}

fn one(scope: &str, epoch: Epoch) -> u64 {
    let mut context = Context::new(&SHA256);
    context.update(scope.as_bytes());
    context.update(&[0]);
    context.update(epoch.to_string().as_bytes());
    let digest = context.finish();
    digest
        .as_ref()
        .iter()
        .take(8)
        .fold(0, |sum, byte| (sum << 8) | u64::from(*byte))
}

impl<'a> FromIterator<(&'a Scope, Epoch)> for GrantsDigest {
    fn from_iter<I: IntoIterator<Item = (&'a Scope, Epoch)>>(grants: I) -> Self {
        let grants = grants.into_iter();
        grants.fold(Self::default(), |sum, (scope, epoch)| {
            sum.with(scope.as_str(), epoch)
        })
    }
}

impl fmt::Display for GrantsDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for GrantsDigest {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        let digest = u64::from_str_radix(text, 16).map(Self);
        // One digest has one spelling: no sign, no upper case, no fewer digits.
        digest
            .ok()
            .filter(|digest| digest.to_string() == text)
            .ok_or_else(|| IdError::malformed("grants", text, "16 lower-case hexadecimal digits"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch(value: u64) -> Epoch {
        Epoch::new(value).unwrap()
    }

    #[test]
    fn the_digest_is_the_documented_one() {
        // The first 8 bytes of SHA-256 of "a\0" and "1", by another implementation.
        let digest = GrantsDigest::default().with("a", epoch(1));
        assert_eq!(digest.to_string(), "05a9c569a185ac60");
        assert_eq!(GrantsDigest::default().to_string(), "0000000000000000");
    }

    #[test]
    fn order_does_not_matter_and_what_is_taken_out_is_gone() {
        let digest = GrantsDigest::default()
            .with("a", epoch(1))
            .with("b", epoch(2));
        assert_eq!(
            GrantsDigest::default()
                .with("b", epoch(2))
                .with("a", epoch(1)),
            digest
        );
        assert_eq!(
            digest.without("a", epoch(1)).without("b", epoch(2)),
            GrantsDigest::default()
        );
        assert_ne!(
            GrantsDigest::default()
                .with("a", epoch(2))
                .with("b", epoch(1)),
            digest
        );
    }

    #[test]
    fn a_digest_has_one_spelling() {
        let digest = GrantsDigest::default().with("a", epoch(1));
        assert_eq!(digest.to_string().parse(), Ok(digest));
        for text in [
            "",
            "0",
            "+000000000000000",
            "000000000000000G",
            "ABCDEF0123456789",
        ] {
            assert!(text.parse::<GrantsDigest>().is_err(), "{text:?}");
        }
    }
}
