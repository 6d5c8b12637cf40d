//! Offered keys, keys that are asked for, and retired ones.

use std::sync::Arc;

use epoch_core::{Bundle, ClusterId, Incarnation, KeyOffer};
use uuid::Uuid;

use super::keys::{AGE_S, LIFE_S, ROOT, bundle_key, kid, offer, old_keys, signed, signing, terms};
use super::machine::{Machine, permission, principal, refused};
use crate::command::Command;
use crate::outcome::{Outcome, Refusal};
use crate::state::{KEYS_OF_NODE_MAX, OFFERS_MAX, RETIRED_KEPT};

const INVALID: Outcome = Outcome::Refused(Refusal::OfferInvalid);

fn wanted(nodes: &[u64]) -> Outcome {
    Outcome::RotationWanted {
        nodes: nodes.to_vec(),
    }
}

/// What the next bundle would have, beside keys 1 to 3.
fn due_besides(machine: &Machine) -> Vec<(u64, u64)> {
    let due = machine.due();
    let keys = due.iter().flat_map(Bundle::keys);
    let new = keys.filter(|key| key.since_s > 0);
    new.map(|key| (key.node, key.since_s)).collect()
}

#[test]
fn a_key_that_was_asked_for_and_is_endorsed_is_due_at_once() {
    let mut machine = Machine::with_bundle();
    assert_eq!(machine.rotate(Some(2)), wanted(&[2]));
    assert!(machine.state.is_rotation_wanted(2));
    assert_eq!(machine.due(), None);
    assert_eq!(machine.offer(2, 12, Some(2)), Outcome::KeyOffered);
    assert!(!machine.state.is_rotation_wanted(2));
    assert_eq!(machine.state.offered(2), Some(kid(12)));
    assert_eq!(due_besides(&machine), [(2, machine.now_s() + AGE_S)]);
    // Its retry, and asking again meanwhile, change nothing.
    let before = machine.state.clone();
    assert_eq!(machine.offer(2, 12, Some(2)), Outcome::KeyOffered);
    assert_eq!(machine.state, before);
    assert_eq!(machine.rotate(Some(2)), wanted(&[2]));
    assert!(!machine.state.is_rotation_wanted(2));
    machine.renew(&[1, 3]);
    assert_eq!(machine.in_bundle(), [(1, 1), (2, 2), (2, 12), (3, 3)]);
    assert_eq!((machine.due(), machine.state.offered(2)), (None, None));
    // Its retry after that, too.
    assert_eq!(machine.offer(2, 12, Some(2)), Outcome::KeyOffered);
    assert_eq!(machine.state.offered(2), None);
}

#[test]
fn one_who_has_a_stolen_key_replaces_it_only_when_its_node_is_asked() {
    let mut machine = Machine::with_bundle();
    // Unasked: kept for the operator to see, not for the bundle.
    assert_eq!(machine.offer(2, 12, Some(2)), Outcome::KeyOffered);
    assert_eq!(machine.due(), None);
    assert_eq!(machine.standings()[3], "2:12 unendorsed");
    // Nobody else's key, asked or not.
    machine.rotate(None);
    assert_eq!(machine.offer(1, 13, Some(2)), INVALID);
    assert_eq!(machine.offer(4, 13, Some(2)), INVALID);
    assert!(machine.state.is_rotation_wanted(1));
    assert_eq!(machine.due(), None);
}

#[test]
fn an_offer_that_nobody_endorsed_neither_ends_the_wish_for_one_nor_displaces_one() {
    let mut machine = Machine::with_bundle();
    machine.rotate(Some(2));
    assert_eq!(machine.offer(2, 13, None), Outcome::KeyOffered);
    assert!(machine.state.is_rotation_wanted(2));
    assert_eq!(machine.due(), None);
    assert_eq!(machine.offer(2, 12, Some(2)), Outcome::KeyOffered);
    assert_eq!(machine.offer(2, 13, None), INVALID);
    assert_eq!(machine.offer(2, 14, Some(2)), INVALID);
    assert_eq!(machine.state.offered(2), Some(kid(12)));
    machine.renew(&[1, 3]);
    assert_eq!(machine.in_bundle(), [(1, 1), (2, 2), (2, 12), (3, 3)]);
}

