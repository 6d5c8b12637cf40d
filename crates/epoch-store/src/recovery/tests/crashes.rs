//! Nodes that crash at random operations of their disks, against a model of what was agreed on.
//!
//! `EPOCH_CRASHES` sets how many crashes there are in each test, `EPOCH_SEED` which. A failure
//! prints the seed of its node: with that, and `EPOCH_CRASHES` = 12, it comes again.

use super::node::{Bug, Harm, Life, Starts};
use crate::testing::number_from_env;

/// Crashes of one node before the next one begins.
const CRASHES_PER_NODE: u64 = 12;

/// How many crashes it took until a promise was broken, and which.
type Found = (u64, String);

fn crash(crashes: u64, bug: Bug, harm: Harm, skipped_syncs: u64) -> Result<Starts, Found> {
    let seed = number_from_env("EPOCH_SEED", 1);
    let mut done = 0;
    let mut starts = Starts::default();
    for node in 0.. {
        let seed = seed + node;
        let mut life = Life::new(seed, bug, harm, skipped_syncs);
        for _ in 0..CRASHES_PER_NODE {
            if done == crashes {
                return Ok(starts);
            }
            life.live_and_die()
                .map_err(|broken| (done, format!("EPOCH_SEED={seed}: {broken}")))?;
            done += 1;
        }
        starts.add(life.starts);
    }
    Ok(starts)
}

fn assert_holds(harm: Harm) {
    let crashes = number_from_env("EPOCH_CRASHES", 300);
    println!("EPOCH_CRASHES={crashes}");
    let starts = match crash(crashes, Bug::None, harm, 0) {
        Ok(starts) => starts,
        Err((done, broken)) => panic!("after {done} crashes, {broken}"),
    };
    println!("{starts:?}");
    if crashes >= 100 {
        assert!(starts.snapshot > 0 && starts.checkpoint > 0 && starts.died > 0);
        assert!(starts.begun > 0 && starts.appended > 0);
        assert_eq!(harm == Harm::NewestSnapshot, starts.damaged > 0);
    }
}

fn assert_found(bug: Bug, harm: Harm, skipped_syncs: u64) {
    let (done, broken) = crash(1_000, bug, harm, skipped_syncs).unwrap_err();
    println!("found after {done} crashes: {broken}");
}

#[test]
fn after_a_crash_a_node_starts_with_all_it_acknowledged() {
    assert_holds(Harm::None);
}

#[test]
fn after_a_crash_a_node_starts_without_its_checkpoint_too() {
    assert_holds(Harm::Checkpoint);
}

#[test]
fn after_a_crash_a_node_starts_without_its_newest_snapshot_too() {
    assert_holds(Harm::NewestSnapshot);
}

#[test]
fn purging_below_the_newer_snapshot_is_found() {
    assert_found(Bug::PurgeBelowNewest, Harm::NewestSnapshot, 0);
}

#[test]
fn a_checkpoint_that_does_not_say_how_far_it_is_is_found() {
    assert_found(Bug::StaleHead, Harm::None, 0);
}

#[test]
fn a_chain_that_begins_at_a_snapshot_without_some_changes_is_found() {
    assert_found(Bug::LostChanges, Harm::None, 0);
}

#[test]
fn one_skipped_sync_in_fifty_is_found() {
    assert_found(Bug::None, Harm::None, 50);
}
