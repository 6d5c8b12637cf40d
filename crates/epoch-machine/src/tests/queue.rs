//! Who is next: the order of handovers, and how long a queue gets.

use epoch_core::SessionId;

use super::machine::{Machine, refused, scope, terms};
use crate::command::SessionKey;
use crate::outcome::{Outcome, Refusal};
use crate::state::{QUEUE_MAX, SessionItem, SessionPlace, WAITS_MAX};

/// A machine in which the first of these sessions holds `a` and the others wait for it, in order.
fn queue(others: u128) -> (Machine, Vec<SessionId>) {
    let mut machine = Machine::new();
    let sessions: Vec<_> = (1..=others + 1).map(|id| machine.open(id)).collect();
    machine.acquire_on(terms(0, ""), "a", sessions[0], 1);
    for session in &sessions[1..] {
        machine.wait("a", *session, 1);
    }
    (machine, sessions)
}

fn holder(machine: &Machine) -> Option<SessionId> {
    let held = machine.state.scope(&scope("a"), 0).held?;
    let mut sessions = machine.state.sessions();
    let found = sessions.find(|(key, session)| key.with(session.open_id).hash() == held.session);
    found.map(|(key, session)| key.with(session.open_id))
}

#[test]
fn whatever_ends_a_grant_the_one_that_came_first_is_next() {
    let ends: [fn(&mut Machine, SessionId); 4] = [
        |machine, session| {
            let epoch = machine.granted(session, 1).unwrap();
            let outcome = machine.release("a", session, epoch);
            assert_eq!(outcome, Outcome::Released { released: true });
        },
        |machine, session| {
            machine.close(session);
        },
        |machine, session| {
            machine.expire(session);
        },
        |machine, _| {
            machine.revoke("a", None);
        },
    ];
    for end in ends {
        let (mut machine, sessions) = queue(5);
        for pair in sessions.windows(2) {
            assert_eq!(holder(&machine), Some(pair[0]));
            end(&mut machine, pair[0]);
            assert_eq!(holder(&machine), Some(pair[1]));
        }
        assert_eq!(machine.state.counts().waits, 0);
        end(&mut machine, sessions[5]);
        assert_eq!(holder(&machine), None);
    }
}

#[test]
fn who_leaves_the_queue_is_passed_over() {
    let (mut machine, sessions) = queue(5);
    machine.cancel_wait("a", sessions[1], 1);
    machine.end_wait(sessions[2], 1);
    machine.close(sessions[3]);
    assert_eq!(machine.told()[0], "wait session ended: a session-4.0 id=1");
    machine.expire(sessions[4]);
    machine.revoke("a", None);
    assert_eq!(holder(&machine), Some(sessions[5]));
}

#[test]
fn who_comes_again_after_its_grant_is_last() {
    let (mut machine, sessions) = queue(2);
    let epoch = machine.granted(sessions[0], 1).unwrap();
    machine.release("a", sessions[0], epoch);
    assert_eq!(machine.wait("a", sessions[0], 2), Outcome::Waiting);
    machine.revoke("a", None);
    assert_eq!(holder(&machine), Some(sessions[2]));
    machine.revoke("a", None);
    assert_eq!(holder(&machine), Some(sessions[0]));
}

#[test]
fn a_session_that_ends_gets_nothing_of_what_it_waits_for() {
    for ends in [Machine::close, Machine::expire] {
        let mut machine = Machine::new();
        let (first, second, third) = (machine.open(1), machine.open(2), machine.open(3));
        // Each holds one and waits for the other's.
        machine.acquire("a", first, 1);
        machine.acquire("b", second, 1);
        machine.wait("b", first, 2);
        machine.wait("a", second, 2);
        machine.wait("a", third, 2);
        ends(&mut machine, second);
        // First in line for `b`, and the only one left for `a`.
        assert!(machine.granted(first, 2).is_some());
        assert_eq!(holder(&machine), Some(first));
        ends(&mut machine, first);
        assert_eq!(holder(&machine), Some(third));
        let counts = machine.state.counts();
        assert_eq!((counts.grants, counts.waits, counts.spent), (1, 0, 0));
    }
}

