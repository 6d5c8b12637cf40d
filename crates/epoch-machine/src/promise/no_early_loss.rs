//! P6: no early loss.

use std::collections::BTreeMap;

use super::{Expiry, KeptAlive, Violation};

/// No session was gone before the TTL of its acknowledged keepalives had passed.
///
/// A keepalive counts from when it was sent, and an expiry from when it was seen, so that time on
/// the way makes no violation where there is none.
///
/// # Errors
/// The first session that was gone too early.
pub fn no_early_loss(keepalives: &[KeptAlive], expiries: &[Expiry]) -> Result<(), Violation> {
    let mut until = BTreeMap::new();
    for keepalive in keepalives {
        let until_ms = until.entry(keepalive.session).or_insert(0);
        *until_ms = keepalive
            .sent_ms
            .saturating_add(keepalive.ttl_ms)
            .max(*until_ms);
    }
    for &Expiry { session, seen_ms } in expiries {
        match until.get(&session) {
            Some(&until_ms) if seen_ms < until_ms => {
                return Err(Violation::EarlyLoss {
                    session,
                    seen_ms,
                    until_ms,
                });
            }
            Some(_) | None => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::promise::testing::session;

    fn kept(number: u64, sent_ms: u64) -> KeptAlive {
        KeptAlive {
            session: session(number),
            sent_ms,
            ttl_ms: 1_000,
        }
    }

    fn expiry(number: u64, seen_ms: u64) -> Expiry {
        Expiry {
            session: session(number),
            seen_ms,
        }
    }

    #[test]
    fn a_session_that_was_gone_before_its_time_is_found() {
        let kept = [kept(1, 500), kept(1, 100), kept(2, 0)];
        let good = [expiry(1, 1_500), expiry(2, 1_000), expiry(3, 0)];
        assert_eq!(no_early_loss(&kept, &good), Ok(()));
        for early in [expiry(1, 1_499), expiry(1, 50), expiry(2, 999)] {
            let found = no_early_loss(&kept, &[early]);
            assert!(
                matches!(found, Err(Violation::EarlyLoss { .. })),
                "{found:?}"
            );
        }
    }
}
