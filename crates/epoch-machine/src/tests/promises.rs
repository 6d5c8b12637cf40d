//! Every promise, over everything the random run does.

use super::run::Run;
use crate::apply::apply;
use crate::command::Batch;
use crate::promise::Violation;

const STEPS_DEFAULT: u64 = 200_000;
/// A history is checked as a whole at its end: shorter ones find violations sooner.
const STEPS_PER_EPISODE: u64 = 2_000;
#[test]
fn every_promise_holds_over_random_commands_rollbacks_and_leadership_changes() {
    let number = |name: &str| setting(name).map(|text| text.parse::<u64>().unwrap());
    let steps = number("EPOCH_STEPS").unwrap_or(STEPS_DEFAULT);
    let seed = number("EPOCH_SEED").unwrap_or(1);
    let mut covered = Coverage::default();
    for episode in 0..steps.div_ceil(STEPS_PER_EPISODE) {
        let seed = seed.wrapping_add(episode);
        match Run::new(seed, apply).steps(STEPS_PER_EPISODE) {
            Ok(coverage) => covered.add(coverage),
            Err(failure) => panic!(
                "{failure}; once more with EPOCH_SEED={seed} EPOCH_STEPS={STEPS_PER_EPISODE}"
            ),
        }
    }
    // A run that never gets anywhere would prove nothing.
    let Coverage {
        grants,
        handed_over,
        delays,
        retried,
        revoked,
        rollbacks,
        foreign,
        expired,
    } = covered;
    assert!(grants > steps / 20, "{covered:?}");
    assert!(
        retried > steps / 1_000 && revoked > steps / 200,
        "{covered:?}"
    );
    assert!(
        rollbacks > steps / 1_000 && foreign > steps / 100,
        "{covered:?}"
    );
    assert!(expired > steps / 200, "{covered:?}");
    assert!(
        handed_over > steps / 100 && delays > steps / 10_000,
        "{covered:?}"
    );
}

#[expect(
    clippy::disallowed_methods,
    reason = "a test takes its settings from outside"
)]
fn setting(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// How often things happened.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Coverage {
    pub(super) grants: u64,
    pub(super) handed_over: u64,
    pub(super) delays: u64,
    pub(super) retried: u64,
    pub(super) revoked: u64,
    pub(super) rollbacks: u64,
    pub(super) foreign: u64,
    pub(super) expired: u64,
}

impl Coverage {
    fn add(&mut self, other: Self) {
        self.grants += other.grants;
        self.handed_over += other.handed_over;
        self.delays += other.delays;
        self.retried += other.retried;
        self.revoked += other.revoked;
        self.rollbacks += other.rollbacks;
        self.foreign += other.foreign;
        self.expired += other.expired;
    }
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
    #[error("refused commands changed the state: {0:?}")]
    Refused(Batch),
    #[error("the state is another after it went out and in as rows")]
    Rows,
    #[error("the hash is not that of the rows")]
    Hash,
    #[error("the recorded changes do not lead to the rows")]
    Changes,
    #[error("replicated time was lowered")]
    Time,
}
