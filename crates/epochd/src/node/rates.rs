//! How many requests a second a principal may make: counted by the node that judges them, the leader
//! for all that it serves.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};

use epoch_core::Principal;
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};

/// Principals that are counted at once at most; beyond it all begin anew, which gives each at most
/// a second's requests more.
const COUNTED_MAX: usize = 10_000;

/// The rates of all principals that have a limit.
#[derive(Debug, Default)]
pub(crate) struct Rates(Mutex<BTreeMap<Principal, Counted>>);

#[derive(Debug)]
struct Counted {
    per_second: NonZeroU32,
    limiter: DefaultDirectRateLimiter,
}

impl Counted {
    fn new(per_second: NonZeroU32) -> Self {
        Self {
            per_second,
            limiter: RateLimiter::direct(Quota::per_second(per_second)),
        }
    }
}

impl Rates {
    /// Counts a request; false when it is one too many. As many as in a second may come at once.
    pub(crate) fn admits(&self, principal: &Principal, per_second: u32) -> bool {
        let Some(per_second) = NonZeroU32::new(per_second) else {
            return false;
        };
        let mut rates = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(counted) = rates.get(principal)
            && counted.per_second == per_second
        {
            return counted.limiter.check().is_ok();
        }
        if rates.len() >= COUNTED_MAX {
            rates.clear();
        }
        let counted = Counted::new(per_second);
        let admitted = counted.limiter.check().is_ok();
        rates.insert(principal.clone(), counted);
        admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_principal_has_its_own_rate_and_a_new_limit_begins_anew() {
        let rates = Rates::default();
        let [a, b] = ["a", "b"].map(|name| Principal::parse(name).unwrap());
        assert!(rates.admits(&a, 2) && rates.admits(&a, 2));
        assert!(!rates.admits(&a, 2));
        assert!(rates.admits(&b, 2));
        assert!(rates.admits(&a, 3));
        assert!(!rates.admits(&a, 0));
    }
}
