//! How long a session may be relied on: pure arithmetic over the lease clock.

/// The part of a TTL by which the loss comes early: 1/50, from 20 ms to 500 ms. It covers clocks
/// that run at different speeds and the time a signal takes to be acted upon.
const MARGIN_PART: u64 = 50;
const MARGIN_MS_MIN: u64 = 20;
const MARGIN_MS_MAX: u64 = 500;
/// Keepalives go out this many times in a TTL, and an answer is awaited for as long as until the
/// next: two in a row may be lost.
const KEEPALIVES_PER_TTL: u64 = 4;
/// Keepalives go out at whole multiples of this: those of many sessions together.
const SLOT_MS: u64 = 100;

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

    /// How long the answer to a keepalive is awaited before another node is asked. One that comes
    /// later counts as well, if it comes before the lease ends.
    pub(crate) fn attempt_ms(&self) -> u64 {
        self.ttl_ms / KEEPALIVES_PER_TTL
    }

    /// When the last acknowledged message was sent.
    pub(crate) fn sent_ms(&self) -> u64 {
        self.sent_ms
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

/// When a session's keepalives are due: in one slot of each period. Which one is drawn, so that
/// many sessions do not ask at once, also after they all had to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pace {
    period_ms: u64,
    phase_ms: u64,
}

impl Pace {
    /// `draw` is any number: sessions with numbers far and wide are spread evenly.
    pub(crate) fn new(ttl_ms: u64, draw: u64) -> Self {
        let slots = (ttl_ms / KEEPALIVES_PER_TTL / SLOT_MS).max(1);
        Self {
            period_ms: slots * SLOT_MS,
            phase_ms: draw % slots * SLOT_MS,
        }
    }

    /// The session's first slot after `asked_ms`: at most a quarter of the TTL later.
    pub(crate) fn after(&self, asked_ms: u64) -> u64 {
        let since_slot = asked_ms.saturating_sub(self.phase_ms) % self.period_ms;
        (asked_ms - since_slot).saturating_add(self.period_ms)
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
    fn the_next_keepalive_is_due_early_enough_that_two_may_be_lost() {
        for ttl_ms in [1_000, 1_050, 10_000, 86_400_000] {
            for draw in 0..100 {
                let pace = Pace::new(ttl_ms, draw);
                for asked_ms in (200_000..201_000).step_by(7) {
                    let due_ms = pace.after(asked_ms);
                    assert!(due_ms > asked_ms && due_ms <= asked_ms + ttl_ms / 4);
                    let lease = Lease::new(asked_ms, ttl_ms);
                    let third_ms = due_ms + 2 * lease.attempt_ms();
                    assert!(third_ms + ttl_ms / 5 < lease.ends_ms());
                }
            }
        }
    }

    #[test]
    fn sessions_that_asked_at_once_are_due_evenly_and_in_whole_slots() {
        let mut due = std::collections::BTreeMap::new();
        for draw in 0..250 {
            *due.entry(Pace::new(10_000, draw).after(50_123))
                .or_insert(0_u32) += 1;
        }
        assert_eq!(due.len(), 25);
        assert!(due.keys().all(|due_ms| due_ms % SLOT_MS == 0), "{due:?}");
        assert!(due.values().all(|sessions| *sessions == 10), "{due:?}");
    }

    #[test]
    fn a_keepalive_sent_in_its_slot_is_followed_by_one_a_period_later() {
        let pace = Pace::new(10_000, 4);
        let due_ms = pace.after(50_123);
        assert_eq!(pace.after(due_ms), due_ms + 2_500);
        assert_eq!(pace.after(due_ms + 2), due_ms + 2_500);
    }
}