#[test]
fn the_same_key_that_is_endorsed_later_counts_then() {
    let mut machine = Machine::with_bundle();
    machine.offer(2, 12, Some(2));
    machine.rotate(Some(2));
    assert_eq!(machine.due(), None);
    machine.offer(2, 12, Some(2));
    assert_eq!(due_besides(&machine).len(), 1);
}

#[test]
fn offers_that_cannot_be_are_refused() {
    let mut machine = Machine::new();
    assert_eq!(machine.offer(1, 11, Some(1)), INVALID);
    machine.first_bundle();
    machine.rotate(None);
    let incarnation = machine.state.incarnation();
    let cluster = machine.state.cluster_id();
    let key = signing(1);
    let endorsed = |cluster, incarnation| {
        let offer = signing(11).offer(cluster, incarnation, 1, Some(&key));
        Command::OfferKey(Arc::new(offer.unwrap()))
    };
    let other = ClusterId(Uuid::from_u128(9));
    assert_eq!(machine.one(endorsed(other, incarnation)), INVALID);
    let other = Incarnation(Uuid::from_u128(9));
    assert_eq!(machine.one(endorsed(cluster, other)), INVALID);
    // Not signed by the key itself.
    let whole = offer(&machine.state, 1, 11, Some(1));
    let (_, endorsement) = whole.to_text().split_once(',').unwrap();
    let alone = KeyOffer::parse(endorsement).unwrap();
    assert_eq!(machine.one(Command::OfferKey(Arc::new(alone))), INVALID);
    // The root key, and one that another node offers.
    assert_eq!(machine.offer(1, ROOT, Some(1)), INVALID);
    machine.offer(2, 12, Some(2));
    assert_eq!(machine.offer(1, 12, Some(1)), INVALID);
    assert!(machine.state.is_rotation_wanted(1));
    assert_eq!(machine.state.offered(1), None);
}

#[test]
fn retired_keys_neither_come_back_nor_endorse() {
    let mut machine = Machine::with_bundle();
    machine.rotate(None);
    machine.retire(2);
    assert_eq!(machine.offer(2, 12, Some(2)), Outcome::KeyOffered);
    assert_eq!(machine.standings()[3], "2:12 unendorsed");
    assert!(machine.state.is_rotation_wanted(2));
    machine.renew(&[1, 3]);
    assert_eq!(machine.in_bundle(), [(1, 1), (3, 3)]);
    // The node is in no bundle any more: it cannot be asked, and its old key is known for good.
    assert!(!machine.state.is_rotation_wanted(2));
    assert_eq!(machine.rotate(Some(2)), refused(Refusal::NodeUnknown));
    assert_eq!(machine.offer(2, 2, None), INVALID);
    let retired = Outcome::KeyRetired { retired: false };
    assert_eq!(machine.retire(2), retired);
    // The root key brings the node back.
    let mut keys = old_keys(&[(1, 1), (3, 3)]);
    keys.push(bundle_key(2, 12, machine.now_s()));
    let next = machine.next(keys);
    machine.put_bundle(signed(&next, &[ROOT]));
    assert_eq!(machine.state.offered(2), None);
    assert_eq!(machine.in_bundle(), [(1, 1), (2, 12), (3, 3)]);
}

#[test]
fn retired_keys_leave_at_once_even_those_that_the_root_brings_back() {
    let mut machine = Machine::with_bundle();
    let stale = machine.next(old_keys(&[(1, 1), (2, 2), (3, 3)]));
    assert_eq!(machine.retire(3), Outcome::KeyRetired { retired: true });
    assert_eq!(machine.standings()[2], "3:3 retiring");
    // Signed before the operator knew.
    machine.put_bundle(signed(&stale, &[ROOT]));
    machine.renew(&[1, 2]);
    assert_eq!(machine.in_bundle(), [(1, 1), (2, 2)]);
    assert_eq!(machine.due(), None);
}

