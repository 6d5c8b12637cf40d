//! How long a session may be relied on: pure arithmetic over the lease clock.

/// The part of a TTL by which the loss comes early: 1/50, from 20 ms to 500 ms. It covers clocks
/// that run at different speeds and the time a signal takes to be acted upon.
const MARGIN_PART: u64 = 50;
const MARGIN_MS_MIN: u64 = 20;
const MARGIN_MS_MAX: u64 = 500;
/// Keepalives go out this many times in a TTL, so that one or two may be lost.
const KEEPALIVES_PER_TTL: u64 = 3;

/// How long a session may be relied on.
///
/// Counted from the moment the last acknowledged message was *sent*: the cluster counts from
/// when it arrived, which is never earlier, so that the holder knows first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lease {
    sent_ms: u64,
    ttl_ms: u64,
}

impl Lease {
    pub(crate) fn new(sent_ms: u64, ttl_ms: u64) -> Self {
        Self { sent_ms, ttl_ms }
    }

    pub(crate) fn ttl_ms(&self) -> u64 {
        self.ttl_ms
    }

    /// From here on it is lost.
    pub(crate) fn ends_ms(&self) -> u64 {
        let margin = (self.ttl_ms / MARGIN_PART).clamp(MARGIN_MS_MIN, MARGIN_MS_MAX);
        self.sent_ms
            .saturating_add(self.ttl_ms.saturating_sub(margin))
    }

    pub(crate) fn is_lapsed(&self, now_ms: u64) -> bool {
        now_ms >= self.ends_ms()
    }

    /// When the next keepalive is due.
    pub(crate) fn keepalive_ms(&self) -> u64 {
        self.sent_ms
            .saturating_add(self.ttl_ms / KEEPALIVES_PER_TTL)
    }

    /// After a keepalive that was sent at `sent_ms` was acknowledged. An acknowledgement that
    /// arrives late never shortens it.
    #[must_use]
    pub(crate) fn renewed(self, sent_ms: u64) -> Self {
        Self {
            sent_ms: self.sent_ms.max(sent_ms),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_comes_before_the_ttl_counted_from_sending() {
        for ttl_ms in [1_000, 10_000, 86_400_000] {
            let lease = Lease::new(5_000, ttl_ms);
            assert!(lease.ends_ms() < 5_000 + ttl_ms);
            assert!(lease.ends_ms() >= 5_000 + ttl_ms - MARGIN_MS_MAX);
            assert!(!lease.is_lapsed(lease.ends_ms() - 1));
            assert!(lease.is_lapsed(lease.ends_ms()));
        }
    }

    #[test]
    fn renewal_counts_from_sending_and_never_backwards() {
        let lease = Lease::new(5_000, 10_000).renewed(8_000);
        assert_eq!(lease, Lease::new(8_000, 10_000));
        assert_eq!(lease.renewed(6_000), lease);
    }

    #[test]
    fn two_keepalives_may_fail_before_the_end() {
        let lease = Lease::new(0, 10_000);
        assert!(lease.keepalive_ms() * 2 < lease.ends_ms());
    }
}
