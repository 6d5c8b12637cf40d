use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::sync::Arc;

use epoch_core::{Bundle, ClusterId, Holder, Incarnation, OpenId, Principal, Reason, RequestId};
use siphasher::sip128::SipHasher24;
use uuid::Uuid;

use super::keys::{NOW_S, ROOT, kid, old_keys, signed, terms, verifying};
use super::machine::{audit_record, epoch, permission, principal, scope, token, verbs};
use super::random::Random;
use crate::admin::{AdminRow, KeptStatement, Offer, Permission, Retired, StatementTopic};
use crate::audit::{AuditAction, AuditRecord, AuditTarget};
use crate::command::{Leadership, SessionKey, Ttl};
use crate::hash::StateHash;
use crate::limits::Limits;
use crate::load::{
    Head, HeldRow, Loader, RecordRow, ScopeRow, SessionRow, SpentRow, StandingRow, WaitRow,
};
use crate::permission::Prefix;
use crate::record::{DoneIntent, IntentDigest, Record, Value};
use crate::rows::{Held, Origin, Place, Row, Spent, SpentUse, Standing, Waiting};
use crate::state::{SessionState, State};
use crate::terms::{LockDelay, Metadata, Terms, Wait};
use crate::token::{Token, TokenLabel};

/// The hash by the table in its documentation, from the rows that go into a snapshot.
#[expect(clippy::too_many_lines, reason = "the table, line by line")]
pub(super) fn hash_of_rows(state: &State) -> StateHash {
    let head = state.head();
    let sip = SipHasher24::new_with_key(head.cluster_id.0.as_bytes());
    let key_bytes =
        |key: SessionKey| [&key.index.to_le_bytes()[..], &key.offset.to_le_bytes()].concat();
    let text = |text: &str| {
        let length = u32::try_from(text.len()).unwrap();
        [&length.to_le_bytes()[..], text.as_bytes()].concat()
    };
    let terms = |terms: &Terms| {
        let delay = terms.lock_delay.ms().to_le_bytes();
        [&delay[..], &text(terms.metadata.as_str())].concat()
    };
    let mut rows: Vec<Vec<u8>> = Vec::new();
    rows.extend(state.session_rows().map(|row| {
        [
            &[1][..],
            &key_bytes(row.key),
            row.open_id.0.as_bytes(),
            &text(row.holder.as_str()),
            &row.ttl.ms().to_le_bytes(),
            &row.stall_limit.map_or(0, Ttl::ms).to_le_bytes(),
            &row.forgotten.to_le_bytes(),
            &text(row.principal.as_ref().map_or("", Principal::as_str)),
            &row.holder_key
                .map_or(vec![0], |key| [&[1][..], &key].concat()),
        ]
        .concat()
    }));
    rows.extend(state.scope_rows().map(|row| {
        let standing = match row.standing {
            StandingRow::Free(delay) => [&[0][..], &delay.ms().to_le_bytes()].concat(),
            StandingRow::Held(held) => {
                let before = held.before.map_or(vec![0], |(key, epoch)| {
                    [&[1][..], &key_bytes(key), &epoch.get().to_le_bytes()].concat()
                });
                [
                    &[1][..],
                    &key_bytes(held.session),
                    &held.request_id.map_or(0, RequestId::get).to_le_bytes(),
                    &held.index.to_le_bytes(),
                    &held.offset.to_le_bytes(),
                    &held.leadership.term.to_le_bytes(),
                    &held.leadership.node.to_le_bytes(),
                    &terms(&held.terms),
                    &before,
                ]
                .concat()
            }
        };
        let epoch = row.epoch.get().to_le_bytes();
        [&[2][..], &text(row.scope.as_str()), &epoch, &standing].concat()
    }));
    rows.extend(state.spent_rows().map(|row| {
        let id = row.request_id.get().to_le_bytes();
        let what = match row.what {
            SpentUse::Grant => 1,
            SpentUse::WaitExpired => 2,
            SpentUse::WaitCancelled => 3,
        };
        let scope = text(row.scope.as_str());
        [&[3][..], &key_bytes(row.session), &id, &scope, &[what]].concat()
    }));
    rows.extend(state.wait_rows().map(|row| {
        [
            &[6][..],
            &text(row.scope.as_str()),
            &row.index.to_le_bytes(),
            &row.offset.to_le_bytes(),
            &key_bytes(row.session),
            &row.request_id.get().to_le_bytes(),
            &row.wait.ms().to_le_bytes(),
            &terms(&row.terms),
        ]
        .concat()
    }));
    rows.extend(state.record_rows().map(|row| {
        let record = row.record;
        let length = |length: usize| u32::try_from(length).unwrap().to_le_bytes();
        let value = record.value.map_or(vec![0], |value| {
            let bytes = value.as_bytes();
            [&[1][..], &length(bytes.len()), bytes].concat()
        });
        let intents: Vec<u8> = record
            .intents
            .iter()
            .flat_map(|done| {
                let revision = done.revision.to_le_bytes();
                let effect = [u8::from(done.had_effect)];
                let intent = done.intent;
                [&intent.id[..], &intent.payload, &revision, &effect].concat()
            })
            .collect();
        [
            &[7][..],
            &text(row.scope.as_str()),
            &record.revision.to_le_bytes(),
            &record.epoch.get().to_le_bytes(),
            &value,
            &length(record.intents.len()),
            &intents,
        ]
        .concat()
    }));
    rows.extend(state.admin_rows().map(|row| admin_bytes(&row)));
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

fn admin_bytes(row: &AdminRow) -> Vec<u8> {
    let text = |text: &str| {
        let length = u32::try_from(text.len()).unwrap();
        [&length.to_le_bytes()[..], text.as_bytes()].concat()
    };
    let bytes = match row {
        AdminRow::Permission(its) => [
            &[1][..],
            &text(its.principal.as_str()),
            &text(its.prefix.as_str()),
            &its.verbs.bits().to_le_bytes(),
        ]
        .concat(),
        AdminRow::Token(token) => [
            &[2][..],
            &token.hash.0,
            &text(token.principal.as_str()),
            &text(token.label.as_str()),
            &token.created_ms.to_le_bytes(),
            &token.expires_ms.map_or(0, NonZeroU64::get).to_le_bytes(),
        ]
        .concat(),
        AdminRow::Limits { principal, limits } => {
            let all = [
                limits.sessions,
                limits.grants,
                limits.waits,
                limits.requests_per_second,
            ];
            let limit = |limit: Option<u32>| {
                limit.map_or(vec![0], |limit| [&[1][..], &limit.to_le_bytes()].concat())
            };
            let all = all.map(limit).concat();
            [&[3][..], &text(principal.as_str()), &all].concat()
        }
        AdminRow::Audit(record) => [
            &[4][..],
            &record.number.to_le_bytes(),
            &record.time_ms.to_le_bytes(),
            &record.index.to_le_bytes(),
            &text(record.principal.as_ref().map_or("", Principal::as_str)),
            &record.action.number().to_le_bytes(),
            &text(record.target.as_str()),
            &text(record.refused.map_or("", Reason::as_str)),
        ]
        .concat(),
        AdminRow::Bundle(bundle) => {
            let signatures = bundle.signatures().iter();
            let signatures = signatures.map(|(kid, one)| [kid.as_bytes(), &one[..]].concat());
            let signatures: Vec<_> = signatures.collect();
            let count = u32::try_from(signatures.len()).unwrap();
            [
                &[5][..],
                &text(bundle.payload()),
                &count.to_le_bytes(),
                &signatures.concat(),
            ]
            .concat()
        }
        AdminRow::Offer(offer) => [
            &[6][..],
            &offer.node.to_le_bytes(),
            offer.key.as_bytes(),
            &[u8::from(offer.endorsed)],
        ]
        .concat(),
        AdminRow::Rotation(node) => [&[7][..], &node.to_le_bytes()].concat(),
        AdminRow::Retired(retired) => [
            &[8][..],
            retired.kid.as_bytes(),
            &retired.time_ms.to_le_bytes(),
        ]
        .concat(),
        AdminRow::Statement(kept) => [
            &[9][..],
            &[match kept.topic {
                StatementTopic::Clock => 1,
                StatementTopic::MaxFuture => 2,
            }],
            &kept.issued_at_s.to_le_bytes(),
            &text(&kept.text),
        ]
        .concat(),
    };
    [&[4][..], &bytes].concat()
}

fn key(index: u64, offset: u32) -> SessionKey {
    SessionKey { index, offset }
}

fn origin(term: u64, node: u64) -> Arc<Origin> {
    Arc::new(Origin {
        leadership: Leadership { term, node },
        terms: Terms::default(),
        before: None,
    })
}

fn spent(scope: &str, what: SpentUse) -> Spent {
    Spent {
        scope: scope.into(),
        what,
    }
}

fn done(id: u8, payload: u8, revision: u64, had_effect: bool) -> DoneIntent {
    DoneIntent {
        intent: IntentDigest {
            id: [id; 16],
            payload: [payload; 16],
        },
        revision,
        had_effect,
    }
}

fn request_id(id: u64) -> RequestId {
    RequestId::new(id).unwrap()
}

/// One of each kind, in order.
fn rare_rows() -> [AdminRow; 9] {
    let state = fixed_state();
    let keys = old_keys(&[(1, 1), (2, 2)]);
    let bundle = Bundle::new(terms(&state, 1, NOW_S), keys).unwrap();
    [
        permission("root", "", "acquire,operate"),
        AdminRow::Token(Token {
            expires_ms: NonZeroU64::new(1_900_000_000_000),
            ..token("agent", 9, "ci-1")
        }),
        AdminRow::Limits {
            principal: principal("agent"),
            limits: Limits {
                sessions: Some(10),
                grants: Some(0),
                waits: None,
                requests_per_second: Some(500),
            },
        },
        AdminRow::Audit(AuditRecord {
            principal: Some(principal("root")),
            refused: Some(Reason::PermissionDenied),
            ..audit_record(7)
        }),
        AdminRow::Bundle(signed(&bundle, &[ROOT])),
        AdminRow::Offer(Offer {
            node: 1,
            key: verifying(11),
            endorsed: true,
        }),
        AdminRow::Rotation(2),
        AdminRow::Retired(Retired {
            kid: kid(2),
            time_ms: 1_799_999_999_999,
        }),
        AdminRow::Statement(KeptStatement {
            topic: StatementTopic::MaxFuture,
            issued_at_s: 1_799_999_999,
            text: "a statement".into(),
        }),
    ]
}

fn fixed_head() -> Head {
    Head {
        cluster_id: ClusterId(Uuid::from_u128(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff)),
        incarnation: Incarnation(Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0001)),
        group: 7,
        now_ms: 1_800_000_000_000,
    }
}

