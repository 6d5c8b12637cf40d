//! Each check of a proof of possession.

use serde_json::json;

use super::*;
use crate::fields::FieldError;
use crate::testing::{self, NOW_MS, NOW_S, bound_certificate, holder_key, signing_key};
use crate::thumbprint::{HolderJwkError, Thumbprint};

const URL: &str = "https://files.example.org/reports/7";

/// The verdict of a fresh verifier on a proof for the usual request.
fn verify(proof: &str) -> Result<(), ProofError> {
    verify_at(&ProofVerifier::default(), proof, URL, NOW_MS)
}

fn verify_at(
    verifier: &ProofVerifier,
    proof: &str,
    url: &str,
    now_ms: u64,
) -> Result<(), ProofError> {
    let (certificate, text) = bound_certificate(holder_key(50).thumbprint());
    let presented = Presented {
        certificate: &certificate,
        text: &text,
        method: "PUT",
        url,
    };
    verifier.verify(proof, presented, now_ms)
}

fn proof_at(issued_at_s: u64, jti: &str) -> String {
    let (_, text) = bound_certificate(holder_key(50).thumbprint());
    holder_key(50).proof("PUT", URL, &text, issued_at_s, jti)
}

fn part(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

fn usual_header() -> Value {
    json!({ "typ": "dpop+jwt", "alg": "EdDSA", "jwk": holder_key(50).public_jwk() })
}

fn usual_claims() -> Value {
    let proof = proof_at(NOW_S, "jti-1");
    let payload = proof.split('.').nth(1).unwrap();
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).unwrap()).unwrap()
}

/// The verdict on any header and claims, well signed by key 50.
fn forged(header: &Value, claims: &Value) -> Result<(), ProofError> {
    let signed = format!("{}.{}", part(header), part(claims));
    let signature = signing_key(50).sign_bytes(signed.as_bytes());
    verify(&format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
}

fn header_with(name: &str, value: Value) -> Result<(), ProofError> {
    let mut header = usual_header();
    header[name] = value;
    forged(&header, &usual_claims())
}

fn claim_with(name: &str, value: Value) -> Result<(), ProofError> {
    let mut claims = usual_claims();
    claims[name] = value;
    forged(&usual_header(), &claims)
}

#[test]
fn a_proof_by_the_holders_key_for_the_request_verifies() {
    assert_eq!(verify(&proof_at(NOW_S, "jti-1")), Ok(()));
    assert_eq!(forged(&usual_header(), &usual_claims()), Ok(()));
    assert_eq!(claim_with("nonce", json!("x")), Ok(()));
    let key = holder_key(50);
    let again = crate::HolderKey::from_pkcs8(&key.to_pkcs8().unwrap()).unwrap();
    assert_eq!(again.thumbprint(), key.thumbprint());
    let jwk = key.public_jwk().to_string();
    assert_eq!(Thumbprint::of_jwk(jwk.as_bytes()), Ok(key.thumbprint()));
    assert!(!format!("{key:?}").contains("50, 50"));
}

/// The proof of RFC 9449, section 7.1, with its access token in place of the certificate's text.
#[test]
fn the_proof_of_the_standard_verifies() {
    let proof = "eyJ0eXAiOiJkcG9wK2p3dCIsImFsZyI6IkVTMjU2IiwiandrIjp7Imt0eSI6IkVDIiwieCI6Imw4\
                 dEZyaHgtMzR0VjNoUklDUkRZOXpDa0RscEJoRjQyVVFVZldWQVdCRnMiLCJ5IjoiOVZFNGpmX09r\
                 X282NHpiVFRsY3VOSmFqSG10NnY5VERWclUwQ2R2R1JEQSIsImNydiI6IlAtMjU2In19.eyJqdGki\
                 OiJlMWozVl9iS2ljOC1MQUVCIiwiaHRtIjoiR0VUIiwiaHR1IjoiaHR0cHM6Ly9yZXNvdXJjZS5l\
                 eGFtcGxlLm9yZy9wcm90ZWN0ZWRyZXNvdXJjZSIsImlhdCI6MTU2MjI2MjYxOCwiYXRoIjoiZlVI\
                 eU8ycjJaM0RaNTNFc05yV0JiMHhXWG9hTnk1OUlpS0NBcWtzbVFFbyJ9.2oW9RP35yRqzhrtNP86L\
                 -Ey71EOptxRimPPToA1plemAgR6pxHF8y6-yqyVnmcw6Fy1dqd-jfxSYoMxhAJpLjA";
    let key = "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I"
        .parse()
        .unwrap();
    let (certificate, _) = bound_certificate(key);
    let presented = Presented {
        certificate: &certificate,
        text: "Kz~8mXK1EalYznwH-LC-1fBAo.4Ljp~zsPE_NeO.gxU",
        method: "GET",
        url: "https://resource.example.org/protectedresource",
    };
    let verifier = ProofVerifier::default();
    assert_eq!(verifier.verify(proof, presented, 1_562_262_618_000), Ok(()));
    let damaged = proof.replace("-jfxSYoMxhAJpLjA", "-jfxSYoMxhAJpLjQ");
    let refused = ProofVerifier::default().verify(&damaged, presented, 1_562_262_618_000);
    assert_eq!(refused, Err(ProofError::Signature));
}

#[test]
fn a_proof_by_another_key_is_refused() {
    let (_, text) = bound_certificate(holder_key(50).thumbprint());
    let refused = verify(&holder_key(51).proof("PUT", URL, &text, NOW_S, "jti-1"));
    let (found, expected) = (holder_key(51).thumbprint(), holder_key(50).thumbprint());
    assert_eq!(refused, Err(ProofError::OtherKey { found, expected }));
    // The right key in the header, another one's signature.
    let signed = format!("{}.{}", part(&usual_header()), part(&usual_claims()));
    let signature = signing_key(51).sign_bytes(signed.as_bytes());
    let refused = verify(&format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)));
    assert_eq!(refused, Err(ProofError::Signature));
    // The key's own signature over other claims.
    let proof = proof_at(NOW_S, "jti-1");
    let (_, signature) = proof.rsplit_once('.').unwrap();
    let other = proof_at(NOW_S, "jti-2");
    let (signed, _) = other.rsplit_once('.').unwrap();
    let refused = verify(&format!("{signed}.{signature}"));
    assert_eq!(refused, Err(ProofError::Signature));
}