#[test]
fn one_end_of_a_session_hands_over_all_its_scopes() {
    let mut machine = Machine::new();
    let (first, second) = (machine.open(1), machine.open(2));
    for (id, name) in (1..).zip(["a", "b", "c"]) {
        machine.acquire(name, first, id);
        machine.wait(name, second, id);
    }
    machine.expire(first);
    let grants: Vec<_> = machine
        .told()
        .into_iter()
        .filter(|event| event.contains("granted: ") && !event.starts_with("wait"))
        .collect();
    assert_eq!(
        grants,
        [
            "9.2 granted: a 0+2 session-2.0 id=1",
            "9.4 granted: b 0+2 session-2.0 id=2",
            "9.6 granted: c 0+2 session-2.0 id=3",
        ]
    );
}

#[test]
fn a_queue_that_is_full_takes_nobody_more() {
    let others = u128::try_from(QUEUE_MAX).unwrap();
    let (mut machine, sessions) = queue(others);
    let late = machine.open(1_000);
    let before = machine.state.clone();
    assert_eq!(machine.wait("a", late, 1), refused(Refusal::QueueFull));
    assert_eq!(machine.state, before);
    // One that is in it already keeps its place, and a try is only told that the scope is held.
    assert_eq!(machine.wait("a", sessions[3], 1), Outcome::Waiting);
    let tried = machine.try_acquire("a", late, 1);
    assert!(matches!(tried, Outcome::Refused(Refusal::ScopeHeld { .. })));
    machine.end_wait(sessions[3], 1);
    assert_eq!(machine.wait("a", late, 1), Outcome::Waiting);
}

#[test]
fn no_more_waits_begin_than_are_kept() {
    let mut machine = Machine::new();
    machine.checked = false;
    let owner = machine.open(1);
    let waiters = [2, 3, 4, 5, 6].map(|id| machine.open(id));
    let scopes = u64::try_from(WAITS_MAX / waiters.len()).unwrap();
    for id in 1..=scopes {
        machine.acquire(&id.to_string(), owner, id);
        for waiter in waiters {
            assert_eq!(machine.wait(&id.to_string(), waiter, id), Outcome::Waiting);
        }
    }
    machine.acquire("one more", owner, scopes + 1);
    let refusal = refused(Refusal::WaitLimit);
    assert_eq!(machine.wait("one more", waiters[0], scopes + 1), refusal);
    assert_eq!(machine.wait("1", waiters[0], 1), Outcome::Waiting);
    machine.checked = true;
    machine.end_wait(waiters[0], 1);
    let outcome = machine.wait("one more", waiters[0], scopes + 1);
    assert_eq!(outcome, Outcome::Waiting);
}

#[test]
fn anyone_can_see_who_waits_in_order() {
    let (machine, sessions) = queue(5);
    for limit in [0, 1, 3, 100] {
        let state = machine.state.scope(&scope("a"), limit);
        let shown: Vec<_> = state.queue.iter().map(|wait| wait.session).collect();
        let expected: Vec<_> = sessions[1..].iter().map(SessionId::hash).collect();
        assert_eq!(shown, expected[..limit.min(5)]);
        assert_eq!(state.waiting, 5);
    }
}

#[test]
fn a_session_is_told_what_it_has_in_pages() {
    let (mut machine, sessions) = queue(2);
    let session = sessions[2];
    for id in 2..6 {
        machine.acquire(&format!("own/{id}"), session, id);
    }
    let epoch = machine.acquire("given", sessions[1], 9).epoch;
    machine.transfer("given", sessions[1], epoch, session);
    for limit in 1..8 {
        let (mut items, mut after) = (Vec::new(), None);
        loop {
            let page = machine.state.session_page(&session, after.as_ref(), limit);
            let page = page.unwrap();
            assert!(page.items.len() <= limit);
            items.extend(page.items.into_iter().map(|item| match item {
                SessionItem::Grant(grant) => grant.scope.to_string(),
                SessionItem::Wait { scope, ahead, .. } => format!("{scope}, {ahead} ahead"),
            }));
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        let all = ["given", "own/2", "own/3", "own/4", "own/5", "a, 1 ahead"];
        assert_eq!(items, all, "limit {limit}");
    }
    let after = SessionPlace::Grant(None, scope("given"));
    let page = machine.state.session_page(&session, Some(&after), 1);
    assert_eq!(page.unwrap().items.len(), 1);
    machine.close(session);
    assert_eq!(machine.state.session_page(&session, None, 1), None);
    assert!(
        machine
            .state
            .sessions()
            .all(|(key, _)| key != SessionKey::from(&session))
    );
}
