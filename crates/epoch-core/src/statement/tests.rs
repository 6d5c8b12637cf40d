//! Each check of a statement.

use serde_json::json;

use super::*;
use crate::testing::{NOW_MS, NOW_S, ROOT, cluster, max_future, pin, signed_by, signing_key};
use crate::testing::{statement, validity};

fn verify(text: &str) -> Result<Statement, StatementError> {
    Statement::verify(text, &pin(), NOW_MS)
}

/// The verdict on the usual payload with one change made to it, signed by the root.
fn changed(change: impl FnOnce(&mut Value)) -> Result<Statement, StatementError> {
    let kind = StatementKind::MaxFuture { seconds: 500 };
    let usual = Statement::new(cluster(), validity(), kind).unwrap();
    let mut payload: Value = serde_json::from_str(&usual.to_json()).unwrap();
    change(&mut payload);
    let payload = payload.to_string();
    verify(&signed_by(&[ROOT], TextKind::Statement, &payload))
}

#[test]
fn statements_say_what_was_signed() {
    let clock = verify(&statement(StatementKind::Clock, validity())).unwrap();
    assert_eq!(clock.kind(), StatementKind::Clock);
    assert_eq!(
        (clock.cluster(), clock.validity()),
        (cluster(), &validity())
    );
    let seconds = MAX_FUTURE_S_MAX;
    let far = verify(&max_future(seconds)).unwrap();
    assert_eq!(far.kind(), StatementKind::MaxFuture { seconds });
    let expected = "{\"iss\":\"epochd:018f4d1c-0000-7000-8000-00000000000a\",\
                    \"iat\":1767225600,\"exp\":1767268800,\"jti\":\"0197-certificate-1\",\
                    \"statement\":{\"kind\":\"clock\"}}";
    assert_eq!(clock.to_json(), expected);
}

#[test]
fn a_statement_holds_from_its_issue_to_its_end() {
    let text = max_future(500);
    let at = |now_ms| Statement::verify(&text, &pin(), now_ms);
    let end_ms = (NOW_S + 3600) * 1_000;
    assert!(at(end_ms - 1).is_ok());
    assert!(matches!(at(end_ms), Err(StatementError::Expired { .. })));
    assert!(at(NOW_MS - 30_000).is_ok());
    let early = at(NOW_MS - 30_001);
    assert!(matches!(early, Err(StatementError::IssuedInFuture { .. })));
}

#[test]
fn only_the_root_signs_a_statement_and_it_alone() {
    let usual = Statement::new(cluster(), validity(), StatementKind::Clock).unwrap();
    let by = |seeds: &[u8]| verify(&signed_by(seeds, TextKind::Statement, &usual.to_json()));
    assert_eq!(by(&[ROOT]), Ok(usual.clone()));
    for seeds in [&[1][..], &[ROOT, 1], &[1, ROOT]] {
        let (kid, root) = (signing_key(1).id(), pin().root.id());
        let refused = by(seeds);
        assert_eq!(refused, Err(StatementError::NotRootSigned { kid, root }));
    }
    let text = max_future(500);
    let (signed, _) = text.rsplit_once('.').unwrap();
    let other = max_future(501);
    let (_, signature) = other.rsplit_once('.').unwrap();
    let refused = verify(&format!("{signed}.{signature}"));
    assert!(matches!(
        refused,
        Err(StatementError::Jws(JwsError::Signature { .. }))
    ));
    // The same words under another type are no statement.
    for kind in [TextKind::Certificate, TextKind::Bundle] {
        let refused = verify(&signed_by(&[ROOT], kind, &usual.to_json()));
        assert!(matches!(
            refused,
            Err(StatementError::Jws(JwsError::Type { .. }))
        ));
    }
}

#[test]
fn statements_out_of_form_are_refused() {
    assert!(changed(|_| ()).is_ok());
    for claim in ["iss", "iat", "exp", "jti", "statement"] {
        let refused = changed(|payload| drop(payload.as_object_mut().unwrap().remove(claim)));
        let missing = FieldError::Missing { claim };
        assert_eq!(refused, Err(StatementError::Field(missing)));
    }
    let fields = [
        changed(|payload| payload["aud"] = json!("x")),
        changed(|payload| payload["iat"] = json!(1.5)),
        changed(|payload| payload["statement"] = json!("clock")),
        changed(|payload| payload["statement"] = json!({})),
        changed(|payload| payload["statement"] = json!({ "kind": "clock", "seconds": 1 })),
        changed(|payload| payload["statement"] = json!({ "kind": "max_future" })),
        changed(|payload| payload["statement"]["seconds"] = json!("1")),
        changed(|payload| payload["statement"]["more"] = json!(1)),
        changed(|payload| payload["iss"] = json!("epochd:other")),
    ];
    for refused in fields {
        assert!(
            matches!(refused, Err(StatementError::Field(_))),
            "{refused:?}"
        );
    }
    let kind = "all".to_owned();
    let refused = changed(|payload| payload["statement"]["kind"] = json!("all"));
    assert_eq!(refused, Err(StatementError::Kind { kind }));
    for seconds in [0, MAX_FUTURE_S_MAX + 1] {
        let refused = changed(|payload| payload["statement"]["seconds"] = json!(seconds));
        assert_eq!(refused, Err(StatementError::Seconds { seconds }));
    }
    let validity = [
        changed(|payload| payload["jti"] = json!("")),
        changed(|payload| payload["jti"] = json!("j".repeat(JTI_BYTES_MAX + 1))),
        changed(|payload| payload["exp"] = payload["iat"].clone()),
    ];
    for refused in validity {
        assert_eq!(refused, Err(StatementError::Validity));
    }
    let other = "epochd:018f4d1c-0000-7000-8000-00000000000b";
    let refused = changed(|payload| payload["iss"] = json!(other));
    assert!(matches!(refused, Err(StatementError::OtherCluster { .. })));
    let not_an_object = verify(&signed_by(&[ROOT], TextKind::Statement, "[]"));
    assert!(matches!(
        not_an_object,
        Err(StatementError::Malformed { .. })
    ));
}
