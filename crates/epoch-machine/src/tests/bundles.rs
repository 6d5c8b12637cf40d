//! Which trust bundles are taken in.

use std::sync::Arc;

use epoch_core::{Bundle, BundleTerms, ClusterId, Incarnation, NodeId, SignedBundle};
use uuid::Uuid;

use super::keys::{
    AGE_S, LIFE_S, NOW_S, ROOT, bundle_key, kid, old_keys, signed, terms, verifying,
};
use super::machine::{Machine, principal, refused};
use crate::command::Command;
use crate::outcome::{Outcome, Refusal};
use crate::state::BUNDLES_MAX;

const INVALID: Outcome = Outcome::Refused(Refusal::BundleInvalid);

fn three() -> Vec<epoch_core::BundleKey> {
    old_keys(&[(1, 1), (2, 2), (3, 3)])
}

fn sequences(machine: &Machine) -> Vec<u64> {
    let bundles = machine.state.bundles_after(0);
    bundles
        .map(|bundle| bundle.bundle().terms().sequence)
        .collect()
}

#[test]
fn the_first_bundle_is_signed_by_the_root_that_it_names_alone() {
    let mut machine = Machine::new();
    let bundle = Bundle::new(terms(&machine.state, 1, NOW_S), three()).unwrap();
    for signers in [&[1, 2, 3][..], &[1], &[ROOT, 1], &[7]] {
        assert_eq!(machine.put_bundle(signed(&bundle, signers)), INVALID);
        assert!(machine.state.bundle().is_none());
    }
    let good = signed(&bundle, &[ROOT]);
    assert_eq!(machine.put_bundle(Arc::clone(&good)), Outcome::BundlePut);
    assert_eq!(machine.state.bundle(), Some(&*good));
    // Once more is the same.
    assert_eq!(machine.put_bundle(Arc::clone(&good)), Outcome::BundlePut);
    assert_eq!(sequences(&machine), [1]);
}

#[test]
fn a_bundle_of_another_cluster_incarnation_or_root_is_refused() {
    let mut machine = Machine::with_bundle();
    let good = terms(&machine.state, 2, NOW_S);
    let others = [
        BundleTerms {
            cluster: ClusterId(Uuid::from_u128(9)),
            ..good.clone()
        },
        BundleTerms {
            incarnation: Incarnation(Uuid::from_u128(9)),
            ..good.clone()
        },
        BundleTerms {
            root: verifying(99),
            ..good
        },
    ];
    for terms in others {
        let signer = if terms.root == verifying(99) {
            99
        } else {
            ROOT
        };
        let bundle = Bundle::new(terms, three()).unwrap();
        assert_eq!(machine.put_bundle(signed(&bundle, &[signer])), INVALID);
    }
    assert_eq!(sequences(&machine), [1]);
}

#[test]
fn what_is_due_counts_once_a_majority_of_nodes_has_signed_it() {
    let mut machine = Machine::with_bundle();
    machine.wall_ms += LIFE_S / 3 * 1_000;
    let due = machine.due().unwrap();
    for signers in [&[1][..], &[7, 8], &[1, 7], &[1, 2, 7]] {
        assert_eq!(machine.put_bundle(signed(&due, signers)), INVALID);
    }
    let good = signed(&due, &[3, 1]);
    let forged: Vec<_> = vec![
        (kid(1), good.signatures()[0].1),
        (kid(3), good.signatures()[1].1),
    ];
    let forged = SignedBundle::from_parts(due.to_json(), forged).unwrap();
    assert_eq!(machine.put_bundle(Arc::new(forged)), INVALID);
    assert_eq!(machine.put_bundle(good), Outcome::BundlePut);
    assert_eq!(sequences(&machine), [1, 2]);
    // Never again at once.
    assert_eq!(machine.due(), None);
}

#[test]
fn two_keys_of_one_node_are_no_majority() {
    let mut machine = Machine::with_bundle();
    machine.rotate(Some(1));
    machine.offer(1, 11, Some(1));
    machine.renew(&[1, 2]);
    machine.wall_ms += LIFE_S / 3 * 1_000;
    assert_eq!(machine.renew(&[1, 11]), INVALID);
    assert_eq!(machine.renew(&[11, 2]), Outcome::BundlePut);
}

#[test]
fn stolen_keys_of_a_majority_bring_in_nothing_that_is_not_due() {
    let mut machine = Machine::with_bundle();
    let with = |node: NodeId, number| {
        let mut keys = three();
        keys.push(bundle_key(node, number, NOW_S + AGE_S));
        keys
    };
    // Nothing is due: neither a foreign key, nor fewer, nor the same again.
    for keys in [with(1, 11), with(4, 11), three(), old_keys(&[(1, 1)])] {
        let next = machine.next(keys);
        assert_eq!(machine.put_bundle(signed(&next, &[1, 2, 3])), INVALID);
    }
    machine.rotate(Some(1));
    machine.offer(1, 11, Some(1));
    // It is due that key 11 signs once it is old enough, not before, and not for another node.
    for key in [
        bundle_key(1, 11, 0),
        bundle_key(1, 11, NOW_S),
        bundle_key(2, 11, NOW_S + AGE_S),
        bundle_key(1, 12, NOW_S + AGE_S),
    ] {
        let mut keys = three();
        keys.push(key);
        let next = machine.next(keys);
        assert_eq!(machine.put_bundle(signed(&next, &[1, 2, 3])), INVALID);
    }
    let next = machine.next(with(1, 11));
    let put = machine.put_bundle(signed(&next, &[1, 2]));
    assert_eq!(put, Outcome::BundlePut);
}

