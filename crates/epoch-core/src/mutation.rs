//! What is hostile never panics, and never verifies: valid texts with bytes changed, put in, taken
//! out and moved, for each kind of text that comes from outside.

use proptest::prelude::*;

use crate::testing::{
    NOW_MS, NOW_S, ROOT, bound_certificate, bundle, claims, holder_key, max_future, pin, signed_by,
    trust,
};
use crate::{
    CachedVerifier, Presented, ProofVerifier, SignedBundle, Statement, TextKind, Thumbprint, Trust,
    Verifier,
};

/// One change to a text: where, and the bytes put in place of how many.
type Change = (prop::sample::Index, usize, Vec<u8>);

fn changes() -> impl Strategy<Value = Vec<Change>> {
    // Mostly what the formats themselves are made of, so that changes get past the first check.
    let byte = prop::sample::select(b"aAzZ09-_.,={}[]\":\\ \x00\xff".to_vec());
    let bytes = prop::collection::vec(byte, 0..4);
    prop::collection::vec((any::<prop::sample::Index>(), 0..4_usize, bytes), 0..4)
}

/// The text with these changes; what is not UTF-8 afterwards is replaced.
fn mutated(text: &str, changes: &[Change]) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for (at, taken, put) in changes {
        let at = at.index(bytes.len() + 1);
        let end = (at + taken).min(bytes.len());
        bytes.splice(at..end, put.iter().copied());
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The payload's JSON changed, and signed again: what one with a good key could send.
fn resigned(kind: TextKind, seeds: &[u8], payload: &str, changes: &[Change]) -> String {
    let payload = mutated(payload, changes);
    // Where the payload has become too long to be signed, the empty one is tried.
    let fits = payload.len() < 1_500;
    signed_by(seeds, kind, if fits { &payload } else { "" })
}

proptest! {
    #[test]
    fn changed_certificates_never_verify(changes in changes()) {
        let payload = claims(42, "writer-b").to_json();
        let text = signed_by(&[1, 2], TextKind::Certificate, &payload);
        let verifier = Verifier::pinned(trust());
        let cached = CachedVerifier::new(verifier.clone(), &[1; 16]);
        let changed = mutated(&text, &changes);
        let verdict = verifier.verify(&changed, NOW_MS);
        // Either one of the two parts fell away whole, or nothing passes.
        let whole = text.split(',').chain([text.as_str()]).any(|valid| valid == changed);
        prop_assert_eq!(verdict.is_ok(), whole);
        prop_assert_eq!(cached.verify(&changed, NOW_MS).is_ok(), whole);
        let _verdict = verifier.verify(
            &resigned(TextKind::Certificate, &[1], &payload, &changes), NOW_MS,
        );
    }

    #[test]
    fn changed_bundles_are_never_adopted(changes in changes()) {
        let payload = bundle(1).to_json();
        let text = signed_by(&[ROOT], TextKind::Bundle, &payload);
        let changed = mutated(&text, &changes);
        let adopted = SignedBundle::parse(&changed)
            .is_ok_and(|signed| Trust::new(pin()).adopt(&[signed]).is_ok());
        prop_assert_eq!(adopted, changed == text);
        let resigned = resigned(TextKind::Bundle, &[ROOT], &payload, &changes);
        if let Ok(signed) = SignedBundle::parse(&resigned) {
            prop_assert_eq!(signed.to_text(), resigned);
            let mut trust = trust();
            let _verdict = trust.adopt(&[signed]);
            let again = Trust::from_json(pin(), trust.to_json().as_bytes());
            prop_assert_eq!(again, Ok(trust));
        }
        let stored = mutated(&trust().to_json(), &changes);
        let _verdict = Trust::from_json(pin(), stored.as_bytes());
    }

    #[test]
    fn changed_statements_never_verify(changes in changes()) {
        let text = max_future(500);
        let changed = mutated(&text, &changes);
        let verdict = Statement::verify(&changed, &pin(), NOW_MS);
        prop_assert_eq!(verdict.is_ok(), changed == text);
        let statement = Statement::verify(&text, &pin(), NOW_MS).unwrap();
        let resigned = resigned(TextKind::Statement, &[ROOT], &statement.to_json(), &changes);
        let _verdict = Statement::verify(&resigned, &pin(), NOW_MS);
    }

    #[test]
    fn changed_proofs_never_verify(changes in changes()) {
        let key = holder_key(50);
        let (certificate, text) = bound_certificate(key.thumbprint());
        let url = "https://files.example.org/7";
        let presented = Presented { certificate: &certificate, text: &text, method: "PUT", url };
        let proof = key.proof("PUT", url, &text, NOW_S, "jti-1");
        let verify = |proof: &str, presented| {
            ProofVerifier::default().verify(proof, presented, NOW_MS)
        };
        let changed = mutated(&proof, &changes);
        prop_assert_eq!(verify(&changed, presented).is_ok(), changed == proof);
        let url = &mutated(url, &changes);
        let _verdict = verify(&proof, Presented { url, ..presented });
        let _verdict = verify(&key.proof("PUT", url, &text, NOW_S, url), presented);
        let jwk = key.public_jwk().to_string();
        let _verdict = Thumbprint::of_jwk(mutated(&jwk, &changes).as_bytes());
    }
}
