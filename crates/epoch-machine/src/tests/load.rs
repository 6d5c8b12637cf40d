use epoch_core::{Holder, OpenId, RequestId};
use uuid::Uuid;

use super::machine::{LEADERSHIP, Machine, epoch, scope};
use crate::command::{SessionKey, Ttl};
use crate::load::{Head, HeldRow, LoadError, Loader, ScopeRow, SessionRow};
use crate::load::{SpentRow, StandingRow};
use crate::promise::consistent;
use crate::rows::SpentUse;
use crate::state::{KEYS_MAX, SPENT_IDS_KEPT, State};
use crate::terms::Terms;

fn head() -> Head {
    Machine::new().state.head()
}

fn session_row(index: u64, open_id: u128) -> SessionRow {
    SessionRow {
        key: SessionKey { index, offset: 0 },
        open_id: OpenId(Uuid::from_u128(open_id)),
        holder: Holder::parse("agent").unwrap(),
        ttl: Ttl::from_ms(1_000).unwrap(),
        stall_limit: None,
        forgotten: 3,
    }
}

fn scope_row(name: &str, session: u64, request_id: u64) -> ScopeRow {
    ScopeRow {
        scope: scope(name),
        epoch: epoch(9),
        standing: StandingRow::Held(HeldRow {
            session: SessionKey {
                index: session,
                offset: 0,
            },
            request_id: RequestId::new(request_id).ok(),
            leadership: LEADERSHIP,
            index: 5,
            offset: 1,
            terms: Terms::default(),
            before: None,
        }),
    }
}

fn loader() -> Loader {
    let mut loader = Loader::new(head()).unwrap();
    loader.session(session_row(1, 1)).unwrap();
    loader
}

fn spend(loader: &mut Loader, session: u64, id: u64) -> Result<(), LoadError> {
    let session = SessionKey {
        index: session,
        offset: 0,
    };
    loader.spent(SpentRow {
        session,
        request_id: RequestId::new(id).unwrap(),
        scope: scope("s"),
        what: SpentUse::Grant,
    })
}

#[test]
fn a_state_that_went_out_and_in_is_equal_and_consistent() {
    let mut machine = Machine::new();
    let (first, second) = (machine.open(1), machine.open(2));
    for (id, session) in (1..200).zip([first, second].into_iter().cycle()) {
        let grant = machine.acquire(&format!("{id}"), session, id);
        if id % 3 == 0 {
            machine.release(&format!("{id}"), grant.session, grant.epoch);
        }
    }
    machine.register_key(1, 7);
    let state = &machine.state;
    let mut loader = Loader::new(state.head()).unwrap();
    state
        .session_rows()
        .for_each(|row| loader.session(row).unwrap());
    state
        .scope_rows()
        .for_each(|row| loader.scope(row).unwrap());
    for row in state.spent_rows() {
        loader.spent(row).unwrap();
    }
    let mut loaded = loader.finish().unwrap();
    assert_eq!(&loaded, state);
    assert_eq!(loaded.hash(), state.hash());
    assert!(loaded.take_changes().is_empty());
    consistent(&loaded).unwrap();
}

#[test]
fn equality_is_of_what_later_entries_can_see() {
    let mut machine = Machine::new();
    machine.open(1);
    let mut other = machine.state.clone();
    other.origin = std::sync::Arc::new(crate::rows::Origin {
        leadership: crate::Leadership { term: 99, node: 9 },
        terms: Terms::default(),
        before: None,
    });
    assert_eq!(other, machine.state);
    let changes: [fn(&mut State); 4] = [
        |state| state.now_ms += 1,
        |state| state.group += 1,
        |state| {
            let only = state.rows.sessions().get_min().unwrap().0;
            state.rows.remove_session(only);
        },
        |state| {
            state.rows.put_key(1, std::sync::Arc::new([1; 32]));
        },
    ];
    for change in changes {
        let mut changed = machine.state.clone();
        change(&mut changed);
        assert_ne!(changed, machine.state);
    }
}

#[test]
fn rows_that_do_not_fit_together_are_refused() {
    assert!(matches!(
        loader().session(session_row(1, 2)),
        Err(LoadError::Duplicate(_))
    ));
    assert!(matches!(
        loader().session(session_row(2, 1)),
        Err(LoadError::Duplicate(_))
    ));
    assert!(matches!(
        loader().scope(scope_row("a", 2, 5)),
        Err(LoadError::NoSession(_))
    ));
    assert!(matches!(
        spend(&mut loader(), 2, 5),
        Err(LoadError::NoSession(_))
    ));
    assert!(matches!(
        spend(&mut loader(), 1, 3),
        Err(LoadError::Forgotten(_))
    ));

    let mut twice = loader();
    spend(&mut twice, 1, 4).unwrap();
    assert!(matches!(
        spend(&mut twice, 1, 4),
        Err(LoadError::Duplicate(_))
    ));

    let mut too_many = loader();
    for id in 0..u64::from(SPENT_IDS_KEPT) {
        spend(&mut too_many, 1, 10 + id).unwrap();
    }
    assert_eq!(spend(&mut too_many, 1, 5_000), Err(LoadError::TooManySpent));

    for second in [scope_row("a", 1, 6), scope_row("b", 1, 5)] {
        let mut twice = loader();
        twice.scope(scope_row("a", 1, 5)).unwrap();
        twice.scope(second).unwrap();
        assert!(matches!(twice.finish(), Err(LoadError::Duplicate(_))));
    }
    let mut spent_and_held = loader();
    spent_and_held.scope(scope_row("a", 1, 5)).unwrap();
    spend(&mut spent_and_held, 1, 5).unwrap();
    assert!(matches!(
        spent_and_held.finish(),
        Err(LoadError::Duplicate(_))
    ));
}

#[test]
fn a_head_with_a_key_twice_or_too_many_is_refused() {
    let twice = Head {
        keys: vec![(1, [1; 32]), (1, [1; 32])],
        ..head()
    };
    assert!(matches!(Loader::new(twice), Err(LoadError::Duplicate(_))));
    let many = (0..=u64::try_from(KEYS_MAX).unwrap())
        .map(|node| (node, [1; 32]))
        .collect();
    assert!(matches!(
        Loader::new(Head {
            keys: many,
            ..head()
        }),
        Err(LoadError::TooManyKeys)
    ));
}
