use epoch_core::{Bundle, Holder, OpenId, RequestId};
use uuid::Uuid;

use super::keys::{NOW_S, ROOT, kid, old_keys, signed, terms, verifying};
use super::machine::{
    LEADERSHIP, Machine, audit_record, epoch, permission, principal, scope, token,
};
use crate::admin::{AdminRow, Offer, Retired};
use crate::command::{SessionKey, Ttl};
use crate::limits::Limits;
use crate::load::{Head, HeldRow, LoadError, Loader, ScopeRow, SessionRow};
use crate::load::{SpentRow, StandingRow};
use crate::promise::consistent;
use crate::rows::SpentUse;
use crate::state::{
    AUDIT_KEPT, BUNDLES_MAX, LIMITED_MAX, OFFERS_MAX, PERMISSIONS_MAX, PERMISSIONS_OF_ONE_MAX,
    RETIRED_KEPT, SPENT_IDS_KEPT, State, TOKENS_MAX, TOKENS_OF_ONE_MAX,
};
use crate::terms::Terms;

/// A state that went out and in as rows.
pub(super) fn reloaded(state: &State) -> Result<State, LoadError> {
    let mut loader = Loader::new(state.head());
    state
        .session_rows()
        .try_for_each(|row| loader.session(row))?;
    state.scope_rows().try_for_each(|row| loader.scope(row))?;
    state.spent_rows().try_for_each(|row| loader.spent(row))?;
    state.wait_rows().try_for_each(|row| loader.wait(row))?;
    state.record_rows().try_for_each(|row| loader.record(row))?;
    state.admin_rows().try_for_each(|row| loader.admin(row))?;
    loader.finish()
}

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
        principal: None,
        holder_key: None,
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
    let mut loader = Loader::new(head());
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
    machine.first_bundle();
    machine.rotate(None);
    machine.offer(1, 11, Some(1));
    machine.renew(&[1, 2]);
    machine.offer(2, 12, Some(2));
    machine.retire(1);
    let state = &machine.state;
    let mut loaded = reloaded(state).unwrap();
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
            state.rows.put_admin(AdminRow::Rotation(1));
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

fn bundle(sequence: u64, signers: &[u8]) -> AdminRow {
    let terms = terms(&Machine::new().state, sequence, NOW_S);
    let bundle = Bundle::new(terms, old_keys(&[(1, 1)])).unwrap();
    AdminRow::Bundle(signed(&bundle, signers))
}

fn offer(node: u64, number: u8) -> AdminRow {
    AdminRow::Offer(Offer {
        node,
        key: verifying(number),
        endorsed: false,
    })
}

fn retired(number: u8) -> AdminRow {
    AdminRow::Retired(Retired {
        kid: kid(number),
        time_ms: 1,
    })
}

#[test]
fn rows_of_trust_that_do_not_fit_together_are_refused() {
    let mut other = Machine::new().state;
    other.incarnation = epoch_core::Incarnation(Uuid::from_u128(9));
    let of_another_life = Bundle::new(terms(&other, 1, NOW_S), old_keys(&[(1, 1)])).unwrap();
    let of_another_life = AdminRow::Bundle(signed(&of_another_life, &[ROOT]));
    let endorsed = AdminRow::Offer(Offer {
        node: 2,
        key: verifying(12),
        endorsed: true,
    });
    let first = || bundle(1, &[ROOT]);
    let wanted = AdminRow::Rotation;
    let not_own = "a bundle of another cluster, incarnation or root";
    let does_not_follow = "a bundle that does not follow the one before it";
    for (what, rows) in [
        ("a key wanted or offered without a bundle", vec![wanted(1)]),
        (
            "a key wanted or offered without a bundle",
            vec![offer(1, 11)],
        ),
        (not_own, vec![of_another_life]),
        ("a chain of bundles without root", vec![bundle(1, &[1])]),
        (does_not_follow, vec![first(), bundle(3, &[1])]),
        (does_not_follow, vec![first(), bundle(2, &[ROOT])]),
        ("a key wanted of an unknown node", vec![first(), wanted(2)]),
        ("a key that nobody may offer", vec![first(), endorsed]),
        ("a key that nobody may offer", vec![first(), offer(2, 1)]),
        ("a key that nobody may offer", vec![first(), offer(0, 11)]),
        (
            "a key that nobody may offer",
            vec![first(), offer(1 << 53, 11)],
        ),
        ("a key that nobody may offer", vec![first(), offer(2, ROOT)]),
        (
            "a key offered twice",
            vec![first(), offer(2, 12), offer(3, 12)],
        ),
    ] {
        assert_eq!(refused(rows), LoadError::Trust(what));
    }
}

