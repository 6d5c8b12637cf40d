use std::collections::BTreeSet;
use std::sync::Arc;

use epoch_core::{ClusterId, Holder, Incarnation, OpenId, RequestId};
use siphasher::sip128::SipHasher24;
use uuid::Uuid;

use super::machine::{epoch, scope};
use super::random::Random;
use crate::command::{Leadership, PublicKey, SessionKey, Ttl};
use crate::hash::StateHash;
use crate::load::{Head, HeldRow, Loader, ScopeRow, SessionRow};
use crate::rows::{Held, Row};
use crate::state::{SessionState, State};

/// The hash by the table in its documentation, from the rows that go into a snapshot.
pub(super) fn hash_of_rows(state: &State) -> StateHash {
    let head = state.head();
    let sip = SipHasher24::new_with_key(head.cluster_id.0.as_bytes());
    let key_bytes =
        |key: SessionKey| [&key.index.to_le_bytes()[..], &key.offset.to_le_bytes()].concat();
    let text = |text: &str| {
        let length = u32::try_from(text.len()).unwrap();
        [&length.to_le_bytes()[..], text.as_bytes()].concat()
    };
    let mut rows: Vec<Vec<u8>> = Vec::new();
    rows.extend(state.session_rows().map(|row| {
        [
            &[1][..],
            &key_bytes(row.key),
            row.open_id.0.as_bytes(),
            &text(row.holder.as_str()),
            &row.ttl.ms().to_le_bytes(),
            &row.forgotten.to_le_bytes(),
        ]
        .concat()
    }));
    rows.extend(state.scope_rows().map(|row| {
        let held = row.held.map_or(vec![0], |held| {
            [
                &[1][..],
                &key_bytes(held.session),
                &held.request_id.get().to_le_bytes(),
                &held.index.to_le_bytes(),
                &held.offset.to_le_bytes(),
                &held.leadership.term.to_le_bytes(),
                &held.leadership.node.to_le_bytes(),
            ]
            .concat()
        });
        let epoch = row.epoch.get().to_le_bytes();
        [&[2][..], &text(row.scope.as_str()), &epoch, &held].concat()
    }));
    rows.extend(state.spent_rows().map(|(key, id, scope)| {
        let id = id.get().to_le_bytes();
        [&[3][..], &key_bytes(key), &id, &text(scope.as_str())].concat()
    }));
    rows.extend(
        head.keys
            .iter()
            .map(|(node, key)| [&[4][..], &node.to_le_bytes(), key].concat()),
    );
    let sum = rows.iter().fold(0_u128, |sum, row| {
        sum.wrapping_add(u128::from_le_bytes(sip.hash(row).as_bytes()))
    });
    let whole = [
        &[5][..],
        &sum.to_le_bytes(),
        head.incarnation.0.as_bytes(),
        &head.group.to_le_bytes(),
        &head.now_ms.to_le_bytes(),
    ]
    .concat();
    StateHash::from_bytes(sip.hash(&whole).as_bytes())
}

fn key(index: u64, offset: u32) -> SessionKey {
    SessionKey { index, offset }
}

fn request_id(id: u64) -> RequestId {
    RequestId::new(id).unwrap()
}

