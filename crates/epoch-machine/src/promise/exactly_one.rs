//! P3: exactly one.

use super::{Acquired, Violation};

/// One (session, request id) has at most one (scope, incarnation, epoch).
///
/// Answers from before and after a rollback of the cluster's own disks are two histories: no
/// promise spans them.
///
/// # Errors
/// The first violation in order of session and request id.
pub fn exactly_one(history: &[Acquired]) -> Result<(), Violation> {
    // No request asked for a transferred grant.
    let requested = history.iter().filter(|record| record.request_id.is_some());
    let mut by_request: Vec<&Acquired> = requested.collect();
    by_request.sort_unstable_by_key(|record| (record.session, record.request_id));
    for (first, second) in by_request.iter().zip(by_request.iter().skip(1)) {
        let same_request = first.session == second.session && first.request_id == second.request_id;
        let same_grant = first.scope == second.scope
            && first.incarnation == second.incarnation
            && first.epoch == second.epoch;
        if same_request && !same_grant {
            return Err(Violation::MoreThanOne {
                first: Box::new((*first).clone()),
                second: Box::new((*second).clone()),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::promise::testing::{acquired, of_request};

    #[test]
    fn a_second_epoch_for_one_request_is_found() {
        let good = vec![
            acquired("a", 1, 1..2),
            of_request(2, acquired("a", 2, 3..4)),
            acquired("a", 1, 5..6),
        ];
        assert_eq!(exactly_one(&good), Ok(()));
        for bad in [acquired("a", 3, 7..8), acquired("b", 1, 7..8)] {
            let mut history = good.clone();
            history.insert(1, bad);
            assert!(matches!(
                exactly_one(&history),
                Err(Violation::MoreThanOne { .. })
            ));
        }
    }
}