#[test]
fn a_certificate_that_is_bound_to_no_key_cannot_be_proven() {
    let certificate = testing::certificate(testing::fence(42, "h"));
    let presented = Presented {
        certificate: &certificate,
        text: "",
        method: "PUT",
        url: URL,
    };
    let refused = ProofVerifier::default().verify(&proof_at(NOW_S, "j"), presented, NOW_MS);
    assert_eq!(refused, Err(ProofError::NotBound));
}

#[test]
fn headers_out_of_form_are_refused() {
    for (name, value) in [
        ("kid", json!("x")),
        ("crit", json!(["b64"])),
        ("x", json!(1)),
    ] {
        let name = name.to_owned();
        let refused = header_with(&name, value);
        let member = JwsError::HeaderMember { name };
        assert_eq!(refused, Err(ProofError::Jws(member)));
    }
    for typ in [
        json!("JWT"),
        json!("epoch+jwt"),
        json!("DPOP+JWT"),
        json!(null),
    ] {
        let refused = header_with("typ", typ);
        assert!(matches!(
            refused,
            Err(ProofError::Jws(JwsError::Type { .. }))
        ));
    }
    for alg in [
        json!("none"),
        json!("ES256"),
        json!("HS256"),
        json!("Ed25519"),
        json!(1),
    ] {
        let refused = header_with("alg", alg);
        assert!(matches!(refused, Err(ProofError::Algorithm { .. })));
    }
    let mut private = holder_key(50).public_jwk();
    private["d"] = json!("AA");
    let refused = header_with("jwk", private);
    let name = "d";
    assert_eq!(
        refused,
        Err(ProofError::Jwk(HolderJwkError::Private { name }))
    );
    for jwk in [json!({ "kty": "RSA" }), json!({ "kty": "oct", "crv": "x" })] {
        let refused = header_with("jwk", jwk);
        assert!(matches!(refused, Err(ProofError::Jwk(_))));
    }
    let refused = header_with("jwk", json!("x"));
    assert!(matches!(refused, Err(ProofError::Field(_))));
    let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode("{"), part(&usual_claims()));
    let refused = verify(&format!("{signed}.AA"));
    assert!(matches!(
        refused,
        Err(ProofError::Jws(JwsError::HeaderMalformed { .. }))
    ));
}

