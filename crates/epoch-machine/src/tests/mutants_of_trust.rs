//! Bugs planted around `apply` that concern signing keys: each must be found by the random run.

use std::sync::Arc;

use super::keys::{bundle_key, kid};
use super::machine::Machine;
use super::mutants::found_with_operators;
use super::promises::Failure;
use crate::admin::{AdminKey, AdminRow, Offer};
use crate::apply::apply;
use crate::command::{Batch, Command, Entry};
use crate::outcome::{Applied, ForeignLeadership, Outcome, Refusal};
use crate::promise::consistent;
use crate::state::State;

type Result = std::result::Result<Applied, ForeignLeadership>;

fn assert_found(planted: super::run::Apply) {
    let failure = found_with_operators(planted);
    assert!(matches!(failure, Failure::Trusted(_)), "{failure}");
}

fn takes_bundles_that_few_have_signed(state: &mut State, entry: Entry, batch: &Batch) -> Result {
    let mut applied = apply(state, entry, batch)?;
    for (command, outcome) in batch.commands.iter().zip(&mut applied.outcomes) {
        if let Command::PutBundle { bundle, .. } = command
            && *outcome == Outcome::Refused(Refusal::BundleInvalid)
            && state
                .due_bundle(bundle.bundle().terms().issued_at_s)
                .as_ref()
                == Some(bundle.bundle())
        {
            state.add_admin(AdminRow::Bundle(Arc::clone(bundle)));
            *outcome = Outcome::BundlePut;
        }
    }
    Ok(applied)
}

#[test]
fn a_bundle_that_too_few_have_signed_is_found() {
    assert_found(takes_bundles_that_few_have_signed);
}

fn endorses_everything(state: &mut State, entry: Entry, batch: &Batch) -> Result {
    let applied = apply(state, entry, batch)?;
    let offers: Vec<_> = state.offers().cloned().collect();
    let nodes = state.bundle().map(|newest| newest.bundle().nodes());
    for offer in offers {
        let asked = state.is_rotation_wanted(offer.node);
        if !asked
            && nodes
                .as_ref()
                .is_some_and(|nodes| nodes.contains(&offer.node))
        {
            let endorsed = true;
            state.add_admin(AdminRow::Offer(Offer { endorsed, ..offer }));
        }
    }
    Ok(applied)
}

#[test]
fn a_key_that_was_not_asked_for_is_found() {
    assert_found(endorses_everything);
}

fn forgets_whom_it_has_asked(state: &mut State, entry: Entry, batch: &Batch) -> Result {
    let applied = apply(state, entry, batch)?;
    let asked: Vec<_> = state.rotations().collect();
    for node in asked {
        state.rows.remove_admin(&AdminKey::Rotation(node));
    }
    Ok(applied)
}

#[test]
fn a_wish_for_a_key_that_is_forgotten_is_found() {
    assert_found(forgets_whom_it_has_asked);
}

fn retires_what_is_needed(state: &mut State, entry: Entry, batch: &Batch) -> Result {
    let mut applied = apply(state, entry, batch)?;
    for (command, outcome) in batch.commands.iter().zip(&mut applied.outcomes) {
        if let Command::RetireKey { kid, .. } = command
            && *outcome == Outcome::Refused(Refusal::LastKey)
        {
            let (kid, time_ms) = (*kid, state.now_ms());
            state.add_admin(AdminRow::Retired(crate::admin::Retired { kid, time_ms }));
            *outcome = Outcome::KeyRetired { retired: true };
        }
    }
    Ok(applied)
}

#[test]
fn a_retirement_that_leaves_too_few_to_sign_is_found() {
    assert_found(retires_what_is_needed);
}

fn never_retires(state: &mut State, entry: Entry, batch: &Batch) -> Result {
    let applied = apply(state, entry, batch)?;
    let retired: Vec<_> = state.retired().collect();
    for retired in retired {
        state.rows.remove_admin(&AdminKey::Retired(retired.kid));
    }
    Ok(applied)
}

#[test]
fn a_retired_key_that_comes_back_is_found() {
    assert_found(never_retires);
}

fn loses_the_beginning_of_the_chain(state: &mut State, entry: Entry, batch: &Batch) -> Result {
    let applied = apply(state, entry, batch)?;
    let chain: Vec<_> = state.bundle_keys().collect();
    if chain.len() > 2 {
        state.rows.remove_admin(&chain[0]);
    }
    Ok(applied)
}

#[test]
fn a_chain_that_newcomers_do_not_believe_is_found() {
    let failure = found_with_operators(loses_the_beginning_of_the_chain);
    assert!(
        matches!(failure, Failure::Trusted(_) | Failure::Promise(_)),
        "{failure}"
    );
}

/// Each of these is what the loader refuses, too.
#[test]
fn rows_of_trust_that_cannot_be_are_found() {
    let mut machine = Machine::with_bundle();
    machine.rotate(None);
    machine.offer(1, 11, Some(1));
    machine.retire(3);
    consistent(&machine.state).unwrap();
    let offer = |node, number, endorsed| {
        AdminRow::Offer(Offer {
            node,
            key: bundle_key(node, number, 0).key,
            endorsed,
        })
    };
    let retired = |number| {
        AdminRow::Retired(crate::admin::Retired {
            kid: kid(number),
            time_ms: 0,
        })
    };
    for (row, what) in [
        (AdminRow::Rotation(4), "a key wanted of an unknown node"),
        (AdminRow::Rotation(1), "a key that nobody may offer"),
        (offer(4, 14, true), "a key that nobody may offer"),
        (offer(2, 2, false), "a key that nobody may offer"),
        (offer(4, 3, false), "a key that nobody may offer"),
        (
            offer(4, super::keys::ROOT, false),
            "a key that nobody may offer",
        ),
        (offer(4, 11, false), "a key offered twice"),
        (retired(11), "a key that nobody may offer"),
    ] {
        let mut state = machine.state.clone();
        state.rows.put_admin(row);
        assert_eq!(state.untrue_of_trust(), Some(what));
        assert!(consistent(&state).is_err());
    }
}
