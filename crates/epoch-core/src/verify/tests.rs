//! One test for each check of the verifier, and what no check may let through.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::Algorithm;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::fields::FieldError;
use crate::testing::{self, NOW_MS, NOW_S, forge, header, payload, verifier};
use crate::{ClaimsError, NameError, TOKEN_BYTES_MAX, Thumbprint};

/// The verdict on the usual payload with one change made to it.
fn changed(change: impl FnOnce(&mut Value)) -> Result<Certificate, VerifyError> {
    let mut payload = payload();
    change(&mut payload);
    verifier().verify(&forge(&header(), &payload.to_string()), NOW_MS)
}

/// The verdict on the usual payload under another header.
fn headed(header: &str) -> Result<Certificate, VerifyError> {
    verifier().verify(&forge(header, &payload().to_string()), NOW_MS)
}

fn signature_fails() -> Result<Certificate, VerifyError> {
    let kid = testing::signing_key(1).id();
    Err(VerifyError::Jws(JwsError::Signature { kid }))
}

/// The name of some key of a holder.
fn holder_key() -> Thumbprint {
    Thumbprint::from_bytes([7; 32])
}

#[test]
fn a_signed_certificate_verifies_and_says_what_was_signed() {
    let claims = testing::claims(42, "writer-b")
        .with_audiences(vec!["db".to_owned(), "files".to_owned()])
        .unwrap()
        .with_confirmation(holder_key());
    let key = testing::signing_key(1);
    let token = key.sign(&claims).unwrap();
    let certificate = verifier()
        .with_audience("files")
        .verify(&token, NOW_MS)
        .unwrap();
    assert_eq!(certificate.claims(), &claims);
    assert_eq!(certificate.key(), key.id());
    assert!(certificate.signers().eq([key.id()]));
    assert_eq!(certificate.claims().confirmation(), Some(holder_key()));
    assert_eq!(certificate.grant().unwrap().holder.as_str(), "writer-b");
}

#[test]
fn a_holderless_certificate_has_no_grant() {
    let mut fence = testing::fence(42, "x");
    fence.grant = None;
    let certificate = testing::certificate(fence.clone());
    assert_eq!(certificate.grant(), None);
    assert_eq!(certificate.fence(), &fence);
    let half = changed(|payload| drop(payload.as_object_mut().unwrap().remove("sub")));
    assert_eq!(half, Err(VerifyError::GrantIncomplete));
    let half = changed(|payload| drop(payload["fence"].as_object_mut().unwrap().remove("grant")));
    assert_eq!(half, Err(VerifyError::GrantIncomplete));
}