#[test]
fn claims_out_of_form_are_refused() {
    for claim in ["jti", "htm", "htu", "ath", "iat"] {
        let mut claims = usual_claims();
        claims.as_object_mut().unwrap().remove(claim);
        let refused = forged(&usual_header(), &claims);
        let missing = FieldError::Missing { claim };
        assert_eq!(refused, Err(ProofError::Field(missing)));
        for bad in [json!(null), json!(1.5), json!([])] {
            let refused = claim_with(claim, bad);
            assert!(matches!(
                refused,
                Err(ProofError::Field(FieldError::Malformed { .. }))
            ));
        }
    }
    for len in [0, PROOF_JTI_BYTES_MAX + 1] {
        let refused = claim_with("jti", json!("j".repeat(len)));
        assert_eq!(refused, Err(ProofError::JtiLength { len }));
    }
    let refused = forged(&usual_header(), &json!([]));
    assert!(matches!(refused, Err(ProofError::Malformed { .. })));
}

#[test]
fn texts_of_another_shape_are_refused() {
    let proof = proof_at(NOW_S, "jti-1");
    for bad in [
        String::new(),
        ".".to_owned(),
        "..".to_owned(),
        format!("{proof}."),
        format!("{proof}="),
        format!("{proof},{proof}"),
        format!(" {proof}"),
        proof.replacen('.', "..", 1),
    ] {
        let refused = verify(&bad);
        assert!(
            matches!(refused, Err(ProofError::Jws(_) | ProofError::Signature)),
            "{bad}: {refused:?}"
        );
    }
    let len = PROOF_BYTES_MAX + 1;
    let refused = verify(&"a".repeat(len));
    assert_eq!(refused, Err(ProofError::TooLarge { len }));
}

#[test]
fn a_proof_is_for_one_method_url_and_certificate() {
    for method in ["put", "POST", "PUT "] {
        let refused = claim_with("htm", json!(method));
        assert!(
            matches!(refused, Err(ProofError::Method { .. })),
            "{method}"
        );
    }
    for url in [
        "https://files.example.org/reports/7",
        "https://files.example.org:443/reports/7",
        "HTTPS://Files.Example.ORG/reports/7",
        "https://files.example.org/reports/7?x=1",
        "https://files.example.org/reports/7#x",
    ] {
        assert_eq!(claim_with("htu", json!(url)), Ok(()), "{url}");
        let verifier = ProofVerifier::default();
        let proof = proof_at(NOW_S, "jti-1");
        assert_eq!(verify_at(&verifier, &proof, url, NOW_MS), Ok(()), "{url}");
    }
    for url in [
        "http://files.example.org/reports/7",
        "https://files.example.org:80/reports/7",
        "https://files.example.org/reports/",
        "https://files.example.org/Reports/7",
        "https://files.example.org/reports/7/",
        "https://files.example.org",
        "https://x@files.example.org/reports/7",
        "https:///reports/7",
        "ftp://files.example.org/reports/7",
        "/reports/7",
        "",
    ] {
        let refused = claim_with("htu", json!(url));
        assert!(matches!(refused, Err(ProofError::Url { .. })), "{url}");
        // Nor does a request whose own URL cannot be told match a proof that says the same.
        let (certificate, text) = bound_certificate(holder_key(50).thumbprint());
        let proof = holder_key(50).proof("PUT", "/reports/7", &text, NOW_S, "j");
        let presented = Presented {
            certificate: &certificate,
            text: &text,
            method: "PUT",
            url: "/reports/7",
        };
        let refused = ProofVerifier::default().verify(&proof, presented, NOW_MS);
        assert!(matches!(refused, Err(ProofError::Url { .. })));
    }
    let root = [
        "https://files.example.org",
        "https://files.example.org:443/",
    ];
    assert_eq!(target(root[0]), target(root[1]));
    let refused = claim_with("ath", json!(certificate_hash("another")));
    assert_eq!(refused, Err(ProofError::OtherCertificate));
}