/// The expected value is from another implementation, written from the table alone.
#[test]
fn the_hash_of_a_fixed_state_never_changes() {
    let mut loader = Loader::new(Head {
        cluster_id: ClusterId(Uuid::from_u128(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff)),
        incarnation: Incarnation(Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0001)),
        group: 7,
        now_ms: 1_800_000_000_000,
        keys: vec![(1, [0x11; 32]), (2, [0x22; 32])],
    })
    .unwrap();
    loader
        .session(SessionRow {
            key: key(3, 1),
            open_id: OpenId(Uuid::from_u128(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10)),
            holder: Holder::parse("agent/\u{e9}").unwrap(),
            ttl: Ttl::from_ms(10_000).unwrap(),
            forgotten: 4,
        })
        .unwrap();
    loader
        .scope(ScopeRow {
            scope: scope("reports/held"),
            epoch: epoch(1_843_200_000_000_001),
            held: Some(HeldRow {
                session: key(3, 1),
                request_id: request_id(9),
                leadership: Leadership { term: 6, node: 2 },
                index: 12,
                offset: 5,
            }),
        })
        .unwrap();
    loader
        .scope(ScopeRow {
            scope: scope("reports/free"),
            epoch: epoch(1_843_200_000_000_002),
            held: None,
        })
        .unwrap();
    loader
        .spent(key(3, 1), request_id(5), &scope("reports/free"))
        .unwrap();
    let state = loader.finish().unwrap();
    assert_eq!(state.hash().to_string(), "ad60ef407352c6e87e04bf88c7b358db");
    assert_eq!(state.hash(), hash_of_rows(&state));
    assert_eq!(StateHash::from_bytes(state.hash().to_bytes()), state.hash());
}