#[test]
fn keys_that_the_next_bundle_needs_to_be_signed_are_not_retired() {
    let mut machine = Machine::with_bundle();
    let last = refused(Refusal::LastKey);
    assert_eq!(machine.retire(9), refused(Refusal::KeyUnknown));
    machine.retire(1);
    assert_eq!((machine.retire(2), machine.retire(3)), (last.clone(), last));
    machine.renew(&[2, 3]);
    // Both of two nodes are needed, too; a second key of one of them makes the first dispensable.
    assert_eq!(machine.retire(2), refused(Refusal::LastKey));
    machine.rotate(Some(2));
    machine.offer(2, 12, Some(2));
    assert_eq!(machine.retire(2), refused(Refusal::LastKey));
    machine.renew(&[2, 3]);
    assert_eq!(machine.retire(2), Outcome::KeyRetired { retired: true });
    assert_eq!(machine.retire(12), refused(Refusal::LastKey));
    machine.renew(&[12, 3]);
    assert_eq!(machine.in_bundle(), [(2, 12), (3, 3)]);
}

#[test]
fn an_offered_key_can_be_retired() {
    let mut machine = Machine::with_bundle();
    machine.rotate(Some(1));
    machine.offer(1, 11, Some(1));
    assert_eq!(machine.retire(11), Outcome::KeyRetired { retired: true });
    assert_eq!((machine.due(), machine.state.offered(1)), (None, None));
    machine.rotate(Some(1));
    assert_eq!(machine.offer(1, 11, Some(1)), INVALID);
    assert_eq!(machine.offer(1, 21, Some(1)), Outcome::KeyOffered);
}

#[test]
fn what_the_root_passes_over_is_asked_for_again() {
    let mut machine = Machine::with_bundle();
    machine.rotate(None);
    for node in 1..=3_u8 {
        machine.offer(node.into(), 10 + node, Some(node));
    }
    machine.offer(4, 14, None);
    machine.offer(5, 15, None);
    // The operator knows of 12 and 14, has node 1 go on with a key of his own choice, and no node 3.
    let mut keys = old_keys(&[(2, 2)]);
    let more = [(1, 31), (2, 12), (4, 14)];
    keys.extend(more.map(|(node, number)| bundle_key(node, number, machine.now_s())));
    let next = machine.next(keys);
    machine.put_bundle(signed(&next, &[ROOT]));
    let offered = [1, 2, 3, 4, 5].map(|node| machine.state.offered(node).is_some());
    assert_eq!(offered, [false, false, false, false, true]);
    let wanted: Vec<_> = machine.state.rotations().collect();
    assert_eq!(wanted, Vec::<u64>::new());
    assert_eq!(machine.due(), None);

    machine.rotate(Some(4));
    machine.offer(4, 24, Some(14));
    let next = machine.next(machine.state.bundle().unwrap().bundle().keys().to_vec());
    machine.put_bundle(signed(&next, &[ROOT]));
    assert!(machine.state.is_rotation_wanted(4));
    assert_eq!(machine.due(), None);
    machine.offer(4, 24, Some(14));
    assert!(machine.due().is_some());
}

