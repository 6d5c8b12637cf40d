use epoch_core::{OpenId, SessionId};
use uuid::Uuid;

use super::machine::{Machine, refused, scope};
use crate::outcome::{Outcome, Refusal};

#[test]
fn an_open_again_finds_the_session_while_it_lives() {
    let mut machine = Machine::new();
    let first = machine.try_open(1, "agent", 10_000);
    let Outcome::Opened {
        session, new: true, ..
    } = first
    else {
        panic!("{first:?}")
    };
    assert_eq!((session.index, session.offset), (1, 0));
    let again = machine.try_open(1, "agent", 10_000);
    assert!(
        matches!(again, Outcome::Opened { session: found, new: false, .. } if found == session)
    );

    let before = machine.state.clone();
    let reused = refused(Refusal::OpenIdReused);
    assert_eq!(machine.try_open(1, "other", 10_000), reused);
    assert_eq!(machine.try_open(1, "agent", 10_001), reused);
    assert_eq!(machine.state, before);

    machine.close(session);
    let later = machine.open(1);
    assert_ne!(later, session);
    // A late call of the old session does not reach the new one.
    assert_eq!(
        machine.try_acquire("a", session, 1),
        refused(Refusal::SessionExpired)
    );
}

#[test]
fn a_session_that_ends_takes_its_grants_and_ids_along_and_no_others() {
    for ends in [Machine::close, Machine::expire] {
        let mut machine = Machine::new();
        let (session, other) = (machine.open(1), machine.open(2));
        let released = machine.acquire("released", session, 1);
        machine.release("released", session, released.epoch);
        let held = machine.acquire("a", session, 2);
        machine.acquire("b", session, 3);
        machine.acquire("others", other, 1);

        let outcome = ends(&mut machine, session);
        let ended_two = matches!(
            outcome,
            Outcome::Closed {
                closed: true,
                ended: 2
            } | Outcome::Expired {
                expired: true,
                ended: 2
            }
        );
        assert!(ended_two, "{outcome:?}");
        let counts = machine.state.counts();
        assert_eq!((counts.sessions, counts.grants, counts.spent), (1, 1, 0));
        assert_eq!(machine.state.scope(&scope("a"), 1).held, None);
        assert!(machine.state.scope(&scope("others"), 1).held.is_some());
        assert!(machine.acquire("a", other, 2).epoch > held.epoch);

        let again = ends(&mut machine, session);
        let nothing = matches!(
            again,
            Outcome::Closed {
                closed: false,
                ended: 0
            } | Outcome::Expired {
                expired: false,
                ended: 0
            }
        );
        assert!(nothing, "{again:?}");
    }
}

#[test]
fn a_close_with_another_open_id_closes_nothing() {
    let mut machine = Machine::new();
    let session = machine.open(1);
    let forged = SessionId {
        open_id: OpenId(Uuid::from_u128(9)),
        ..session
    };
    assert_eq!(
        machine.close(forged),
        Outcome::Closed {
            closed: false,
            ended: 0
        }
    );
    assert!(machine.state.session(&session).is_some());
    assert!(machine.state.session(&forged).is_none());
}
