//! The fixed vectors that every implementation in any language is held to.
//!
//! `certificates.json` gives tokens that must verify, with their claims, and tokens that must not,
//! each with what is wrong; `jwks.json` the public key; both made from a seed that is no secret.
//! Rewrite them with `EPOCHD_GOLDEN=rewrite cargo test -p epoch-core golden`, and look at the
//! difference: a changed vector is a changed format.

use serde_json::{Value, json};

use crate::testing::{self, NOW_MS, forge, header, payload};
use crate::{Fence, KeySet, Verifier};

const CERTIFICATES: &str = include_str!("../../../tests/golden/certificates.json");
const JWKS: &str = include_str!("../../../tests/golden/jwks.json");

fn valid() -> Value {
    let key = testing::signing_key(1);
    let held = testing::claims(42, "writer-b");
    let barrier = testing::claims_in(
        testing::scope(),
        Fence {
            grant: None,
            ..testing::fence(43, "nobody")
        },
    );
    let full = testing::claims(1_809_638_000_000_001, "agents/\u{fc}ber \"b\"")
        .with_audiences(vec!["files".to_owned(), "db".to_owned()])
        .unwrap()
        .with_confirmation(
            "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I"
                .parse()
                .unwrap(),
        );
    let vector = |name: &str, claims: &crate::Claims| {
        let parsed: Value = serde_json::from_str(&claims.to_json()).unwrap();
        json!({ "name": name, "token": key.sign(claims).unwrap(), "claims": parsed })
    };
    json!([
        vector("held", &held),
        vector("holderless", &barrier),
        vector("audience", &full)
    ])
}

/// Tokens wrong in header or signature.
fn invalid_tokens() -> Vec<(&'static str, String)> {
    let headed = |header: String| forge(&header, &payload().to_string());
    let usual = testing::signing_key(1)
        .sign(&testing::claims(42, "writer-b"))
        .unwrap();
    let other_key = testing::signing_key(2)
        .sign(&testing::claims(42, "writer-b"))
        .unwrap();
    vec![
        (
            "signature cut off",
            usual.trim_end_matches(|c| c != '.').to_owned(),
        ),
        ("key unknown", other_key),
        ("alg none", headed(header().replace("EdDSA", "none"))),
        ("typ JWT", headed(header().replace("epoch+jwt", "JWT"))),
        (
            "header with jku",
            headed(header().replacen('{', r#"{"jku":"https://example.org","#, 1)),
        ),
        (
            "header with crit",
            headed(header().replacen('{', r#"{"crit":["exp"],"#, 1)),
        ),
    ]
}

/// Tokens wrong in their claims, well signed.
fn invalid_claims() -> Vec<(&'static str, String)> {
    let with = |change: fn(&mut Value)| {
        let mut payload = payload();
        change(&mut payload);
        forge(&header(), &payload.to_string())
    };
    let doubled = payload()
        .to_string()
        .replacen(r#""epoch":42"#, r#""epoch":42,"epoch":43"#, 1);
    vec![
        ("duplicate epoch", forge(&header(), &doubled)),
        (
            "epoch as text",
            with(|payload| payload["fence"]["epoch"] = json!("42")),
        ),
        (
            "epoch negative",
            with(|payload| payload["fence"]["epoch"] = json!(-1)),
        ),
        (
            "epoch not whole",
            with(|payload| payload["fence"]["epoch"] = json!(1.5)),
        ),
        (
            "epoch zero",
            with(|payload| payload["fence"]["epoch"] = json!(0)),
        ),
        (
            "epoch 2^53",
            with(|payload| payload["fence"]["epoch"] = json!(1_u64 << 53)),
        ),
        (
            "epoch far ahead",
            with(|payload| payload["fence"]["epoch"] = json!((1_u64 << 53) - 1)),
        ),
        (
            "exp as text",
            with(|payload| payload["exp"] = json!("1767268800")),
        ),
        (
            "exp not whole",
            with(|payload| payload["exp"] = json!(1_767_268_800.5)),
        ),
        (
            "expired",
            with(|payload| (payload["iat"], payload["exp"]) = (json!(1), json!(2))),
        ),
        (
            "issued in the future",
            with(|payload| payload["iat"] = json!(1_767_225_700)),
        ),
        (
            "other cluster",
            with(|payload| payload["iss"] = json!("epochd:other")),
        ),
        (
            "scope with newline",
            with(|payload| payload["fence"]["scope"] = json!("a\nb")),
        ),
        (
            "grant without sub",
            with(|payload| drop(payload.as_object_mut().unwrap().remove("sub"))),
        ),
        (
            "unknown fence member",
            with(|payload| payload["fence"]["also"] = json!(1)),
        ),
    ]
}

/// The tokens that must not verify, each with what is wrong and this verifier's words for it.
fn invalid() -> Value {
    let vector = |(name, token): &(&str, String)| {
        let error = testing::verifier().verify(token, NOW_MS).unwrap_err();
        json!({ "name": name, "token": token, "error": error.to_string() })
    };
    invalid_tokens()
        .iter()
        .chain(&invalid_claims())
        .map(vector)
        .collect()
}

fn document() -> Value {
    json!({
        "about": "Fixed certificates for verifiers in any language. The key's seed is 32 bytes 0x01.",
        "cluster": testing::cluster(),
        "now_ms": NOW_MS,
        "audience": "files",
        "valid": valid(),
        "invalid": invalid(),
    })
}

/// Writes a file of vectors if that is asked for.
#[expect(
    clippy::disallowed_methods,
    reason = "the one way to rewrite the vectors"
)]
pub(crate) fn rewritten(name: &str, document: &str) -> bool {
    if std::env::var("EPOCHD_GOLDEN").as_deref() != Ok("rewrite") {
        return false;
    }
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden");
    std::fs::write(format!("{folder}/{name}"), document).unwrap();
    true
}

#[test]
fn golden_vectors_are_what_this_code_signs() {
    let certificates = format!("{:#}\n", document());
    let jwks = format!("{:#}\n", testing::key_set(&[1]).to_jwks());
    if rewritten("certificates.json", &certificates) && rewritten("jwks.json", &jwks) {
        return;
    }
    assert_eq!(CERTIFICATES, certificates);
    assert_eq!(JWKS, jwks);
}

#[test]
fn golden_vectors_verify_or_are_refused_as_they_say() {
    let document: Value = serde_json::from_str(CERTIFICATES).unwrap();
    let keys = KeySet::from_jwks(JWKS.as_bytes()).unwrap();
    let cluster = document["cluster"].as_str().unwrap().parse().unwrap();
    let now_ms = document["now_ms"].as_u64().unwrap();
    let open = Verifier::new(cluster, keys);
    let named = open
        .clone()
        .with_audience(document["audience"].as_str().unwrap());
    for vector in document["valid"].as_array().unwrap() {
        let verifier = if vector["claims"]["aud"].is_null() {
            &open
        } else {
            &named
        };
        let certificate = verifier
            .verify(vector["token"].as_str().unwrap(), now_ms)
            .unwrap();
        let claims: Value = serde_json::from_str(&certificate.claims().to_json()).unwrap();
        assert_eq!(claims, vector["claims"], "{}", vector["name"]);
    }
    for vector in document["invalid"].as_array().unwrap() {
        let error = open
            .verify(vector["token"].as_str().unwrap(), now_ms)
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            vector["error"].as_str().unwrap(),
            "{}",
            vector["name"]
        );
    }
}
