//! The epoch rule: a hybrid logical clock per scope.

use epoch_core::Epoch;

/// Bits below the millisecond: room for 1,024 handovers a millisecond in one scope.
const COUNTER_BITS: u32 = 10;

/// The lowest epoch that replicated time `now_ms` allows, less one. `None` from the year 2248 on.
pub(crate) fn floor(now_ms: u64) -> Option<u64> {
    // checked_shl checks the distance only, not what is shifted out.
    now_ms.checked_mul(1 << COUNTER_BITS)
}

/// The epoch of a new grant: above the scope's last one, and above every epoch of every scope
/// that was granted at an earlier time. The second part is what keeps epochs rising when the
/// state that held `last` is lost to a restore or a rolled-back disk.
///
/// `None` when there is no such epoch below 2^53: never a wrap.
pub(crate) fn next(last: Option<Epoch>, now_ms: u64) -> Option<Epoch> {
    let last = last.map_or(0, Epoch::get);
    let next = last.max(floor(now_ms)?).checked_add(1)?;
    Epoch::new(next).ok()
}

/// Whether a free scope needs no row: its next epoch is above `last` without one.
pub(crate) fn forgettable(last: Epoch, now_ms: u64) -> bool {
    floor(now_ms).is_some_and(|floor| last.get() <= floor)
}

#[cfg(test)]
mod tests {
    use epoch_core::EPOCH_EXCLUSIVE_MAX;

    use super::*;

    #[test]
    fn epochs_rise_within_a_millisecond_and_across() {
        let first = next(None, 1_000).unwrap();
        assert_eq!(first.get(), (1_000 << 10) + 1);
        let second = next(Some(first), 1_000).unwrap();
        assert_eq!(second.get(), first.get() + 1);
        let third = next(Some(second), 1_001).unwrap();
        assert_eq!(third.get(), (1_001 << 10) + 1);
    }

    #[test]
    fn a_step_back_of_time_does_not_lower_an_epoch() {
        let last = next(None, 5_000).unwrap();
        assert!(next(Some(last), 1).unwrap() > last);
    }

    #[test]
    fn epochs_end_below_2_pow_53_without_a_wrap() {
        let last = Epoch::new(EPOCH_EXCLUSIVE_MAX - 1).unwrap();
        assert_eq!(next(Some(last), 0), None);
        assert_eq!(next(None, 1 << 43), None);
        assert_eq!(next(None, u64::MAX), None);
        assert!(next(None, (1 << 43) - 1).is_some());
    }

    #[test]
    fn a_forgotten_scope_comes_back_higher() {
        let last = next(None, 1_000).unwrap();
        assert!(!forgettable(last, 1_000));
        assert!(forgettable(last, 1_001));
        assert!(next(None, 1_001).unwrap() > last);
    }
}
