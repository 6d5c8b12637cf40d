//! Valid inputs of each kind, and a few that are nearly so.

mod requests;

use std::num::NonZeroU64;

use epoch_core::{
    BundleKey, OpenId, Principal, RequestId, RootKey, Scope, SessionId, SignedBundle, Statement,
    StatementKind, TextKind, Validity,
};
use epoch_fuzz::world::{
    self, HOLDER, METHOD, NOW_S, ROOT, URL, cluster, forged, holder, incarnation, key, key_set,
    pin, signed_by, trust,
};
use epoch_machine::{
    Batch, Command, IntentDigest, Leadership, LockDelay, Metadata, Prefix, Scopes, Terms,
    TokenHash, TokenLabel, Ttl, Value, Verbs, Wait,
};
use epoch_store::codec::encode_batch;
use serde_json::json;
use uuid::Uuid;

/// A target, the name of the file, and what is in it.
type Seed = (&'static str, String, Vec<u8>);

fn seed(target: &'static str, name: &str, content: impl AsRef<[u8]>) -> Seed {
    (target, name.to_owned(), content.as_ref().to_vec())
}

pub(crate) fn all() -> Vec<Seed> {
    let mut all = certificates();
    all.extend(bundles());
    all.extend(statements());
    all.extend(proofs());
    all.extend(files());
    all.extend(batches());
    all.extend(requests::all());
    all
}

/// As it is written for who is to sign it here.
fn order(who: &str, payload: &str) -> String {
    format!("!{who}\n{payload}")
}

fn header(typ: &str, number: u8) -> String {
    let kid = key(number).id();
    format!(r#"{{"kid":"{kid}","typ":"{typ}","alg":"EdDSA"}}"#)
}

fn certificates() -> Vec<Seed> {
    let plain = world::claims(false).to_json();
    let bound = world::claims(true).to_json();
    let named = plain.replacen('{', r#"{"aud":["reports","files"],"#, 1);
    let by = |numbers: &[u8]| signed_by(TextKind::Certificate, numbers, &plain).unwrap();
    let of = |own: u8| order(&format!("{own}{}", header("epoch+jwt", own)), &plain);
    vec![
        seed("certificate", "valid-text", by(&[1])),
        seed("certificate", "valid-claims", order("2", &plain)),
        seed("certificate", "valid-bound", order("3", &bound)),
        seed("certificate", "valid-audiences", order("1", &named)),
        seed("certificate", "valid-header", of(1)),
        seed("certificate", "refused-root", order("9", &plain)),
        seed("certificate", "refused-header", order("1{}", &plain)),
        seed("quorum_certificate", "valid-text", by(&[1, 3])),
        seed("quorum_certificate", "valid-claims", order("321", &bound)),
        seed("quorum_certificate", "refused-one", by(&[2])),
        seed("quorum_certificate", "refused-root", order("19", &plain)),
        seed(
            "quorum_certificate",
            "refused-twice",
            [by(&[1]), by(&[1])].join(","),
        ),
    ]
}

fn bundles() -> Vec<Seed> {
    let first = world::bundle();
    let more = BundleKey {
        node: 2,
        key: key(4).verifying_key().clone(),
        since_s: NOW_S + 60,
    };
    let keys = [first.keys(), &[more]].concat();
    let second = first.next(NOW_S + 60, keys).unwrap();
    let (first, second) = (first.to_json(), second.to_json());
    let text = |numbers: &[u8], payload| signed_by(TextKind::Bundle, numbers, payload).unwrap();
    let chain = [text(&[ROOT], &first), text(&[1, 3], &second)].join("\n\n");
    let orders = [order("9", &first), order("23", &second)].join("\n\n");
    let few = [order("9", &first), order("2", &second)].join("\n\n");
    let offer = |own: u8, endorser| {
        let offer = key(own).offer(cluster(), incarnation(), 2, endorser);
        offer.unwrap().to_text().to_owned()
    };
    let payload =
        epoch_core::KeyOffer::payload(cluster(), incarnation(), 2, key(4).verifying_key());
    vec![
        seed("bundle", "valid-first", text(&[ROOT], &first)),
        seed("bundle", "valid-chain", chain),
        seed("bundle", "valid-payloads", orders),
        seed("bundle", "refused-minority", few),
        seed("bundle", "refused-nodes", order("123", &first)),
        seed("key_offer", "valid-text", offer(4, Some(&key(2)))),
        seed("key_offer", "valid-payload", order("42", &payload)),
        seed("key_offer", "refused-unendorsed", offer(4, None)),
        seed("key_offer", "refused-another", order("43", &payload)),
    ]
}

fn validity() -> Validity {
    Validity {
        issued_at_s: NOW_S,
        expires_at_s: NOW_S + 3_600,
        jti: "statement-1".to_owned(),
    }
}

fn statements() -> Vec<Seed> {
    let payload = |kind| {
        let statement = Statement::new(cluster(), validity(), kind).unwrap();
        statement.to_json()
    };
    let clock = payload(StatementKind::Clock);
    let future = payload(StatementKind::MaxFuture { seconds: 172_800 });
    let text = signed_by(TextKind::Statement, &[ROOT], &future).unwrap();
    vec![
        seed("statement", "valid-text", text),
        seed("statement", "valid-clock", order("9", &clock)),
        seed("statement", "valid-future", order("9", &future)),
        seed("statement", "refused-node", order("1", &clock)),
    ]
}

fn proofs() -> Vec<Seed> {
    let (certificate, _) = world::bound();
    let proof = |at_s| holder().proof(METHOD, URL, certificate, at_s, "jti-1");
    let jwk = holder().public_jwk();
    let made = proof(NOW_S);
    let encoded = made.split('.').nth(1).unwrap();
    let payload = world::decoded(encoded);
    let header = json!({ "typ": "dpop+jwt", "alg": "EdDSA", "jwk": jwk });
    let another = URL.replace("https", "http");
    let elsewhere = payload.replace(URL, &another);
    let of = |payload: &str| order(&format!("{HOLDER}{header}"), payload);
    vec![
        seed("proof", "valid-text", &made),
        seed("proof", "valid-payload", of(&payload)),
        seed("proof", "valid-key", jwk.to_string()),
        seed("proof", "refused-late", proof(NOW_S - 61)),
        seed("proof", "refused-elsewhere", of(&elsewhere)),
        seed("proof", "refused-text", forged(1, b"{}", b"{}")),
    ]
}

fn files() -> Vec<Seed> {
    let root = RootKey::from_seed(cluster(), incarnation(), &[ROOT; 32]).unwrap();
    let mut with_statement = trust();
    let kind = StatementKind::MaxFuture { seconds: 172_800 };
    let statement = root.sign_statement(validity(), kind).unwrap();
    let now_ms = NOW_S * 1_000;
    with_statement.adopt_statement(&statement, now_ms).unwrap();
    let next = world::bundle()
        .next(NOW_S + 60, world::bundle().keys().to_vec())
        .unwrap();
    let next = signed_by(TextKind::Bundle, &[1, 2], &next.to_json()).unwrap();
    let mut later = trust();
    later.adopt(&[SignedBundle::parse(&next).unwrap()]).unwrap();
    let nothing = epoch_core::Trust::new(pin()).to_json();
    let root = root.to_json().unwrap();
    vec![
        seed("stored_trust", "valid-first", trust().to_json()),
        seed("stored_trust", "valid-statement", with_statement.to_json()),
        seed("stored_trust", "valid-later", later.to_json()),
        seed("stored_trust", "valid-pin", &nothing),
        seed(
            "stored_trust",
            "refused-format",
            nothing.replace("trust-1", "trust-2"),
        ),
        seed("root_key", "valid-file", &root),
        seed(
            "root_key",
            "refused-format",
            root.replace(r#""format":1"#, r#""format":2"#),
        ),
        seed("key_set", "valid-jwks", key_set().to_jwks().to_string()),
        seed("key_set", "refused-empty", "{}"),
    ]
}

fn session() -> SessionId {
    SessionId {
        open_id: OpenId(Uuid::from_u128(7)),
        index: 300,
        offset: 2,
    }
}

fn batches() -> Vec<Seed> {
    let encoded = |commands| {
        encode_batch(&Batch {
            leadership: Leadership { term: 4, node: 2 },
            wall_ms: NOW_S * 1_000,
            commands,
        })
    };
    let calls = encoded(commands_of_sessions());
    vec![
        seed("batch", "valid-empty", encoded(Vec::new())),
        seed("batch", "valid-calls", &calls),
        seed("batch", "valid-operators", encoded(commands_of_operators())),
        seed("batch", "refused-cut", &calls[..calls.len() - 1]),
    ]
}

fn commands_of_sessions() -> Vec<Command> {
    let scope = || Scope::parse("reports/research-note").unwrap();
    let request_id = RequestId::new(9).unwrap();
    let epoch = epoch_core::Epoch::new(1 << 50).unwrap();
    let terms = || Terms {
        lock_delay: LockDelay::from_ms(1_000).unwrap(),
        metadata: Metadata::new("run 7").unwrap(),
    };
    let value = Value::new(b"draft").unwrap();
    let intent = epoch_core::IntentId::parse("intent").unwrap();
    vec![
        Command::Open {
            open_id: OpenId(Uuid::from_u128(7)),
            holder: epoch_core::Holder::parse("agent-a").unwrap(),
            ttl: Ttl::from_ms(10_000).unwrap(),
            stall_limit: Some(Ttl::from_ms(60_000).unwrap()),
            principal: Some(Principal::parse("agent-a").unwrap()),
            holder_key: Some([7; 32]),
        },
        Command::Acquire {
            scope: scope(),
            session: session(),
            request_id,
            terms: terms(),
            wait: Wait::from_ms(30_000).unwrap(),
            reissue: true,
        },
        Command::AcquireMany {
            scopes: Scopes::new(vec![scope(), Scope::parse("a").unwrap()]).unwrap(),
            session: session(),
            request_id,
            terms: terms(),
        },
        Command::WriteRecord {
            scope: scope(),
            session: session(),
            epoch,
            expected_revision: Some(0),
            intent: Some(IntentDigest::of(&intent, Some(&value))),
            value: Some(value),
        },
        Command::Transfer {
            scope: scope(),
            session: session(),
            epoch,
            to: session().hash(),
        },
        Command::Release {
            scope: scope(),
            session: session(),
            epoch,
        },
        Command::Close { session: session() },
    ]
}

fn commands_of_operators() -> Vec<Command> {
    let root = || Some(Principal::parse("root").unwrap());
    let agent = || Principal::parse("agent-a").unwrap();
    let text = signed_by(TextKind::Bundle, &[ROOT], &world::bundle().to_json()).unwrap();
    let bundle = SignedBundle::parse(&text).unwrap();
    vec![
        Command::GrantPermission {
            by: root(),
            principal: agent(),
            prefix: Prefix::parse("reports/").unwrap(),
            verbs: Verbs::ALL,
        },
        Command::AddToken {
            by: root(),
            principal: agent(),
            label: TokenLabel::parse("ci-1").unwrap(),
            hash: TokenHash([8; 32]),
            expires_ms: NonZeroU64::new(1_900_000_000_000),
        },
        Command::PutBundle {
            by: root(),
            bundle: bundle.into(),
        },
        Command::RotateKeys {
            by: None,
            node: Some(2),
        },
        Command::RetireKey {
            by: root(),
            kid: key(4).id(),
        },
    ]
}
