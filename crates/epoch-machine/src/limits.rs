//! How much a principal may have.

/// How much a principal may have; what is `None` is bounded by the cluster alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// Live sessions.
    pub sessions: Option<u32>,
    /// Current grants together with waits, each of which can become one at any time.
    pub grants: Option<u32>,
    /// Waits.
    pub waits: Option<u32>,
    /// Requests a second. Only kept here: what takes the requests in counts them.
    pub requests_per_second: Option<u32>,
}

impl Limits {
    /// Whether nothing is limited.
    #[must_use]
    pub fn are_none(&self) -> bool {
        *self == Self::default()
    }
}

/// What a principal has: it follows from its sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Live sessions.
    pub sessions: u32,
    /// Current grants.
    pub grants: u32,
    /// Waits.
    pub waits: u32,
}

impl Usage {
    // Each part is at most one of the bounds of `state.rs`, all far below 2^32.

    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            sessions: self.sessions.saturating_add(other.sessions),
            grants: self.grants.saturating_add(other.grants),
            waits: self.waits.saturating_add(other.waits),
        }
    }

    pub(crate) fn minus(self, other: Self) -> Self {
        Self {
            sessions: self.sessions.saturating_sub(other.sessions),
            grants: self.grants.saturating_sub(other.grants),
            waits: self.waits.saturating_sub(other.waits),
        }
    }

    pub(crate) fn is_none(self) -> bool {
        self == Self::default()
    }
}