#[test]
fn headers_that_name_another_algorithm_type_or_key_are_refused() {
    let kid = testing::signing_key(1).id();
    let with = |alg: &str, typ: &str, kid: &str| headed(&format!("{{{alg}{typ}{kid}}}"));
    let (alg, typ) = (r#""alg":"EdDSA","#, r#""typ":"epoch+jwt","#);
    let kid = format!(r#""kid":"{kid}""#);
    assert!(with(alg, typ, &kid).is_ok());
    for bad in ["none", "None", "HS256", "ES256", "Ed25519", "eddsa", ""] {
        let refused = with(&format!(r#""alg":"{bad}","#), typ, &kid);
        assert!(
            matches!(refused, Err(VerifyError::Jws(JwsError::Algorithm { .. }))),
            "{bad}"
        );
    }
    for bad in ["", r#""alg":null,"#, r#""alg":["EdDSA"],"#] {
        assert!(
            matches!(
                with(bad, typ, &kid),
                Err(VerifyError::Jws(JwsError::Algorithm { .. }))
            ),
            "{bad}"
        );
    }
    for bad in [
        "",
        r#""typ":"JWT","#,
        r#""typ":"EPOCH+JWT","#,
        r#""typ":"application/epoch+jwt","#,
    ] {
        assert!(
            matches!(
                with(alg, bad, &kid),
                Err(VerifyError::Jws(JwsError::Type { .. }))
            ),
            "{bad}"
        );
    }
    let not_a_name = |refused| matches!(refused, Err(VerifyError::Jws(JwsError::KeyId { .. })));
    for bad in ["1", "null", r#""""#, r#""../../key""#] {
        assert!(
            not_a_name(with(alg, typ, &format!(r#""kid":{bad}"#))),
            "{bad}"
        );
    }
    assert!(not_a_name(headed(r#"{"alg":"EdDSA","typ":"epoch+jwt"}"#)));
    let kid = testing::signing_key(2).id();
    let other = with(alg, typ, &format!(r#""kid":"{kid}""#));
    assert_eq!(other, Err(VerifyError::UnknownKey { kid }));
}

/// The classic confusion: the public key, which everybody has, used as an HMAC secret.
#[test]
fn an_hmac_over_the_public_key_is_refused() {
    let key = testing::signing_key(1);
    let mut header = jsonwebtoken::Header::new(Algorithm::HS256);
    header.typ = Some(TextKind::Certificate.typ().to_owned());
    header.kid = Some(key.id().to_string());
    let secret = jsonwebtoken::EncodingKey::from_secret(key.verifying_key().as_bytes()).unwrap();
    let token = jsonwebtoken::encode(&header, &payload(), &secret).unwrap();
    let refused = verifier().verify(&token, NOW_MS);
    assert!(matches!(
        refused,
        Err(VerifyError::Jws(JwsError::Algorithm { .. }))
    ));
}

#[test]
fn header_members_beyond_the_three_are_refused() {
    let jwk = testing::signing_key(2).verifying_key().to_jwk();
    let members = [
        ("jwk", jwk),
        ("jku", json!("https://example.org/keys")),
        ("x5c", json!(["AA"])),
        ("x5u", json!("https://example.org/key")),
        ("x5t", json!("AA")),
        ("x5t#S256", json!("AA")),
        ("zip", json!("DEF")),
        ("enc", json!("A128GCM")),
        ("crit", json!(["exp"])),
        ("crit", json!(["b64"])),
        ("b64", json!(true)),
        ("cty", json!("JWT")),
        ("anything", json!(null)),
    ];
    for (name, value) in members {
        let mut header: Value = serde_json::from_str(&header()).unwrap();
        header[name] = value;
        let refused = headed(&header.to_string());
        assert_eq!(
            refused,
            Err(VerifyError::Jws(JwsError::HeaderMember {
                name: name.to_owned()
            }))
        );
    }
}

#[test]
fn duplicate_keys_are_refused_wherever_they_stand() {
    let twice = header().replacen('{', r#"{"alg":"none","#, 1);
    assert!(matches!(
        headed(&twice),
        Err(VerifyError::Jws(JwsError::HeaderMalformed { .. }))
    ));
    let usual = payload().to_string();
    let changes = [
        usual.replacen('{', r#"{"iss":"epochd:other","#, 1),
        usual.replacen(r#""fence":{"#, r#""fence":{"epoch":41,"#, 1),
        usual.replacen('{', r#"{"x":[{"y":{"z":1,"z":1}}],"#, 1),
    ];
    for twice in changes {
        assert_ne!(twice, usual);
        let refused = verifier().verify(&forge(&header(), &twice), NOW_MS);
        assert!(
            matches!(refused, Err(VerifyError::ClaimsMalformed { .. })),
            "{twice}"
        );
    }
}

#[test]
fn unknown_claims_pass_and_unknown_fence_members_do_not() {
    assert!(changed(|payload| payload["later"] = json!({ "a": [1] })).is_ok());
    let refused = changed(|payload| payload["fence"]["later"] = json!(1));
    assert_eq!(
        refused,
        Err(VerifyError::Field(FieldError::Unknown {
            object: "the claim fence",
            name: "later".to_owned()
        }))
    );
}

#[test]
fn every_claim_but_the_optional_ones_must_be_there() {
    for claim in ["iss", "iat", "exp", "jti", "fence"] {
        let refused = changed(|payload| drop(payload.as_object_mut().unwrap().remove(claim)));
        assert_eq!(
            refused,
            Err(VerifyError::Field(FieldError::Missing { claim }))
        );
    }
    for claim in [
        "scope",
        "incarnation",
        "epoch",
        "group",
        "term",
        "leader",
        "index",
        "offset",
    ] {
        let refused =
            changed(|payload| drop(payload["fence"].as_object_mut().unwrap().remove(claim)));
        let Err(VerifyError::Field(FieldError::Missing { claim: found })) = refused else {
            panic!("{claim}: {refused:?}");
        };
        assert_eq!(found, format!("fence.{claim}"));
    }
}

#[test]
fn epochs_that_are_not_exact_are_refused() {
    let max = crate::EPOCH_EXCLUSIVE_MAX;
    for bad in [
        json!(-1),
        json!(0),
        json!(1.5),
        json!(42.0),
        json!("42"),
        json!(max),
        json!(u64::MAX),
        json!(null),
        json!([42]),
    ] {
        let refused = changed(|payload| payload["fence"]["epoch"] = bad.clone());
        assert!(matches!(refused, Err(VerifyError::Epoch { .. })), "{bad}");
    }
    let usual = payload().to_string();
    for bad in ["4.2e1", "42e0", "-0", "99999999999999999999"] {
        let text = usual.replacen(r#""epoch":42"#, &format!(r#""epoch":{bad}"#), 1);
        let refused = verifier().verify(&forge(&header(), &text), NOW_MS);
        assert!(matches!(refused, Err(VerifyError::Epoch { .. })), "{bad}");
    }
}

#[test]
fn an_epoch_beyond_the_future_bound_is_refused() {
    let newest = (NOW_MS + MAX_FUTURE_MS_DEFAULT) << 10;
    assert!(changed(|payload| payload["fence"]["epoch"] = json!(newest)).is_ok());
    let refused = changed(|payload| payload["fence"]["epoch"] = json!(newest + 1));
    assert!(matches!(refused, Err(VerifyError::EpochTooFar { .. })));
    let mut payload = payload();
    payload["fence"]["epoch"] = json!(newest + 1);
    let token = forge(&header(), &payload.to_string());
    let wider = verifier().with_max_future_ms(MAX_FUTURE_MS_DEFAULT + 1);
    assert!(wider.verify(&token, NOW_MS).is_ok());
    assert!(
        verifier()
            .with_max_future_ms(u64::MAX)
            .verify(&token, NOW_MS)
            .is_ok()
    );
}

#[test]
fn dates_are_whole_numbers_in_order_and_within_the_skew() {
    let malformed = |claim| {
        Err(VerifyError::Field(FieldError::Malformed {
            claim,
            expected: "an integer from 0 to 2^53 - 1",
        }))
    };
    for claim in ["iat", "exp", "nbf"] {
        for bad in [
            json!("1767225600"),
            json!(1_767_225_600.5),
            json!(-1),
            json!(null),
        ] {
            let refused = changed(|payload| payload[claim] = bad.clone());
            assert_eq!(refused, malformed(claim), "{bad}");
        }
    }
    let token = testing::signing_key(1)
        .sign(&testing::claims(42, "h"))
        .unwrap();
    let at = |now_ms| verifier().verify(&token, now_ms);
    let expires_ms = (NOW_S + 12 * 3600) * 1000;
    assert!(at(expires_ms + SKEW_MS_DEFAULT - 1).is_ok());
    let expired = at(expires_ms + SKEW_MS_DEFAULT);
    assert!(matches!(expired, Err(VerifyError::Expired { .. })));
    assert!(at(NOW_MS - SKEW_MS_DEFAULT).is_ok());
    let early = at(NOW_MS - SKEW_MS_DEFAULT - 1);
    assert!(matches!(early, Err(VerifyError::IssuedInFuture { .. })));
    assert!(matches!(at(0), Err(VerifyError::IssuedInFuture { .. })));
    assert!(matches!(at(u64::MAX), Err(VerifyError::Expired { .. })));
    let empty = changed(|payload| payload["exp"] = payload["iat"].clone());
    let bound = ClaimsError::ValidityEmpty {
        issued_at_s: NOW_S,
        expires_at_s: NOW_S,
    };
    assert_eq!(empty, Err(VerifyError::ClaimBounds(bound)));
    let later = changed(|payload| payload["nbf"] = json!(NOW_S + 31));
    assert!(matches!(later, Err(VerifyError::NotYetValid { .. })));
    assert!(changed(|payload| payload["nbf"] = json!(NOW_S + 30)).is_ok());
}

#[test]
fn another_clusters_certificate_is_refused() {
    for bad in ["epochd:018f4d1c-0000-7000-8000-00000000000b", "epochd:", ""] {
        let refused = changed(|payload| payload["iss"] = json!(bad));
        assert!(matches!(refused, Err(VerifyError::Issuer { .. })), "{bad}");
    }
}

#[test]
fn the_audience_is_strict() {
    let with = |aud: Value| {
        let mut payload = payload();
        payload["aud"] = aud;
        forge(&header(), &payload.to_string())
    };
    let strict = verifier().with_audience("db");
    let verify = |verifier: &Verifier, aud| verifier.verify(&with(aud), NOW_MS);
    assert!(verify(&strict, json!(["files", "db"])).is_ok());
    assert!(verify(&strict, json!("db")).is_ok());
    for bad in [json!(["DB"]), json!(["db/"]), json!("d")] {
        assert_eq!(verify(&strict, bad), Err(VerifyError::Audience));
    }
    for bad in [
        json!([]),
        json!(null),
        json!(1),
        json!([1]),
        json!(["db", "db"]),
        json!({}),
    ] {
        let refused = verify(&strict, bad);
        assert!(matches!(
            refused,
            Err(VerifyError::Field(FieldError::Malformed {
                claim: "aud",
                ..
            }))
        ));
    }
    let none = forge(&header(), &payload().to_string());
    let missing = strict.verify(&none, NOW_MS);
    assert_eq!(
        missing,
        Err(VerifyError::AudienceMissing {
            expected: "db".to_owned()
        })
    );
    assert!(verifier().verify(&none, NOW_MS).is_ok());
    assert_eq!(
        verify(&verifier(), json!(["db"])),
        Err(VerifyError::Audience)
    );
    assert!(verify(&verifier().with_any_audience(), json!(["db"])).is_ok());
}

#[test]
fn names_out_of_form_are_refused() {
    for bad in [
        String::new(),
        "s".repeat(513),
        "a\0".to_owned(),
        "a\nb".to_owned(),
    ] {
        let refused = changed(|payload| payload["fence"]["scope"] = json!(bad));
        assert!(matches!(refused, Err(VerifyError::Scope(_))), "{bad}");
        let refused = changed(|payload| payload["sub"] = json!(bad));
        assert!(matches!(refused, Err(VerifyError::Holder(_))), "{bad}");
    }
    let empty = changed(|payload| payload["fence"]["scope"] = json!(""));
    assert_eq!(
        empty,
        Err(VerifyError::Scope(NameError::Empty {
            what: "scope",
            max: 512
        }))
    );
    for bad in [
        "018F4D1C-0000-7000-8000-000000000001",
        "018f4d1c000070008000000000000001",
        "",
    ] {
        let refused = changed(|payload| payload["fence"]["incarnation"] = json!(bad));
        let claim = "fence.incarnation";
        assert!(
            matches!(refused, Err(VerifyError::Field(FieldError::Malformed { claim: c, .. })) if c == claim)
        );
    }
    for bad in [json!("AA"), json!(1)] {
        let refused = changed(|payload| payload["fence"]["grant"] = bad);
        assert!(matches!(
            refused,
            Err(VerifyError::Field(FieldError::Malformed {
                claim: "fence.grant",
                ..
            }))
        ));
    }
    let jkt = holder_key().to_string();
    assert!(changed(|payload| payload["cnf"] = json!({ "jkt": jkt })).is_ok());
    for bad in [
        json!("key"),
        json!(null),
        json!({}),
        json!({ "jkt": "thumb" }),
        json!({ "kid": jkt }),
        json!({ "jkt": jkt, "x5t#S256": jkt }),
    ] {
        let refused = changed(|payload| payload["cnf"] = bad.clone());
        assert!(matches!(refused, Err(VerifyError::Field(_))), "{bad}");
    }
    assert!(changed(|payload| payload["jti"] = json!("")).is_err());
}

#[test]
fn tokens_of_another_shape_are_refused() {
    let token = testing::signing_key(1)
        .sign(&testing::claims(42, "h"))
        .unwrap();
    let verify = |token: &str| verifier().verify(token, NOW_MS);
    assert!(verify(&token).is_ok());
    for bad in ["", ".", "..", "a.b", "....", "\u{e9}.\u{e9}.\u{e9}"] {
        assert!(verify(bad).is_err(), "{bad}");
    }
    for bad in [
        format!("{token}."),
        format!("{token}="),
        format!(" {token}"),
        format!("{token}\n"),
    ] {
        assert!(verify(&bad).is_err(), "{bad}");
    }
    let (len, max) = (TOKEN_BYTES_MAX + 1, TOKEN_BYTES_MAX);
    assert_eq!(
        verify(&"a".repeat(len)),
        Err(VerifyError::Jws(JwsError::TooLarge { len, max }))
    );
    let (signed, _) = token.rsplit_once('.').unwrap();
    assert_eq!(verify(&format!("{signed}.")), signature_fails());
    let not_an_object = forge(&header(), "[]");
    assert!(matches!(
        verify(&not_an_object),
        Err(VerifyError::ClaimsMalformed { .. })
    ));
}

#[test]
fn a_signature_by_another_key_is_refused() {
    let claims = testing::claims(42, "h");
    let own = testing::signing_key(1).sign(&claims).unwrap();
    let other = testing::signing_key(2).sign(&claims).unwrap();
    let (signed, _) = own.rsplit_once('.').unwrap();
    let (_, signature) = other.rsplit_once('.').unwrap();
    let mixed = format!("{signed}.{signature}");
    assert_eq!(verifier().verify(&mixed, NOW_MS), signature_fails());
    let unknown = verifier().verify(&other, NOW_MS);
    assert!(matches!(unknown, Err(VerifyError::UnknownKey { .. })));
    let mut refreshed = verifier();
    refreshed.replace_keys(testing::key_set(&[1, 2])).unwrap();
    assert!(refreshed.verify(&other, NOW_MS).is_ok());
}

proptest! {
    #[test]
    fn arbitrary_text_never_verifies(text in any::<String>()) {
        prop_assert!(verifier().verify(&text, NOW_MS).is_err());
    }

    #[test]
    fn arbitrary_bytes_in_three_parts_never_verify(
        header in any::<Vec<u8>>(), payload in any::<Vec<u8>>(), signature in any::<[u8; 32]>(),
    ) {
        let part = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let tail = format!("{}.{}", part(&payload), part(&signature));
        let usual = part(testing::header().as_bytes());
        for head in [part(&header), usual] {
            prop_assert!(verifier().verify(&[head, tail.clone()].join("."), NOW_MS).is_err());
        }
    }

    /// A signed payload of any JSON text reaches every reader of claims.
    #[test]
    fn arbitrary_signed_payloads_never_panic(
        payload in any::<String>(), name in "iss|aud|iat|exp|jti|cnf|sub|fence", n in any::<i64>(),
    ) {
        prop_assert!(verifier().verify(&forge(&header(), &payload), NOW_MS).is_err());
        for value in [json!(n), json!(payload), json!([payload]), json!({ "epoch": n })] {
            let verdict = changed(|payload| payload[name.as_str()] = value.clone());
            prop_assert!(verdict.is_err() || ["iat", "exp", "jti", "sub"].contains(&&*name));
        }
    }

    #[test]
    fn one_changed_byte_never_verifies(at in any::<prop::sample::Index>(), byte in 0_u8..128) {
        let token = testing::signing_key(1).sign(&testing::claims(42, "h")).unwrap();
        let mut bytes = token.clone().into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let mutated = String::from_utf8(bytes).unwrap();
        prop_assert_eq!(verifier().verify(&mutated, NOW_MS).is_ok(), mutated == token);
    }
}

/// All single-bit changes, so that no place in the token is left to chance.
#[test]
fn one_changed_bit_never_verifies() {
    let token = testing::signing_key(1)
        .sign(&testing::claims(42, "h"))
        .unwrap();
    let verifier = verifier();
    for at in 0..token.len() {
        for bit in 0..7 {
            let mut bytes = token.clone().into_bytes();
            bytes[at] ^= 1 << bit;
            let mutated = String::from_utf8(bytes).unwrap();
            assert!(
                verifier.verify(&mutated, NOW_MS).is_err(),
                "bit {bit} of byte {at}"
            );
        }
    }
}