#[test]
fn a_bundle_that_was_signed_before_a_key_was_retired_comes_too_late() {
    let mut machine = Machine::with_bundle();
    machine.wall_ms += LIFE_S / 3 * 1_000;
    let late = signed(&machine.due().unwrap(), &[1, 2]);
    machine.retire(3);
    assert_eq!(machine.put_bundle(late), INVALID);
    assert_eq!(machine.renew(&[1, 2]), Outcome::BundlePut);
    assert_eq!(machine.in_bundle(), [(1, 1), (2, 2)]);
}

#[test]
fn the_retry_of_a_bundle_that_others_have_followed_finds_it_done() {
    let mut machine = Machine::new();
    let first = machine.first_bundle();
    machine.wall_ms += LIFE_S / 3 * 1_000;
    let second = signed(&machine.due().unwrap(), &[1, 2]);
    machine.put_bundle(Arc::clone(&second));
    machine.wall_ms += LIFE_S / 3 * 1_000;
    machine.renew(&[1, 2]);
    for late in [Arc::clone(&first), second] {
        assert_eq!(machine.put_bundle(late), Outcome::BundlePut);
    }
    assert_eq!(sequences(&machine), [1, 2, 3]);
    // Another one of a number that is taken is no retry.
    let other = Bundle::new(terms(&machine.state, 1, NOW_S), old_keys(&[(1, 1)])).unwrap();
    assert_eq!(machine.put_bundle(signed(&other, &[ROOT])), INVALID);
}

#[test]
fn a_bundle_by_the_root_begins_the_chain_anew() {
    let mut machine = Machine::with_bundle();
    for _ in 0..2 {
        machine.wall_ms += LIFE_S / 3 * 1_000;
        machine.renew(&[1, 2]);
    }
    assert_eq!(sequences(&machine), [1, 2, 3]);
    let older = Bundle::new(terms(&machine.state, 2, NOW_S), three()).unwrap();
    assert_eq!(machine.put_bundle(signed(&older, &[ROOT])), INVALID);
    // Any later number, any keys.
    let terms = terms(&machine.state, 9, machine.now_s());
    let next = Bundle::new(terms, old_keys(&[(3, 3), (4, 4)])).unwrap();
    let put = machine.put_bundle(signed(&next, &[ROOT]));
    assert_eq!((put, sequences(&machine)), (Outcome::BundlePut, vec![9]));
    assert!(machine.state.is_retired(kid(1)) && machine.state.is_retired(kid(2)));
    assert!(!machine.state.is_retired(kid(3)));
    assert_eq!(machine.due(), None);
}

#[test]
fn a_chain_that_is_too_long_goes_on_with_the_root_only() {
    let mut machine = Machine::with_bundle();
    for _ in 1..BUNDLES_MAX {
        machine.wall_ms += LIFE_S / 3 * 1_000;
        assert_eq!(machine.renew(&[1, 2]), Outcome::BundlePut);
    }
    machine.wall_ms += LIFE_S / 3 * 1_000;
    assert_eq!(machine.renew(&[1, 2]), refused(Refusal::BundleLimit));
    assert_eq!(sequences(&machine).len(), BUNDLES_MAX);
    let next = machine.next(three());
    machine.put_bundle(signed(&next, &[ROOT]));
    assert_eq!(sequences(&machine).len(), 1);
    machine.wall_ms += LIFE_S / 3 * 1_000;
    assert_eq!(machine.renew(&[1, 2]), Outcome::BundlePut);
}

#[test]
fn a_bundle_is_due_when_a_third_of_its_own_life_is_over() {
    let mut machine = Machine::new();
    // The root key gave this one a day only, those that follow it a month.
    let day = BundleTerms {
        expires_at_s: NOW_S + 86_400,
        ..terms(&machine.state, 1, NOW_S)
    };
    let bundle = Bundle::new(day, three()).unwrap();
    machine.put_bundle(signed(&bundle, &[ROOT]));
    let due_at = |s: u64| machine.state.due_bundle(NOW_S + s);
    assert_eq!(due_at(28_799), None);
    let next = due_at(28_800).unwrap();
    assert_eq!(next.terms().expires_at_s, NOW_S + 28_800 + LIFE_S);
    assert_eq!(next.keys(), bundle.keys());
    machine.wall_ms += 28_800_000;
    machine.renew(&[2, 3]);
    let due_at = |s: u64| machine.state.due_bundle(NOW_S + 28_800 + s);
    assert_eq!(due_at(LIFE_S / 3 - 1), None);
    assert!(due_at(LIFE_S / 3).is_some());
}

#[test]
fn bundles_by_the_root_leave_a_record_and_others_do_not() {
    let mut machine = Machine::with_bundle();
    machine.wall_ms += LIFE_S / 3 * 1_000;
    machine.renew(&[1, 2]);
    let next = signed(&machine.next(old_keys(&[(1, 1)])), &[ROOT]);
    machine.one(Command::PutBundle {
        by: Some(principal("root")),
        bundle: next,
    });
    let older = Bundle::new(terms(&machine.state, 2, NOW_S), three()).unwrap();
    machine.put_bundle(signed(&older, &[ROOT]));
    let page = machine.state.audit(None, 10);
    let told: Vec<_> = page
        .records
        .iter()
        .map(|record| {
            let by = record.principal.as_ref().map(ToString::to_string);
            (record.target.as_str(), by, record.refused.is_some())
        })
        .collect();
    let target = |sequence| format!("bundle {sequence}, signed by the root key");
    assert_eq!(
        told,
        [
            (&*target(2), None, true),
            (&*target(3), Some("root".to_owned()), false),
            (&*target(1), None, false),
        ]
    );
}