#[test]
fn a_proof_is_of_now() {
    for issued_at_s in [NOW_S - 60, NOW_S, NOW_S + 60] {
        assert_eq!(verify(&proof_at(issued_at_s, "jti-1")), Ok(()));
    }
    for issued_at_s in [0, NOW_S - 61, NOW_S + 61, u64::MAX >> 11] {
        let refused = verify(&proof_at(issued_at_s, "jti-1"));
        assert!(matches!(refused, Err(ProofError::OutOfWindow { .. })));
    }
    let narrow = ProofVerifier::new(1_000, 10);
    let proof = proof_at(NOW_S, "jti-1");
    let refused = verify_at(&narrow, &proof, URL, NOW_MS + 1_001);
    assert!(matches!(refused, Err(ProofError::OutOfWindow { .. })));
    assert_eq!(verify_at(&narrow, &proof, URL, NOW_MS + 1_000), Ok(()));
}

#[test]
fn a_proof_is_used_once() {
    let verifier = ProofVerifier::default();
    let at = |proof: &str, now_ms| verify_at(&verifier, proof, URL, now_ms);
    let proof = proof_at(NOW_S, "jti-1");
    assert_eq!(at(&proof, NOW_MS), Ok(()));
    for now_ms in [NOW_MS - 60_000, NOW_MS, NOW_MS + 60_000] {
        assert_eq!(at(&proof, now_ms), Err(ProofError::Replayed));
    }
    // The jti counts, not the rest.
    let later = proof_at(NOW_S + 1, "jti-1");
    assert_eq!(at(&later, NOW_MS), Err(ProofError::Replayed));
    assert_eq!(at(&proof_at(NOW_S, "jti-2"), NOW_MS), Ok(()));
    // A proof that was refused has not been used.
    let other_url = "https://files.example.org/other";
    let fresh = proof_at(NOW_S, "jti-3");
    assert!(verify_at(&verifier, &fresh, other_url, NOW_MS).is_err());
    assert_eq!(at(&fresh, NOW_MS), Ok(()));
    // The same jti under another key is another proof.
    let (certificate, text) = bound_certificate(holder_key(51).thumbprint());
    let presented = Presented {
        certificate: &certificate,
        text: &text,
        method: "PUT",
        url: URL,
    };
    let other = holder_key(51).proof("PUT", URL, &text, NOW_S, "jti-1");
    assert_eq!(verifier.verify(&other, presented, NOW_MS), Ok(()));
}

#[test]
fn a_forgotten_proof_is_not_taken_again_where_the_clock_steps_back() {
    let verifier = ProofVerifier::default();
    let at = |proof: &str, now_ms| verify_at(&verifier, proof, URL, now_ms);
    let proof = proof_at(NOW_S, "jti-1");
    assert_eq!(at(&proof, NOW_MS), Ok(()));
    // Forgets it.
    let later = proof_at(NOW_S + 61, "jti-2");
    assert_eq!(at(&later, NOW_MS + 61_000), Ok(()));
    assert_eq!(at(&proof, NOW_MS), Err(ProofError::Replayed));
    assert_eq!(at(&proof_at(NOW_S + 1, "jti-3"), NOW_MS), Ok(()));
}

#[test]
fn a_full_memory_refuses_rather_than_forgets() {
    let verifier = ProofVerifier::new(60_000, 2);
    let at = |proof: &str, now_ms| verify_at(&verifier, proof, URL, now_ms);
    let (first, second) = (proof_at(NOW_S, "jti-1"), proof_at(NOW_S + 1, "jti-2"));
    let third = proof_at(NOW_S + 1, "jti-3");
    assert_eq!(at(&first, NOW_MS), Ok(()));
    assert_eq!(at(&second, NOW_MS), Ok(()));
    let entries = 2;
    let full = Err(ProofError::ReplayCacheFull { entries });
    assert_eq!(at(&third, NOW_MS + 60_000), full);
    assert_eq!(at(&first, NOW_MS + 60_000), Err(ProofError::Replayed));
    // The first is out of its window by itself, so it makes room.
    assert_eq!(at(&third, NOW_MS + 60_001), Ok(()));
    assert_eq!(at(&second, NOW_MS + 60_001), Err(ProofError::Replayed));
}