fn fixed_state() -> State {
    Loader::new(fixed_head()).finish().unwrap()
}

fn sessions() -> [SessionRow; 2] {
    let session = SessionRow {
        key: key(3, 1),
        open_id: OpenId(Uuid::from_u128(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10)),
        holder: Holder::parse("agent/\u{e9}").unwrap(),
        ttl: Ttl::from_ms(10_000).unwrap(),
        stall_limit: Ttl::from_ms(60_000).ok(),
        principal: Some(principal("agent")),
        holder_key: Some([0x33; 32]),
        forgotten: 4,
    };
    let other = SessionRow {
        key: key(4, 0),
        open_id: OpenId(Uuid::from_u128(0x1102_0304_0506_0708_090a_0b0c_0d0e_0f10)),
        holder: Holder::parse("other").unwrap(),
        ttl: session.ttl,
        stall_limit: None,
        principal: Some(principal("root")),
        holder_key: None,
        forgotten: 0,
    };
    [session, other]
}

/// The expected value is from another implementation, written from the table alone.
#[test]
fn the_hash_of_a_fixed_state_never_changes() {
    let mut loader = Loader::new(fixed_head());
    for row in sessions() {
        loader.session(row).unwrap();
    }
    let held = HeldRow {
        session: key(3, 1),
        request_id: Some(request_id(9)),
        leadership: Leadership { term: 6, node: 2 },
        index: 12,
        offset: 5,
        terms: Terms {
            lock_delay: LockDelay::from_ms(5_000).unwrap(),
            metadata: Metadata::new("run 7").unwrap(),
        },
        before: Some((key(2, 0), epoch(1_843_200_000_000_000))),
    };
    let scope_row = |name, number, standing| ScopeRow {
        scope: scope(name),
        epoch: epoch(number),
        standing,
    };
    let free = StandingRow::Free(LockDelay::default());
    for row in [
        scope_row(
            "reports/held",
            1_843_200_000_000_001,
            StandingRow::Held(held),
        ),
        scope_row("reports/free", 1_843_200_000_000_002, free),
    ] {
        loader.scope(row).unwrap();
    }
    loader
        .spent(SpentRow {
            session: key(3, 1),
            request_id: request_id(5),
            scope: scope("reports/free"),
            what: SpentUse::WaitExpired,
        })
        .unwrap();
    loader
        .wait(WaitRow {
            scope: scope("reports/held"),
            index: 13,
            offset: 2,
            session: key(4, 0),
            request_id: request_id(1),
            wait: Wait::from_ms(30_000).unwrap(),
            terms: Terms::default(),
        })
        .unwrap();
    loader
        .record(RecordRow {
            scope: scope("reports/held"),
            record: Record {
                revision: 1_843_200_000_000_003,
                value: Value::new(b"value").ok(),
                epoch: epoch(1_843_200_000_000_001),
                intents: [done(7, 8, 1_843_200_000_000_003, true)].into(),
            },
        })
        .unwrap();
    for row in rare_rows() {
        loader.admin(row).unwrap();
    }
    let state = loader.finish().unwrap();
    assert_eq!(state.hash().to_string(), "9591d59878df58d328b5c757ee4d2252");
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
    spent: Option<(SessionKey, RequestId, &'static str, SpentUse)>,
    wait: Option<(Place, Waiting)>,
    record: Option<(&'static str, Record)>,
    rare: Vec<AdminRow>,
}

impl Parts {
    fn new() -> Self {
        let session = SessionState::new(
            OpenId(Uuid::from_u128(1)),
            Holder::parse("agent").unwrap(),
            Ttl::from_ms(10_000).unwrap(),
            None,
        );
        let held = Held {
            session_index: 1,
            session_offset: 0,
            request_id: Some(request_id(1)),
            index: 1,
            offset: 0,
            origin: origin(1, 1),
        };
        let row = Row {
            epoch: epoch(1),
            standing: Standing::Held(held),
        };
        let place = Place {
            scope: "a".into(),
            index: 5,
            offset: 0,
        };
        let waiting = Waiting {
            session: key(1, 0),
            request_id: request_id(3),
            wait: Wait::from_ms(1_000).unwrap(),
            terms: Terms::default(),
        };
        let record = Record {
            revision: 9,
            value: Value::new(b"v").ok(),
            epoch: epoch(1),
            intents: [done(0, 0, 9, true)].into(),
        };
        Self {
            cluster_id: 1,
            incarnation: 1,
            group: 0,
            now_ms: 0,
            session: Some((key(1, 0), session)),
            scope: Some(("a", row)),
            spent: Some((key(1, 0), request_id(2), "a", SpentUse::Grant)),
            wait: Some((place, waiting)),
            record: Some(("a", record)),
            rare: rare_rows().into(),
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
        if let Some((key, id, name, what)) = self.spent {
            state.rows.put_spent((key, id), spent(name, what));
        }
        if let Some((place, waiting)) = &self.wait {
            state.rows.put_wait(place.clone(), waiting.clone());
        }
        if let Some((name, record)) = &self.record {
            state.rows.put_record(Arc::from(*name), record.clone());
        }
        for row in self.rare.clone() {
            state.rows.put_admin(row);
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
        match &mut self.row().standing {
            Standing::Held(held) => held,
            Standing::Free(_) => panic!("it is free"),
        }
    }

    fn origin(&mut self) -> &mut Origin {
        Arc::make_mut(&mut self.held().origin)
    }

    fn wait(&mut self) -> &mut (Place, Waiting) {
        self.wait.as_mut().unwrap()
    }

    fn record(&mut self) -> &mut Record {
        &mut self.record.as_mut().unwrap().1
    }

    fn permission(&mut self) -> &mut Permission {
        match &mut self.rare[0] {
            AdminRow::Permission(permission) => permission,
            other => panic!("{other:?}"),
        }
    }

    fn token(&mut self) -> &mut Token {
        match &mut self.rare[1] {
            AdminRow::Token(token) => token,
            other => panic!("{other:?}"),
        }
    }

    fn limits(&mut self) -> (&mut Principal, &mut Limits) {
        match &mut self.rare[2] {
            AdminRow::Limits { principal, limits } => (principal, limits),
            other => panic!("{other:?}"),
        }
    }

    fn audit(&mut self) -> &mut AuditRecord {
        match &mut self.rare[3] {
            AdminRow::Audit(record) => record,
            other => panic!("{other:?}"),
        }
    }

    fn set_bundle(&mut self, sequence: u64, signers: &[u8]) {
        let terms = terms(&fixed_state(), sequence, NOW_S);
        let bundle = Bundle::new(terms, old_keys(&[(1, 1), (2, 2)])).unwrap();
        self.rare[4] = AdminRow::Bundle(signed(&bundle, signers));
    }

    fn offer(&mut self) -> &mut Offer {
        match &mut self.rare[5] {
            AdminRow::Offer(offer) => offer,
            other => panic!("{other:?}"),
        }
    }

    fn retired(&mut self) -> &mut Retired {
        match &mut self.rare[7] {
            AdminRow::Retired(retired) => retired,
            other => panic!("{other:?}"),
        }
    }

    fn statement(&mut self) -> &mut KeptStatement {
        match &mut self.rare[8] {
            AdminRow::Statement(kept) => kept,
            other => panic!("{other:?}"),
        }
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
        |parts| parts.session().1.stall_limit = Ttl::from_ms(1_000).ok(),
        |parts| parts.session().1.forgotten = 1,
        |parts| parts.session().1.principal = Some(principal("agent")),
        |parts| parts.session().1.holder_key = Some([0; 32]),
        |parts| parts.session().1.holder_key = Some([1; 32]),
        |parts| parts.scope = None,
        |parts| parts.scope.as_mut().unwrap().0 = "b",
        |parts| parts.row().epoch = epoch(2),
        |parts| parts.row().standing = Standing::Free(LockDelay::default()),
        |parts| parts.row().standing = Standing::Free(LockDelay::from_ms(1).unwrap()),
        |parts| parts.held().session_index = 2,
        |parts| parts.held().session_offset = 1,
        |parts| parts.held().request_id = None,
        |parts| parts.held().index = 2,
        |parts| parts.held().offset = 1,
        |parts| parts.held().origin = origin(2, 1),
        |parts| parts.held().origin = origin(1, 2),
        |parts| parts.origin().terms.lock_delay = LockDelay::from_ms(1).unwrap(),
        |parts| parts.origin().terms.metadata = Metadata::new("m").unwrap(),
        |parts| parts.origin().before = Some((key(1, 0), epoch(1))),
        |parts| parts.origin().before = Some((key(1, 0), epoch(2))),
        |parts| parts.origin().before = Some((key(1, 1), epoch(1))),
        |parts| parts.spent = None,
        |parts| parts.spent.as_mut().unwrap().0.index = 2,
        |parts| parts.spent.as_mut().unwrap().0.offset = 1,
        |parts| parts.spent.as_mut().unwrap().1 = request_id(3),
        |parts| parts.spent.as_mut().unwrap().2 = "b",
        |parts| parts.spent.as_mut().unwrap().3 = SpentUse::WaitExpired,
        |parts| parts.spent.as_mut().unwrap().3 = SpentUse::WaitCancelled,
        |parts| parts.wait = None,
        |parts| parts.wait().0.scope = "b".into(),
        |parts| parts.wait().0.index = 6,
        |parts| parts.wait().0.offset = 1,
        |parts| parts.wait().1.session = key(1, 1),
        |parts| parts.wait().1.request_id = request_id(4),
        |parts| parts.wait().1.wait = Wait::from_ms(1_001).unwrap(),
        |parts| parts.wait().1.terms.metadata = Metadata::new("m").unwrap(),
        |parts| parts.record = None,
        |parts| parts.record.as_mut().unwrap().0 = "b",
        |parts| parts.record().revision = 10,
        |parts| parts.record().value = None,
        |parts| parts.record().value = Value::new(b"w").ok(),
        |parts| parts.record().epoch = epoch(2),
        |parts| parts.record().intents = [].into(),
        |parts| parts.record().intents = [done(1, 0, 9, true)].into(),
        |parts| parts.record().intents = [done(0, 1, 9, true)].into(),
        |parts| parts.record().intents = [done(0, 0, 8, true)].into(),
        |parts| parts.record().intents = [done(0, 0, 9, false)].into(),
    ];
    assert_each_changes_the_hash(changes);
}

#[test]
fn each_field_of_each_rare_row_changes_the_hash() {
    assert_each_changes_the_hash(&[
        |parts| drop(parts.rare.remove(0)),
        |parts| parts.permission().principal = principal("ruth"),
        |parts| parts.permission().prefix = Prefix::parse("r").unwrap(),
        |parts| parts.permission().verbs = verbs("operate"),
        |parts| drop(parts.rare.remove(1)),
        |parts| parts.token().hash.0[31] = 1,
        |parts| parts.token().principal = principal("agenu"),
        |parts| parts.token().label = TokenLabel::parse("ci-2").unwrap(),
        |parts| parts.token().created_ms += 1,
        |parts| parts.token().expires_ms = NonZeroU64::new(1),
        |parts| parts.token().expires_ms = None,
        |parts| drop(parts.rare.remove(2)),
        |parts| *parts.limits().0 = principal("agenu"),
        |parts| parts.limits().1.sessions = None,
        |parts| parts.limits().1.grants = None,
        |parts| parts.limits().1.grants = Some(1),
        |parts| parts.limits().1.waits = Some(0),
        |parts| parts.limits().1.requests_per_second = Some(501),
        |parts| drop(parts.rare.remove(3)),
        |parts| parts.audit().number = 8,
        |parts| parts.audit().time_ms = 8,
        |parts| parts.audit().index = 8,
        |parts| parts.audit().principal = None,
        |parts| parts.audit().action = AuditAction::TokenAdd,
        |parts| parts.audit().target = AuditTarget::new("b").unwrap(),
        |parts| parts.audit().refused = None,
        |parts| parts.audit().refused = Some(Reason::ScopeHeld),
        |parts| drop(parts.rare.remove(4)),
        |parts| parts.set_bundle(2, &[ROOT]),
        |parts| parts.set_bundle(1, &[1]),
        |parts| parts.set_bundle(1, &[ROOT, 1]),
        |parts| parts.set_bundle(1, &[1, ROOT]),
        |parts| drop(parts.rare.remove(5)),
        |parts| parts.offer().node = 2,
        |parts| parts.offer().key = verifying(12),
        |parts| parts.offer().endorsed = false,
        |parts| drop(parts.rare.remove(6)),
        |parts| parts.rare[6] = AdminRow::Rotation(3),
        |parts| drop(parts.rare.remove(7)),
        |parts| parts.retired().kid = kid(3),
        |parts| parts.retired().time_ms += 1,
        |parts| drop(parts.rare.remove(8)),
        |parts| parts.statement().topic = StatementTopic::Clock,
        |parts| parts.statement().issued_at_s += 1,
        |parts| parts.statement().text = "another".into(),
    ]);
}

fn assert_each_changes_the_hash(changes: &[fn(&mut Parts)]) {
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
    let (spent_key, id, spent_scope, what) = parts.spent.unwrap();
    let (place, waiting) = parts.wait.clone().unwrap();
    let (recorded, record) = parts.record.clone().unwrap();
    let expected = parts.state();
    let put: [&dyn Fn(&mut State); 6] = [
        &|state| {
            let mut other = session.clone();
            other.forgotten = 7;
            state.rows.put_session(session_key, other);
            state.rows.put_session(session_key, session.clone());
        },
        &|state| {
            let free = Row::free(epoch(9));
            state.rows.put_scope(Arc::from(name), free.clone());
            state.rows.put_scope(Arc::from(name), row.clone());
            state.rows.put_scope(Arc::from("gone"), free);
            assert!(state.rows.remove_scope("gone").is_some());
            assert!(state.rows.remove_scope("never").is_none());
        },
        &|state| {
            state.rows.put_spent((spent_key, id), spent("other", what));
            assert!(state.rows.remove_spent((spent_key, id)).is_some());
            assert!(state.rows.remove_spent((spent_key, id)).is_none());
            state.rows.put_spent((spent_key, id), spent("other", what));
            state
                .rows
                .put_spent((spent_key, id), spent(spent_scope, what));
        },
        &|state| {
            let mut other = waiting.clone();
            other.request_id = request_id(9);
            state.rows.put_wait(place.clone(), other);
            assert!(state.rows.remove_wait(&place).is_some());
            assert!(state.rows.remove_wait(&place).is_none());
            state.rows.put_wait(place.clone(), waiting.clone());
        },
        &|state| {
            let mut other = record.clone();
            other.value = None;
            state.rows.put_record(Arc::from(recorded), other);
            assert!(state.rows.remove_record(recorded).is_some());
            assert!(state.rows.remove_record(recorded).is_none());
            state.rows.put_record(Arc::from(recorded), record.clone());
        },
        &|state| {
            for row in rare_rows() {
                assert!(state.rows.put_admin(row.clone()).is_none());
                assert_eq!(state.rows.remove_admin(&row.key()), Some(row.clone()));
                assert!(state.rows.remove_admin(&row.key()).is_none());
                state.rows.put_admin(row.clone());
                assert_eq!(state.rows.put_admin(row.clone()), Some(row));
            }
        },
    ];
    let mut random = Random::new(1);
    for _ in 0..50 {
        let empty = Parts {
            session: None,
            scope: None,
            spent: None,
            wait: None,
            record: None,
            rare: Vec::new(),
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
        state.rows.remove_wait(&place);
        state.rows.remove_record(recorded);
        assert_ne!(state.hash(), empty.state().hash());
        assert_eq!(state.hash(), hash_of_rows(&state));
    }
}
