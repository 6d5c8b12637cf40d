//! One guarded write, as the caller states it, and its answer.

use epoch_core::{Certificate, Intent, Scope};

/// What the caller presents as proof of its grant.
#[derive(Debug, Clone, Copy)]
pub enum Presented<'a> {
    /// Nothing: always refused, and recorded.
    Nothing,
    /// A token, to be verified at the time of the write.
    Token(&'a str),
    /// A certificate verified before. Its expiry is not looked at again.
    Verified(&'a Certificate),
}

impl<'a> From<&'a str> for Presented<'a> {
    fn from(token: &'a str) -> Self {
        Self::Token(token)
    }
}

impl<'a> From<&'a Certificate> for Presented<'a> {
    fn from(certificate: &'a Certificate) -> Self {
        Self::Verified(certificate)
    }
}

impl<'a> From<Option<&'a str>> for Presented<'a> {
    fn from(token: Option<&'a str>) -> Self {
        token.map_or(Self::Nothing, Self::Token)
    }
}

/// One guarded write.
#[derive(Debug, Clone, Copy)]
pub struct Write<'a> {
    /// The resource's scope: from the resource's own mapping, never from the certificate.
    pub scope: &'a Scope,
    /// The proof.
    pub certificate: Presented<'a>,
    /// The caller's action. Without one, a retry is a second effect.
    pub intent: Option<&'a Intent>,
    /// The revision the change is based on; none skips that check.
    pub expected_revision: Option<u64>,
    /// The time, in milliseconds since 1970.
    pub now_ms: u64,
}

/// A write that took effect, now or before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admitted {
    /// What the business write returned.
    pub outcome: Vec<u8>,
    /// The scope's revision after it: the number of writes admitted in the scope.
    pub revision: u64,
    /// True when it took effect before: nothing was done this time.
    pub replayed: bool,
}
