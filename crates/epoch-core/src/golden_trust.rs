//! The fixed vectors of trust: bundles, statements, quorum certificates and proofs.
//!
//! `trust.json` has, for each kind, texts that must be accepted, and texts that must not, each with
//! what is wrong and this code's words for it. Seeds are no secrets: a key is 32 times its number;
//! the root is 100, nodes 1 to 3 have keys 1 to 3, the holder has 50.

use serde_json::{Value, json};

use crate::golden::rewritten;
use crate::testing::{
    self, NOW_MS, NOW_S, ROOT, bound_certificate, bundle, bundle_keys, holder_key, max_future, pin,
    signed_bundle, signed_by, statement, trust, validity,
};
use crate::{
    Presented, ProofVerifier, SignedBundle, Statement, StatementKind, TextKind, Trust, Verifier,
};

const TRUST: &str = include_str!("../../../tests/golden/trust.json");
const URL: &str = "https://files.example.org/reports/7";

fn vector(name: &str, text: String, payload: &str) -> Value {
    let payload: Value = serde_json::from_str(payload).unwrap();
    json!({ "name": name, "text": text, "payload": payload })
}

fn refused(name: &str, text: String, error: impl ToString) -> Value {
    json!({ "name": name, "text": text, "error": error.to_string() })
}

/// Bundle 1, which the root signed, and bundle 2, which nodes 1 and 3 did.
fn chain() -> [SignedBundle; 2] {
    let keys = bundle_keys(&[(1, 1), (2, 2), (2, 4), (3, 3)]);
    let next = bundle(1).next(NOW_S + 60, keys).unwrap();
    [
        signed_bundle(&[ROOT], &bundle(1)),
        signed_bundle(&[1, 3], &next),
    ]
}

fn adopt(text: &str) -> Result<bool, String> {
    let signed = SignedBundle::parse(text).map_err(|error| error.to_string())?;
    trust().adopt(&[signed]).map_err(|error| error.to_string())
}

