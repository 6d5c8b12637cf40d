//! The life of a signing key, over replicated time.

use super::keys::{AGE_S, LIFE_S, ROOT, bundle_key, kid, old_keys, signed};
use super::machine::Machine;
use crate::outcome::Outcome;
use crate::state::CERTIFICATE_LIFE_S;

const MARGIN_S: u64 = 600;

impl Machine {
    fn pass(&mut self, seconds: u64) {
        self.wall_ms += seconds * 1_000;
        self.apply(Vec::new());
    }
}

#[test]
fn a_key_is_offered_ages_signs_verifies_and_goes() {
    let mut machine = Machine::with_bundle();
    machine.rotate(Some(1));
    machine.offer(1, 11, Some(1));
    let others = ["2:2 signing", "3:3 signing"];
    let all = |of_first: &[&'static str]| [of_first, &others].concat();
    let offered = ["1:1 signing", "2:2 signing", "3:3 signing", "1:11 offered"];
    assert_eq!(machine.standings(), offered);

    machine.renew(&[1, 2]);
    let sequence = |machine: &Machine| machine.state.bundle().unwrap().bundle().terms().sequence;
    assert_eq!(machine.standings(), all(&["1:1 signing", "1:11 aging"]));
    machine.pass(AGE_S - 1);
    assert_eq!(machine.standings(), all(&["1:1 signing", "1:11 aging"]));
    machine.pass(1);
    assert_eq!(machine.standings(), all(&["1:1 verifying", "1:11 signing"]));

    // No certificate of the old key can be valid any more, whatever clocks differ by.
    machine.pass(CERTIFICATE_LIFE_S + MARGIN_S - 1);
    assert_eq!((machine.due(), sequence(&machine)), (None, 2));
    machine.pass(1);
    assert_eq!(machine.renew(&[11, 2]), Outcome::BundlePut);
    assert_eq!(machine.standings(), all(&["1:11 signing"]));
    assert!(machine.state.is_retired(kid(1)));
    // Not due again before a third of its life is over.
    assert_eq!((machine.due(), sequence(&machine)), (None, 3));
    machine.pass(LIFE_S / 3 - 1);
    assert_eq!(machine.due(), None);
    machine.pass(1);
    assert_eq!(machine.due().unwrap().keys().len(), 3);
}

#[test]
fn a_retired_successor_gives_its_place_back() {
    let mut machine = Machine::with_bundle();
    machine.rotate(Some(1));
    machine.offer(1, 11, Some(1));
    machine.renew(&[1, 2]);
    machine.pass(AGE_S);
    machine.retire(11);
    let standings = ["1:1 signing", "1:11 retiring", "2:2 signing", "3:3 signing"];
    assert_eq!(machine.standings(), standings);
    machine.renew(&[1, 2]);
    machine.pass(CERTIFICATE_LIFE_S + MARGIN_S);
    assert_eq!(machine.due(), None);
    assert_eq!(machine.in_bundle(), [(1, 1), (2, 2), (3, 3)]);
}

#[test]
fn the_next_bundle_is_the_same_on_a_node_that_was_loaded_from_rows() {
    let mut machine = Machine::with_bundle();
    machine.rotate(None);
    for node in [3, 1_u8] {
        machine.offer(node.into(), 10 + node, Some(node));
    }
    machine.retire(2);
    let loaded = super::load::reloaded(&machine.state).unwrap();
    let due = machine.due().unwrap();
    assert_eq!(loaded.due_bundle(machine.now_s()).as_ref(), Some(&due));
    assert_eq!(loaded.signing_keys(), machine.state.signing_keys());
    // It is one for each second: that is what nodes sign.
    let later = machine.state.due_bundle(machine.now_s() + 1).unwrap();
    assert_ne!(later.to_json(), due.to_json());
    // None is due before the newest was issued.
    assert_eq!(machine.state.due_bundle(machine.now_s() - 1), None);
}

#[test]
fn where_the_root_gives_a_node_more_keys_than_it_may_have_others_still_go() {
    let mut machine = Machine::with_bundle();
    // As many keys as a bundle can have.
    let mut keys = old_keys(&[(1, 1), (2, 2), (3, 3), (4, 4)]);
    keys.extend((40..68).map(|number| bundle_key(1, number, machine.now_s())));
    let next = machine.next(keys);
    machine.put_bundle(signed(&next, &[ROOT]));
    machine.rotate(Some(2));
    machine.offer(2, 12, Some(2));
    // No room for it yet, and no reason for another bundle.
    assert_eq!(machine.due(), None);
    machine.retire(40);
    machine.renew(&[1, 2, 3]);
    let keys = machine.in_bundle();
    assert!(keys.contains(&(2, 12)) && !keys.contains(&(1, 40)));
    assert_eq!(machine.due(), None);
}

#[test]
fn of_two_keys_that_sign_from_the_same_second_one_goes() {
    let mut machine = Machine::with_bundle();
    for (number, endorser) in [(11, 1), (21, 11)] {
        machine.rotate(Some(1));
        machine.offer(1, number, Some(endorser));
        machine.renew(&[1, 2]);
    }
    machine.pass(AGE_S);
    let signs = machine.standings();
    let signs = signs
        .iter()
        .find(|it| it.starts_with("1:") && it.ends_with("signing"));
    let signs = signs.unwrap().clone();
    machine.pass(CERTIFICATE_LIFE_S + MARGIN_S);
    let last = if signs == "1:11 signing" { 11 } else { 21 };
    machine.renew(&[last, 2]);
    assert_eq!(machine.standings(), [&*signs, "2:2 signing", "3:3 signing"]);
}