#[test]
fn a_node_has_so_many_keys_and_no_more() {
    let mut machine = Machine::with_bundle();
    for number in 11..9 + u8::try_from(KEYS_OF_NODE_MAX).unwrap() + 1 {
        machine.rotate(Some(1));
        machine.offer(1, number, Some(1));
        machine.renew(&[1, 2]);
    }
    let full = refused(Refusal::KeyLimit);
    assert_eq!(machine.rotate(Some(1)), full);
    assert_eq!(machine.rotate(None), full);
    assert!(!machine.state.is_rotation_wanted(2));
    assert_eq!(machine.rotate(Some(2)), wanted(&[2]));
    // A wish that the root key has made void is gone with it.
    let now_s = machine.now_s();
    let keys = [11, 12, 13].map(|number| bundle_key(2, number, now_s));
    let mut keys = keys.to_vec();
    keys.extend(old_keys(&[(1, 1)]));
    let next = Bundle::new(terms(&machine.state, 20, now_s), keys).unwrap();
    machine.put_bundle(signed(&next, &[ROOT]));
    assert!(!machine.state.is_rotation_wanted(2));
}

#[test]
fn nodes_beyond_the_bundle_offer_so_many_keys_and_make_way() {
    let mut machine = Machine::with_bundle();
    let strangers = u8::try_from(OFFERS_MAX).unwrap();
    for stranger in 0..strangers {
        let came = machine.offer(100 + u64::from(stranger), 30 + stranger, None);
        assert_eq!(came, Outcome::KeyOffered);
    }
    assert_eq!(machine.offer(99, 90, None), refused(Refusal::OfferLimit));
    // One that is there already may change its mind.
    assert_eq!(machine.offer(100, 91, None), Outcome::KeyOffered);
    machine.rotate(Some(3));
    assert_eq!(machine.offer(3, 13, Some(3)), Outcome::KeyOffered);
    assert_eq!(machine.offer(2, 12, None), Outcome::KeyOffered);
    assert_eq!(machine.state.offers().count(), OFFERS_MAX);
    let last = 99 + u64::from(strangers);
    let kept = [last - 2, last - 1, last].map(|node| machine.state.offered(node).is_some());
    assert_eq!(kept, [true, false, false]);
    assert!(machine.due().is_some());
}

#[test]
fn retired_keys_are_forgotten_oldest_first_but_never_those_of_the_bundle() {
    let mut machine = Machine::with_bundle();
    machine.retire(3);
    let many = u8::try_from(RETIRED_KEPT).unwrap() + 5;
    for number in 30..30 + many {
        machine.wall_ms += 1;
        machine.offer(9, number, None);
        assert_eq!(
            machine.retire(number),
            Outcome::KeyRetired { retired: true }
        );
    }
    assert_eq!(machine.state.retired().count(), RETIRED_KEPT);
    let kept = |number| machine.state.is_retired(kid(number));
    assert_eq!(
        [3, 30, 35, 36, 37].map(kept),
        [true, false, false, true, true]
    );
}

#[test]
fn signing_keys_are_for_operators() {
    let mut machine = Machine::with_bundle();
    machine.state.add_admin(permission("root", "", "operate"));
    machine
        .state
        .add_admin(permission("bot", "", "acquire,read,revoke"));
    let before = machine.state.signing_keys();
    for by in [None, Some("bot")] {
        let by = by.map(principal);
        let denied = refused(Refusal::PermissionDenied);
        let node = Some(1);
        let rotate = Command::RotateKeys {
            by: by.clone(),
            node,
        };
        assert_eq!(machine.one(rotate), denied);
        // What there is does not show.
        for number in [1, 99] {
            let (by, kid) = (by.clone(), kid(number));
            assert_eq!(machine.one(Command::RetireKey { by, kid }), denied);
        }
    }
    assert_eq!(machine.state.signing_keys(), before);
    assert!(!machine.state.is_rotation_wanted(1));
    let by = Some(principal("root"));
    let rotate = Command::RotateKeys { by, node: Some(1) };
    assert_eq!(machine.one(rotate), wanted(&[1]));
    // Signatures speak for themselves.
    machine.wall_ms += LIFE_S / 3 * 1_000;
    assert_eq!(machine.offer(1, 11, Some(1)), Outcome::KeyOffered);
    assert_eq!(machine.renew(&[1, 2]), Outcome::BundlePut);
}