/// One row of each kind.
#[derive(Clone)]
struct Parts {
    cluster_id: u128,
    incarnation: u128,
    group: u32,
    now_ms: u64,
    session: Option<(SessionKey, SessionState)>,
    scope: Option<(&'static str, Row)>,
    spent: Option<(SessionKey, RequestId, &'static str)>,
    key: Option<(u64, PublicKey)>,
}

impl Parts {
    fn new() -> Self {
        let session = SessionState {
            open_id: OpenId(Uuid::from_u128(1)),
            holder: Holder::parse("agent").unwrap(),
            ttl: Ttl::from_ms(10_000).unwrap(),
            forgotten: 0,
            spent: 0,
        };
        let held = Held {
            session_index: 1,
            session_offset: 0,
            request_id: request_id(1),
            index: 1,
            offset: 0,
            leadership: Arc::new(Leadership { term: 1, node: 1 }),
        };
        let row = Row {
            epoch: epoch(1),
            held: Some(held),
        };
        Self {
            cluster_id: 1,
            incarnation: 1,
            group: 0,
            now_ms: 0,
            session: Some((key(1, 0), session)),
            scope: Some(("a", row)),
            spent: Some((key(1, 0), request_id(2), "a")),
            key: Some((1, [0; 32])),
        }
    }

    fn state(&self) -> State {
        let mut state = State::new(
            ClusterId(Uuid::from_u128(self.cluster_id)),
            Incarnation(Uuid::from_u128(self.incarnation)),
            self.group,
        );
        state.now_ms = self.now_ms;
        if let Some((key, session)) = &self.session {
            state.rows.put_session(*key, session.clone());
        }
        if let Some((name, row)) = &self.scope {
            state.rows.put_scope(Arc::from(*name), row.clone());
        }
        if let Some((key, id, name)) = self.spent {
            state.rows.put_spent((key, id), Arc::from(name));
        }
        if let Some((node, public_key)) = self.key {
            state.rows.put_key(node, Arc::new(public_key));
        }
        state
    }

    fn session(&mut self) -> &mut (SessionKey, SessionState) {
        self.session.as_mut().unwrap()
    }

    fn row(&mut self) -> &mut Row {
        &mut self.scope.as_mut().unwrap().1
    }

    fn held(&mut self) -> &mut Held {
        self.row().held.as_mut().unwrap()
    }
}

#[test]
fn each_field_of_each_row_changes_the_hash() {
    let changes: &[fn(&mut Parts)] = &[
        |parts| parts.cluster_id = 2,
        |parts| parts.incarnation = 2,
        |parts| parts.group = 1,
        |parts| parts.now_ms = 1,
        |parts| parts.session = None,
        |parts| parts.session().0.index = 2,
        |parts| parts.session().0.offset = 1,
        |parts| parts.session().1.open_id = OpenId(Uuid::from_u128(2)),
        |parts| parts.session().1.holder = Holder::parse("agenu").unwrap(),
        |parts| parts.session().1.ttl = Ttl::from_ms(10_001).unwrap(),
        |parts| parts.session().1.forgotten = 1,
        |parts| parts.scope = None,
        |parts| parts.scope.as_mut().unwrap().0 = "b",
        |parts| parts.row().epoch = epoch(2),
        |parts| parts.row().held = None,
        |parts| parts.held().session_index = 2,
        |parts| parts.held().session_offset = 1,
        |parts| parts.held().request_id = request_id(3),
        |parts| parts.held().index = 2,
        |parts| parts.held().offset = 1,
        |parts| parts.held().leadership = Arc::new(Leadership { term: 2, node: 1 }),
        |parts| parts.held().leadership = Arc::new(Leadership { term: 1, node: 2 }),
        |parts| parts.spent = None,
        |parts| parts.spent.as_mut().unwrap().0.index = 2,
        |parts| parts.spent.as_mut().unwrap().0.offset = 1,
        |parts| parts.spent.as_mut().unwrap().1 = request_id(3),
        |parts| parts.spent.as_mut().unwrap().2 = "b",
        |parts| parts.key = None,
        |parts| parts.key.as_mut().unwrap().0 = 2,
        |parts| parts.key.as_mut().unwrap().1[31] = 1,
    ];
    let mut hashes = BTreeSet::from([Parts::new().state().hash()]);
    for change in changes {
        let mut parts = Parts::new();
        change(&mut parts);
        let state = parts.state();
        assert_eq!(state.hash(), hash_of_rows(&state));
        hashes.insert(state.hash());
    }
    assert_eq!(hashes.len(), changes.len() + 1);
}

#[test]
fn the_order_of_changes_and_detours_do_not_show() {
    let parts = Parts::new();
    let (session_key, session) = parts.session.clone().unwrap();
    let (name, row) = parts.scope.clone().unwrap();
    let (spent_key, id, spent_scope) = parts.spent.unwrap();
    let (node, public_key) = parts.key.unwrap();
    let expected = parts.state();
    let put: [&dyn Fn(&mut State); 4] = [
        &|state| {
            let mut other = session.clone();
            other.forgotten = 7;
            state.rows.put_session(session_key, other);
            state.rows.put_session(session_key, session.clone());
        },
        &|state| {
            let free = Row {
                epoch: epoch(9),
                held: None,
            };
            state.rows.put_scope(Arc::from(name), free.clone());
            state.rows.put_scope(Arc::from(name), row.clone());
            state.rows.put_scope(Arc::from("gone"), free);
            assert!(state.rows.remove_scope("gone").is_some());
            assert!(state.rows.remove_scope("never").is_none());
        },
        &|state| {
            state.rows.put_spent((spent_key, id), Arc::from("other"));
            assert!(state.rows.remove_spent((spent_key, id)).is_some());
            assert!(state.rows.remove_spent((spent_key, id)).is_none());
            state.rows.put_spent((spent_key, id), Arc::from("other"));
            state
                .rows
                .put_spent((spent_key, id), Arc::from(spent_scope));
        },
        &|state| {
            assert!(state.rows.put_key(node, Arc::new(public_key)));
            assert!(!state.rows.put_key(node, Arc::new(public_key)));
        },
    ];
    let mut random = Random::new(1);
    for _ in 0..50 {
        let empty = Parts {
            session: None,
            scope: None,
            spent: None,
            key: None,
            ..parts.clone()
        };
        let mut state = empty.state();
        let mut left = put.to_vec();
        while !left.is_empty() {
            let next = random.below(u64::try_from(left.len()).unwrap());
            left.swap_remove(usize::try_from(next).unwrap())(&mut state);
        }
        assert_eq!(state.hash(), expected.hash());
        state.rows.remove_session(session_key);
        state.rows.remove_scope(name);
        state.rows.remove_spent((spent_key, id));
        assert_ne!(state.hash(), empty.state().hash());
        assert_eq!(state.hash(), hash_of_rows(&state));
    }
}
