//! What a keepalive compares: each session's digest of its grants, after each way to one and from
//! one. `consistent` computes it anew after every command of these tests.

use epoch_core::{Epoch, GrantsDigest, SessionId};

use super::machine::Machine;

fn digest(machine: &Machine, session: SessionId) -> GrantsDigest {
    machine.state.session(&session).unwrap().digest()
}

fn of(grants: &[(&str, Epoch)]) -> GrantsDigest {
    grants
        .iter()
        .fold(GrantsDigest::default(), |digest, (name, epoch)| {
            digest.with(name, *epoch)
        })
}

#[test]
fn a_session_without_grants_has_the_empty_digest() {
    let mut machine = Machine::new();
    let (first, second) = (machine.open(1), machine.open(2));
    let grant = machine.acquire("a", first, 1);
    machine.wait("a", second, 1);
    // A wait is no grant.
    assert_eq!(digest(&machine, second), of(&[]));
    machine.release("a", first, grant.epoch);
    assert_eq!(digest(&machine, first), of(&[]));
    assert_ne!(digest(&machine, second), of(&[]));
}

#[test]
fn a_digest_follows_every_change_of_the_grants() {
    let mut machine = Machine::new();
    let (first, second) = (machine.open(1), machine.open(2));
    let a = machine.acquire("a", first, 1).epoch;
    let b = machine.acquire("b", first, 2).epoch;
    assert_eq!(digest(&machine, first), of(&[("a", a), ("b", b)]));
    // Whatever the order.
    assert_eq!(digest(&machine, first), of(&[("b", b), ("a", a)]));

    machine.reissue("a", first, 3);
    let reissued = machine.granted(first, 3).unwrap();
    assert_eq!(digest(&machine, first), of(&[("a", reissued), ("b", b)]));
    machine.transfer("a", first, reissued, second);
    assert_eq!(digest(&machine, first), of(&[("b", b)]));
    let given = Epoch::new(reissued.get() + 1).unwrap();
    assert_eq!(digest(&machine, second), of(&[("a", given)]));
    machine.wait("b", second, 4);
    machine.revoke("b", None);
    let handed_over = machine.granted(second, 4).unwrap();
    assert_eq!(digest(&machine, first), of(&[]));
    let both = of(&[("a", given), ("b", handed_over)]);
    assert_eq!(digest(&machine, second), both);
    machine.acquire_many(&["c", "d"], first, 10);
    let [c, d] = [10, 11].map(|id| machine.granted(first, id).unwrap());
    assert_eq!(digest(&machine, first), of(&[("c", c), ("d", d)]));
    machine.wait("a", first, 12);
    machine.expire(second);
    let a = machine.granted(first, 12).unwrap();
    assert_eq!(digest(&machine, first), of(&[("a", a), ("c", c), ("d", d)]));
}
