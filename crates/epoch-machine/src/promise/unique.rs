//! P1: unique and rising.

use super::{Acquired, Violation};

/// In a scope no two grants share an epoch; and if one acquire returned before another was sent,
/// its (incarnation, epoch) is smaller, unless both were answered with the same grant.
///
/// The same (session, request id) with the same epoch is one grant, however often it was answered.
///
/// A rollback of the cluster's own disks can make a grant current again that had ended, and a retry
/// of its request is then answered with it, after higher ones. That is no new grant, and a fence
/// refuses it. In a history that spans rollbacks, such a record's `sent` must therefore be when its
/// request was first sent; in any other, when this try was, which finds more.
///
/// Takes O(n log n) time for n records.
///
/// # Errors
/// The first violation in order of scope.
pub fn unique_and_rising(history: &[Acquired]) -> Result<(), Violation> {
    if let Some(record) = history.iter().find(|record| record.returned < record.sent) {
        return Err(Violation::Backwards {
            record: Box::new(record.clone()),
        });
    }
    unique(history)?;
    rising(history)
}

fn unique(history: &[Acquired]) -> Result<(), Violation> {
    let mut by_epoch: Vec<&Acquired> = history.iter().collect();
    by_epoch.sort_unstable_by_key(|record| (&record.scope, record.incarnation, record.epoch));
    for (first, second) in by_epoch.iter().zip(by_epoch.iter().skip(1)) {
        let same_epoch = first.scope == second.scope && rank(first) == rank(second);
        let same_grant = first.session == second.session && first.request_id == second.request_id;
        if same_epoch && !same_grant {
            return Err(Violation::Twice {
                first: Box::new((*first).clone()),
                second: Box::new((*second).clone()),
            });
        }
    }
    Ok(())
}

fn rising(history: &[Acquired]) -> Result<(), Violation> {
    let mut by_sent: Vec<&Acquired> = history.iter().collect();
    by_sent.sort_unstable_by_key(|record| (&record.scope, record.sent));
    let mut by_returned: Vec<&Acquired> = history.iter().collect();
    by_returned.sort_unstable_by_key(|record| (&record.scope, record.returned));

    // The highest of those in the same scope that returned before the record was sent.
    let mut highest: Option<&Acquired> = None;
    let mut returned = by_returned.into_iter().peekable();
    for later in by_sent {
        highest = highest.filter(|highest| highest.scope == later.scope);
        let before =
            |record: &&Acquired| (&record.scope, record.returned) < (&later.scope, later.sent);
        while let Some(record) = returned.next_if(before) {
            let is_higher = highest.is_none_or(|highest| rank(record) > rank(highest));
            if record.scope == later.scope && is_higher {
                highest = Some(record);
            }
        }
        if let Some(earlier) = highest.filter(|earlier| rank(earlier) > rank(later)) {
            return Err(Violation::NotRising {
                earlier: Box::new(earlier.clone()),
                later: Box::new(later.clone()),
            });
        }
    }
    Ok(())
}

fn rank(record: &Acquired) -> (epoch_core::Incarnation, epoch_core::Epoch) {
    (record.incarnation, record.epoch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::promise::testing::{acquired, in_incarnation, of_request};

    #[test]
    fn a_good_history_passes() {
        let history = [
            acquired("a", 5, 10..20),
            // At the same time as the one before: either order is right.
            of_request(2, acquired("a", 4, 15..30)),
            of_request(3, acquired("a", 6, 21..40)),
            // The same answer again.
            of_request(3, acquired("a", 6, 50..60)),
            of_request(4, acquired("b", 1, 70..80)),
            in_incarnation(2, of_request(5, acquired("a", 1, 90..95))),
        ];
        assert_eq!(unique_and_rising(&history), Ok(()));
    }

    #[test]
    fn an_epoch_given_twice_is_found_among_many() {
        let mut history: Vec<_> = (1..5_000)
            .zip(["a", "b", "c"].into_iter().cycle())
            .map(|(n, scope)| of_request(n, acquired(scope, n, n * 2..n * 2 + 1)))
            .collect();
        assert_eq!(unique_and_rising(&history), Ok(()));
        let mut again = history[3_000].clone();
        again.request_id = epoch_core::RequestId::new(77_777).ok();
        again.returned = u64::MAX;
        history.insert(1_000, again);
        assert!(matches!(
            unique_and_rising(&history),
            Err(Violation::Twice { .. })
        ));
    }

    #[test]
    fn a_lower_epoch_after_a_higher_one_is_found() {
        let history = [
            acquired("a", 7, 10..20),
            of_request(2, acquired("b", 9, 11..12)),
            of_request(3, acquired("a", 6, 21..22)),
        ];
        let Err(Violation::NotRising { earlier, later }) = unique_and_rising(&history) else {
            panic!("not found");
        };
        assert_eq!((*earlier, *later), (history[0].clone(), history[2].clone()));
    }

    #[test]
    fn a_lower_epoch_is_found_though_a_lower_one_returned_in_between() {
        let history = [
            acquired("a", 9, 10..20),
            of_request(2, acquired("a", 5, 15..40)),
            of_request(3, acquired("a", 7, 50..60)),
        ];
        assert!(matches!(
            unique_and_rising(&history),
            Err(Violation::NotRising { .. })
        ));
    }

    #[test]
    fn a_lower_incarnation_after_a_higher_one_is_found() {
        let history = [
            in_incarnation(2, acquired("a", 1, 10..20)),
            of_request(2, acquired("a", 9, 21..22)),
        ];
        assert!(matches!(
            unique_and_rising(&history),
            Err(Violation::NotRising { .. })
        ));
    }

    #[test]
    fn a_record_that_returned_before_it_was_sent_is_no_history() {
        let mut record = acquired("a", 1, 10..20);
        record.returned = 9;
        assert!(matches!(
            unique_and_rising(&[record]),
            Err(Violation::Backwards { .. })
        ));
    }
}
