//! Every promise, over everything the random run does.

use std::collections::BTreeMap;

use super::run::Run;
use crate::apply::apply;
use crate::command::Batch;
use crate::event::{Event, GrantEventKind, WaitEnd};
use crate::outcome::Outcome;
use crate::promise::Violation;

const STEPS_DEFAULT: u64 = 80_000;
/// A history is checked as a whole at its end: shorter ones find violations sooner.
const STEPS_PER_EPISODE: u64 = 2_000;

/// Of a million steps, how often each of these happens at least: a run that never gets anywhere
/// would prove nothing.
const EXPECTED: &[(&str, u64)] = &[
    ("foreign batches", 10_000),
    ("rollbacks", 1_000),
    ("bundles by nodes", 500),
    ("keys brought in by nodes", 100),
];

#[test]
fn every_promise_holds_over_random_commands_rollbacks_and_leadership_changes() {
    let number = |name: &str| setting(name).map(|text| text.parse::<u64>().unwrap());
    let steps = number("EPOCH_STEPS").unwrap_or(STEPS_DEFAULT);
    let seed = number("EPOCH_SEED").unwrap_or(1);
    let mut covered = Coverage::default();
    for episode in 0..steps.div_ceil(STEPS_PER_EPISODE) {
        let seed = seed.wrapping_add(episode);
        match Run::new(seed, apply).steps(STEPS_PER_EPISODE) {
            Ok(coverage) => covered.add(&coverage),
            Err(failure) => panic!(
                "{failure}; once more with EPOCH_SEED={seed} EPOCH_STEPS={STEPS_PER_EPISODE}"
            ),
        }
    }
    println!("{covered:#?}");
    if steps < STEPS_DEFAULT {
        return;
    }
    for (what, per_million) in EXPECTED {
        let times = covered.times.get(what).copied().unwrap_or(0);
        let expected = steps * per_million / 1_000_000;
        assert!(times >= expected, "{what}: {times}; {covered:#?}");
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a test takes its settings from outside"
)]
fn setting(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// How often things happened.
#[derive(Debug, Default)]
pub(super) struct Coverage {
    times: BTreeMap<&'static str, u64>,
    refusals: BTreeMap<String, u64>,
}

impl Coverage {
    pub(super) fn count(&mut self, what: &'static str) {
        *self.times.entry(what).or_default() += 1;
    }

    fn add(&mut self, other: &Self) {
        for (what, times) in &other.times {
            *self.times.entry(what).or_default() += times;
        }
        for (refusal, times) in &other.refusals {
            *self.refusals.entry(refusal.clone()).or_default() += times;
        }
    }

    pub(super) fn events(&mut self, events: &[Event]) {
        for event in events {
            self.count(match event {
                Event::SessionOpened { new: true, .. } => "sessions opened",
                Event::SessionOpened { new: false, .. } => "sessions opened again",
                Event::SessionEnded { expired: true, .. } => "sessions expired",
                Event::SessionEnded { expired: false, .. } => "sessions closed",
                Event::Grant(grant) => match grant.kind {
                    GrantEventKind::Granted if grant.ended.is_some() => "reissues",
                    GrantEventKind::Granted => "grants",
                    GrantEventKind::Released => "releases",
                    GrantEventKind::Expired => "grants expired",
                    GrantEventKind::Revoked => "revokes",
                    GrantEventKind::Transferred if grant.request_id.is_some() => {
                        "transfers to who waited"
                    }
                    GrantEventKind::Transferred => "transfers",
                },
                Event::WaitBegun { .. } => "waits begun",
                Event::WaitEnded { end, .. } => match end {
                    WaitEnd::Granted => "handovers",
                    WaitEnd::Expired => "waits expired",
                    WaitEnd::Cancelled => "waits cancelled",
                    WaitEnd::SessionEnded => "waits of sessions that ended",
                },
                Event::DelayBegun { .. } => "delays begun",
                Event::DelayEnded { .. } => "delays ended",
            });
        }
    }

    pub(super) fn outcome(&mut self, outcome: &Outcome) {
        let what = match outcome {
            Outcome::Granted { new: false, .. } => "granted again",
            Outcome::GrantedMany { new: true, .. } => "granted many",
            Outcome::GrantedMany { new: false, .. } => "granted many again",
            Outcome::Transferred { new: false, .. } => "transferred again",
            Outcome::WaitCancelled {
                granted: Some(_), ..
            } => "cancels after the grant",
            Outcome::DelayEnded { ended: true } => "delays ended by command",
            Outcome::RecordWritten { replayed: true, .. } => "writes replayed",
            Outcome::RecordWritten { .. } => "writes",
            Outcome::RefusedMany { .. } => "refused many",
            Outcome::BundlePut => "bundles",
            Outcome::KeyOffered => "keys offered",
            Outcome::RotationWanted { .. } => "keys wanted",
            Outcome::KeyRetired { retired: true } => "keys retired",
            Outcome::StatementPut => "statements",
            Outcome::Refused(refusal) => {
                let name = refusal_name(&format!("{refusal:?}"));
                *self.refusals.entry(name).or_default() += 1;
                "refused"
            }
            _ => "of other effect",
        };
        self.count(what);
    }
}

/// The name of a refusal without its details.
pub(super) fn refusal_name(debug: &str) -> String {
    debug.chars().take_while(|c| c.is_alphanumeric()).collect()
}

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("{0}")]
    Promise(#[from] Violation),
    #[error("two replicas differ after {0:?}")]
    Replicas(Batch),
    #[error("a batch of another leadership took effect: {0:?}")]
    Foreign(Batch),
    #[error("commands without an effect changed the state: {0:?}")]
    Refused(Batch),
    #[error("events do not tell what happened: {0}")]
    Told(String),
    #[error("not as it is permitted: {0}")]
    Permitted(String),
    #[error("a signing key came in or went as it may not: {0}")]
    Trusted(String),
    #[error("what operators did is not recorded")]
    Audit,
    #[error("a record is not what was written: {0}")]
    Record(String),
    #[error("the state is another after it went out and in as rows")]
    Rows,
    #[error("the hash is not that of the rows")]
    Hash,
    #[error("the recorded changes do not lead to the rows")]
    Changes,
    #[error("replicated time was lowered")]
    Time,
}
