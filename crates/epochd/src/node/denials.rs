//! Calls that were denied, for operators: in the log, and the latest in memory.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};

use epoch_core::{Principal, Reason};
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};

use crate::clock;

/// Denials remembered at most.
const KEPT_MAX: usize = 1_024;
/// Of what a denied call names, so many bytes are remembered.
const TARGET_BYTES_MAX: usize = 256;
/// Lines in the log a second at most, so that nobody can fill a disk by asking.
const LOGGED_PER_SECOND: NonZeroU32 = NonZeroU32::new(20).expect("not zero");

/// One denial.
#[derive(Debug, Clone)]
pub(crate) struct Denial {
    /// Rises by one with each, from 1 at the process's start.
    pub(crate) number: u64,
    pub(crate) time_ms: u64,
    pub(crate) principal: Option<Principal>,
    pub(crate) call: &'static str,
    /// What it was about, as far as it named something; cut at [`TARGET_BYTES_MAX`].
    pub(crate) target: String,
    pub(crate) reason: Reason,
}

/// The latest denials of this node.
#[derive(Debug)]
pub(crate) struct Denials {
    kept: Mutex<Kept>,
    logged: DefaultDirectRateLimiter,
}

#[derive(Debug, Default)]
struct Kept {
    /// Oldest first.
    denials: VecDeque<Denial>,
    /// How many there have been.
    count: u64,
}

impl Default for Denials {
    fn default() -> Self {
        Self {
            kept: Mutex::default(),
            logged: RateLimiter::direct(Quota::per_second(LOGGED_PER_SECOND)),
        }
    }
}

impl Denials {
    /// Of calls that come too fast, one after another of one principal, only the first is kept: they
    /// would push out all else.
    pub(crate) fn record(
        &self,
        principal: Option<&Principal>,
        call: &'static str,
        mut target: String,
        reason: Reason,
    ) {
        target.truncate(target.floor_char_boundary(TARGET_BYTES_MAX));
        if self.logged.check().is_ok() {
            let principal = principal.map(Principal::as_str);
            tracing::warn!(audit = true, principal, call, target, %reason, "denied");
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let again = kept.denials.back().is_some_and(|last| {
            last.reason == Reason::RateLimited
                && reason == Reason::RateLimited
                && last.principal.as_ref() == principal
        });
        if again {
            return;
        }
        kept.count += 1;
        let denial = Denial {
            number: kept.count,
            time_ms: clock::wall_ms(),
            principal: principal.cloned(),
            call,
            target,
            reason,
        };
        if kept.denials.len() == KEPT_MAX {
            kept.denials.pop_front();
        }
        kept.denials.push_back(denial);
    }

    /// The newest, those below the number `before` if it is given; whether there are more.
    pub(crate) fn latest(&self, before: Option<u64>, limit: usize) -> (Vec<Denial>, bool) {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let mut older = kept
            .denials
            .iter()
            .rev()
            .filter(|denial| before.is_none_or(|before| denial.number < before));
        let page: Vec<_> = older.by_ref().take(limit).cloned().collect();
        (page, older.next().is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_are_kept_and_paged() {
        let denials = Denials::default();
        for _ in 0..KEPT_MAX + 5 {
            let target = String::new();
            denials.record(None, "EpochService.Get", target, Reason::Unauthenticated);
        }
        let (page, more) = denials.latest(None, 2);
        let numbers: Vec<_> = page.iter().map(|denial| denial.number).collect();
        assert_eq!((numbers, more), (vec![1_029, 1_028], true));
        let (page, more) = denials.latest(Some(8), 5);
        let numbers: Vec<_> = page.iter().map(|denial| denial.number).collect();
        assert_eq!((numbers, more), (vec![7, 6], false));
    }

    #[test]
    fn what_is_named_is_cut_and_a_burst_of_one_caller_is_one_denial() {
        let denials = Denials::default();
        let [a, b] = ["a", "b"].map(|name| Principal::parse(name).unwrap());
        let limited = |who| {
            denials.record(
                Some(who),
                "EpochService.Get",
                "x".to_owned(),
                Reason::RateLimited,
            );
        };
        for who in [&a, &a, &b, &b, &a] {
            limited(who);
        }
        let long = "é".repeat(200);
        denials.record(Some(&a), "EpochService.Get", long, Reason::PermissionDenied);
        let (kept, _) = denials.latest(None, 10);
        let of = |denial: &Denial| denial.principal.clone().unwrap();
        let who: Vec<_> = kept.iter().map(of).collect();
        assert_eq!(who, [&a, &a, &b, &a].map(Clone::clone));
        assert_eq!(kept[0].target, "é".repeat(128));
    }
}