fn bundles() -> Value {
    let [first, second] = chain();
    let next = second.bundle().to_json();
    let by = |seeds: &[u8], payload: &str| signed_by(seeds, TextKind::Bundle, payload);
    let longer = next.replace(r#""lifetime":3600"#, r#""lifetime":3601"#);
    let bad = [
        ("one node of three", by(&[2], &next)),
        ("a stranger with a majority", by(&[1, 3, 9], &next)),
        ("nodes change the lifetime", by(&[1, 3], &longer)),
        (
            "another bundle 1",
            by(&[ROOT], &next.replace(r#""sequence":2"#, r#""sequence":1"#)),
        ),
        (
            "bundle 3 after 1",
            by(&[1, 3], &next.replace(r#""sequence":2"#, r#""sequence":3"#)),
        ),
        (
            "unknown member",
            by(&[ROOT], &next.replacen('{', r#"{"more":1,"#, 1)),
        ),
        (
            "signed as a certificate",
            signed_by(&[ROOT], TextKind::Certificate, &next),
        ),
    ];
    let bad = bad.map(|(name, text)| {
        let error = adopt(&text).unwrap_err();
        refused(name, text, error)
    });
    let valid = [
        vector("first", first.to_text(), first.payload()),
        vector("second", second.to_text(), second.payload()),
    ];
    json!({ "valid_in_this_order": valid, "invalid_after_the_first": bad })
}

fn statements() -> Value {
    let payload = |text: &str| Statement::verify(text, &pin(), NOW_MS).unwrap().to_json();
    let clock = statement(StatementKind::Clock, validity());
    let clock_payload = payload(&clock);
    let future = max_future(172_800);
    let late = clock_payload.replace("1767268800", "1767225600");
    let late = late.replace(r#""iat":1767225600"#, r#""iat":1767225599"#);
    let bad = [
        (
            "signed by a node",
            signed_by(&[1], TextKind::Statement, &clock_payload),
        ),
        (
            "root and a node",
            signed_by(&[ROOT, 1], TextKind::Statement, &clock_payload),
        ),
        ("expired", signed_by(&[ROOT], TextKind::Statement, &late)),
        (
            "unknown kind",
            signed_by(
                &[ROOT],
                TextKind::Statement,
                &clock_payload.replace("clock", "all"),
            ),
        ),
    ];
    let bad = bad.map(|(name, text)| {
        let error = Statement::verify(&text, &pin(), NOW_MS).unwrap_err();
        refused(name, text, error)
    });
    let future_payload = payload(&future);
    let valid = [
        vector("clock", clock, &clock_payload),
        vector("max_future", future, &future_payload),
    ];
    json!({ "valid": valid, "invalid": bad })
}

/// Under bundle 1, with signatures of two nodes demanded.
fn quorum_certificates() -> Value {
    let payload = testing::claims(42, "writer-b").to_json();
    let by = |seeds: &[u8]| signed_by(seeds, TextKind::Certificate, &payload);
    let one = by(&[1]);
    let bad = [
        ("one node", one.clone()),
        ("one part twice", format!("{one},{one}")),
        ("a stranger", by(&[1, 9])),
        (
            "two payloads",
            format!("{one},{}", {
                let other = testing::claims(43, "writer-b").to_json();
                signed_by(&[2], TextKind::Certificate, &other)
            }),
        ),
    ];
    let verifier = Verifier::pinned(trust()).with_signatures(2);
    let bad = bad.map(|(name, text)| {
        let error = verifier.verify(&text, NOW_MS).unwrap_err();
        refused(name, text, error)
    });
    let valid = [
        vector("two nodes", by(&[1, 3]), &payload),
        vector("three nodes", by(&[3, 2, 1]), &payload),
    ];
    json!({ "valid": valid, "invalid": bad })
}

fn prove(proof: &str, certificate: &str) -> Result<(), String> {
    let verified = testing::verifier().verify(certificate, NOW_MS).unwrap();
    let presented = Presented {
        certificate: &verified,
        text: certificate,
        method: "PUT",
        url: URL,
    };
    ProofVerifier::default()
        .verify(proof, presented, NOW_MS)
        .map_err(|error| error.to_string())
}

fn proofs() -> Value {
    let key = holder_key(50);
    let (_, text) = bound_certificate(key.thumbprint());
    let proof = |method, url, certificate, at| key.proof(method, url, certificate, at, "jti-1");
    let bad = [
        (
            "another key",
            holder_key(51).proof("PUT", URL, &text, NOW_S, "jti-1"),
        ),
        ("another method", proof("POST", URL, &text, NOW_S)),
        (
            "another path",
            proof("PUT", "https://files.example.org/", &text, NOW_S),
        ),
        ("another certificate", proof("PUT", URL, "another", NOW_S)),
        ("too old", proof("PUT", URL, &text, NOW_S - 61)),
        ("a certificate", text.clone()),
    ];
    let bad = bad.map(|(name, made)| {
        let error = prove(&made, &text).unwrap_err();
        refused(name, made, error)
    });
    json!({
        "certificate": text,
        "method": "PUT",
        "url": URL,
        "jwk": key.public_jwk(),
        "valid": [{ "name": "usual", "text": proof("PUT", URL, &text, NOW_S) }],
        "invalid": bad,
    })
}

fn document() -> Value {
    json!({
        "about": "Fixed bundles, statements, quorum certificates (of two nodes, under the first \
                  bundle) and proofs. A key's seed is 32 times its number: root 100, nodes 1 to 3, \
                  holder 50.",
        "pin": pin().to_string(),
        "now_ms": NOW_MS,
        "bundles": bundles(),
        "statements": statements(),
        "quorum_certificates": quorum_certificates(),
        "proofs": proofs(),
    })
}

#[test]
fn golden_trust_is_what_this_code_signs() {
    let document = format!("{:#}\n", document());
    if !rewritten("trust.json", &document) {
        assert_eq!(TRUST, document);
    }
}

#[test]
fn golden_trust_is_accepted_or_refused_as_it_says() {
    let document: Value = serde_json::from_str(TRUST).unwrap();
    let now_ms = document["now_ms"].as_u64().unwrap();
    let pin: crate::Pin = document["pin"].as_str().unwrap().parse().unwrap();
    let list = |kind: &str, name: &str| document[kind][name].as_array().unwrap().clone();
    let text = |vector: &Value| vector["text"].as_str().unwrap().to_owned();
    let error = |vector: &Value| vector["error"].as_str().unwrap().to_owned();
    let mut trust = Trust::new(pin.clone());
    for vector in list("bundles", "valid_in_this_order") {
        let signed = SignedBundle::parse(&text(&vector)).unwrap();
        let payload: Value = serde_json::from_str(&signed.bundle().to_json()).unwrap();
        assert_eq!(payload, vector["payload"]);
        assert_eq!(trust.adopt(&[signed]), Ok(true), "{}", vector["name"]);
    }
    for vector in list("bundles", "invalid_after_the_first") {
        assert_eq!(adopt(&text(&vector)), Err(error(&vector)));
    }
    for vector in list("statements", "valid") {
        let statement = Statement::verify(&text(&vector), &pin, now_ms).unwrap();
        let payload: Value = serde_json::from_str(&statement.to_json()).unwrap();
        assert_eq!(payload, vector["payload"]);
    }
    for vector in list("statements", "invalid") {
        let refused = Statement::verify(&text(&vector), &pin, now_ms).unwrap_err();
        assert_eq!(refused.to_string(), error(&vector));
    }
    let verifier = Verifier::pinned(testing::trust()).with_signatures(2);
    for vector in list("quorum_certificates", "valid") {
        let certificate = verifier.verify(&text(&vector), now_ms).unwrap();
        let claims: Value = serde_json::from_str(&certificate.claims().to_json()).unwrap();
        assert_eq!(claims, vector["payload"]);
    }
    for vector in list("quorum_certificates", "invalid") {
        let refused = verifier.verify(&text(&vector), now_ms).unwrap_err();
        assert_eq!(refused.to_string(), error(&vector));
    }
    let certificate = document["proofs"]["certificate"].as_str().unwrap();
    for vector in list("proofs", "valid") {
        assert_eq!(prove(&text(&vector), certificate), Ok(()));
    }
    for vector in list("proofs", "invalid") {
        assert_eq!(prove(&text(&vector), certificate), Err(error(&vector)));
    }
}