fn refused(rows: Vec<AdminRow>) -> LoadError {
    let mut loader = Loader::new(head());
    let added = rows.into_iter().try_for_each(|row| loader.admin(row));
    added.and_then(|()| loader.finish()).unwrap_err()
}

#[test]
fn rare_rows_that_are_there_twice_or_say_nothing_are_refused() {
    let token = |hash, label| AdminRow::Token(token("bot", hash, label));
    for twice in [
        vec![AdminRow::Rotation(1), AdminRow::Rotation(1)],
        vec![bundle(1, &[ROOT]), bundle(1, &[1])],
        vec![retired(1), retired(1)],
        vec![offer(1, 11), offer(1, 12)],
        vec![
            permission("bot", "", "operate"),
            permission("bot", "", "read"),
        ],
        vec![token(1, "ci"), token(1, "other")],
        vec![token(1, "ci"), token(2, "ci")],
    ] {
        let error = refused(twice);
        assert!(matches!(error, LoadError::Duplicate(_)), "{error}");
    }
    let limits = AdminRow::Limits {
        principal: principal("bot"),
        limits: Limits::default(),
    };
    assert_eq!(refused(vec![limits]), LoadError::NoLimits(principal("bot")));
    let nobody = vec![
        permission("bot", "a", "operate"),
        permission("bot", "", "read"),
    ];
    assert_eq!(refused(nobody), LoadError::NoOperator);
}

#[test]
fn more_rare_rows_than_are_kept_are_refused() {
    let many = |count: usize, row: &dyn Fn(u64) -> AdminRow| {
        let count = u64::try_from(count).unwrap();
        (0..=count).map(row).collect::<Vec<_>>()
    };
    let owner = |number: u64| format!("p{number}");
    let root = || permission("root", "", "operate");
    for (what, rows) in [
        ("permissions", {
            let row = |number: u64| permission(&owner(number), "", "operate");
            many(PERMISSIONS_MAX, &row)
        }),
        ("permissions of one principal", {
            let row = |number: u64| permission("bot", &number.to_string(), "read");
            let mut rows = many(PERMISSIONS_OF_ONE_MAX, &row);
            rows.push(root());
            rows
        }),
        ("tokens", {
            let row = |number: u64| {
                AdminRow::Token(token(&owner(number), u8::try_from(number).unwrap(), "ci"))
            };
            many(TOKENS_MAX, &row)
        }),
        ("tokens of one principal", {
            let row = |number: u64| {
                let byte = u8::try_from(number).unwrap();
                AdminRow::Token(token("bot", byte, &owner(number)))
            };
            many(TOKENS_OF_ONE_MAX, &row)
        }),
        ("limits", {
            let row = |number: u64| AdminRow::Limits {
                principal: principal(&owner(number)),
                limits: Limits {
                    waits: Some(0),
                    ..Limits::default()
                },
            };
            many(LIMITED_MAX, &row)
        }),
        ("audit records", {
            let row = |number: u64| AdminRow::Audit(audit_record(number + 1));
            many(usize::try_from(AUDIT_KEPT).unwrap(), &row)
        }),
        ("trust bundles", {
            let signer = |number| if number == 0 { ROOT } else { 1 };
            let row = |number: u64| bundle(number + 1, &[signer(number)]);
            many(BUNDLES_MAX, &row)
        }),
        ("offered keys", {
            let row = |number: u64| offer(number + 1, u8::try_from(20 + number).unwrap());
            many(OFFERS_MAX, &row)
        }),
        ("retired keys", {
            let row = |number: u64| retired(u8::try_from(number).unwrap());
            many(RETIRED_KEPT, &row)
        }),
    ] {
        assert_eq!(refused(rows), LoadError::TooMany(what));
    }
}
