//! P2: committed before seen.

use std::collections::BTreeSet;

use super::{Acquired, Committed, Violation};

/// Every answered grant is in the committed log.
///
/// `log` is every grant that was ever committed and applied, of all incarnations.
///
/// # Errors
/// The first answer that is not in the log.
pub fn committed_before_seen(answered: &[Acquired], log: &[Committed]) -> Result<(), Violation> {
    let log: BTreeSet<_> = log
        .iter()
        .map(|grant| {
            (
                &grant.scope,
                grant.incarnation,
                grant.epoch,
                grant.session,
                grant.request_id,
            )
        })
        .collect();
    let missing = answered.iter().find(|answer| {
        let key = (
            &answer.scope,
            answer.incarnation,
            answer.epoch,
            answer.session,
            answer.request_id,
        );
        !log.contains(&key)
    });
    match missing {
        None => Ok(()),
        Some(answered) => Err(Violation::NotCommitted {
            answered: Box::new(answered.clone()),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::promise::testing::{acquired, committed, of_request};

    #[test]
    fn an_answer_that_is_not_in_the_log_is_found() {
        let log = [committed("a", 1, 5, 0), committed("a", 2, 6, 0)];
        let good = [acquired("a", 2, 1..2), acquired("a", 1, 1..2)];
        assert_eq!(committed_before_seen(&good, &log), Ok(()));
        for bad in [
            acquired("a", 3, 1..2),
            acquired("b", 1, 1..2),
            of_request(2, acquired("a", 1, 1..2)),
        ] {
            let answered = [good[0].clone(), bad.clone()];
            assert_eq!(
                committed_before_seen(&answered, &log),
                Err(Violation::NotCommitted {
                    answered: Box::new(bad)
                })
            );
        }
    }
}
