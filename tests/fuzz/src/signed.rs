//! Texts that somebody signs: certificates, bundles, statements, offers of keys, and proofs.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use epoch_core::{
    CachedVerifier, Certificate, KeyOffer, Presented, ProofVerifier, SignedBundle, Statement,
    TextKind, Thumbprint, Trust, Verifier,
};

use crate::world::{self, METHOD, NOW_MS, ROOT, URL, cluster, pin, signed_by, trust};

/// After a certificate of now has expired, in milliseconds.
const LATER_MS: u64 = NOW_MS + 13 * 3_600_000;

/// A certificate under a plain key set.
pub(crate) fn certificate(input: &[u8]) -> bool {
    static VERIFIER: LazyLock<Verifier> =
        LazyLock::new(|| Verifier::new(cluster(), world::key_set()).with_any_audience());
    let Some(text) = world::text(TextKind::Certificate, input) else {
        return false;
    };
    let Ok(certificate) = VERIFIER.verify(&text, NOW_MS) else {
        return false;
    };
    let signers = text.split(',').map(world::signer);
    assert!(signers.into_iter().all(|number| number <= 3));
    assert_one_spelling(&certificate, |claims| {
        let again = signed_by(TextKind::Certificate, &[1], claims);
        VERIFIER.verify(&again.expect("it fits"), NOW_MS)
    });
    true
}

/// A certificate that two nodes have to sign, under a pinned root.
pub(crate) fn quorum_certificate(input: &[u8]) -> bool {
    static VERIFIER: LazyLock<Verifier> = LazyLock::new(|| {
        let verifier = Verifier::pinned(trust());
        verifier.with_signatures(2).with_any_audience()
    });
    static CACHED: LazyLock<CachedVerifier> =
        LazyLock::new(|| CachedVerifier::new(VERIFIER.clone(), &[1; 16]));
    let Some(text) = world::text(TextKind::Certificate, input) else {
        return false;
    };
    let verdict = VERIFIER.verify(&text, NOW_MS);
    // At first, when it is remembered, and when it has expired.
    for now_ms in [NOW_MS, NOW_MS, LATER_MS] {
        let cached = CACHED.verify(&text, now_ms).map(|shared| (*shared).clone());
        assert_eq!(cached, VERIFIER.verify(&text, now_ms));
    }
    let Ok(certificate) = verdict else {
        return false;
    };
    let nodes: BTreeSet<_> = text.split(',').map(world::signer).collect();
    assert!(nodes.len() >= 2 && nodes.iter().all(|number| *number <= 3));
    assert_one_spelling(&certificate, |claims| {
        let again = signed_by(TextKind::Certificate, &[1, 2], claims);
        VERIFIER.verify(&again.expect("it fits"), NOW_MS)
    });
    true
}

/// What was read is what would be written: nothing in it went unread.
fn assert_one_spelling<E: std::fmt::Debug>(
    certificate: &Certificate,
    verify: impl Fn(&str) -> Result<Certificate, E>,
) {
    let again = verify(&certificate.claims().to_json()).expect("its own claims");
    assert_eq!(again.claims(), certificate.claims());
}

/// Bundles, with an empty line between, offered one by one to who has pinned the root.
pub(crate) fn bundle(input: &[u8]) -> bool {
    let text = |part: &[u8]| world::text(TextKind::Bundle, part);
    let mut trust = Trust::new(pin());
    let mut all = true;
    for text in parts(input).into_iter().map(text) {
        let Some(Ok(signed)) = text.as_deref().map(SignedBundle::parse) else {
            all = false;
            continue;
        };
        assert_eq!(Some(signed.to_text()), text);
        let before = trust.clone();
        let adopted = trust.adopt(std::slice::from_ref(&signed));
        match adopted {
            Ok(true) => {
                assert!(trust.bundle() == Some(signed.bundle()));
                let ranks = (
                    before.bundle().map(epoch_core::Bundle::rank),
                    signed.bundle().rank(),
                );
                assert!(ranks.0 < Some(ranks.1));
                let signers = signed.to_text();
                let signers: BTreeSet<_> = signers.split(',').map(world::signer).collect();
                assert!(before.bundle().is_some() || signers.contains(&ROOT));
            }
            Ok(false) | Err(_) => assert!(trust == before),
        }
        let again = Trust::from_json(pin(), trust.to_json().as_bytes());
        assert_eq!(again.as_ref(), Ok(&trust));
        all &= adopted == Ok(true);
    }
    all
}

/// An input at its empty lines.
fn parts(input: &[u8]) -> Vec<&[u8]> {
    let mut parts = Vec::new();
    let mut rest = input;
    while let Some(at) = rest.windows(2).position(|pair| pair == b"\n\n") {
        let (part, after) = rest.split_at(at);
        parts.push(part);
        rest = after.get(2..).unwrap_or_default();
    }
    parts.push(rest);
    parts
}

/// An operator's statement.
pub(crate) fn statement(input: &[u8]) -> bool {
    let Some(text) = world::text(TextKind::Statement, input) else {
        return false;
    };
    let adopted = trust().adopt_statement(&text, NOW_MS);
    let Ok(statement) = Statement::verify(&text, &pin(), NOW_MS) else {
        assert!(adopted.is_err());
        return false;
    };
    assert_eq!(world::signer(&text), ROOT);
    let again = signed_by(TextKind::Statement, &[ROOT], &statement.to_json()).expect("it fits");
    assert_eq!(Statement::verify(&again, &pin(), NOW_MS), Ok(statement));
    true
}

/// A node's offer of a key, under the first bundle.
pub(crate) fn key_offer(input: &[u8]) -> bool {
    let Some(text) = world::text(TextKind::KeyOffer, input) else {
        return false;
    };
    let Ok(offer) = KeyOffer::parse(&text) else {
        return false;
    };
    assert_eq!(offer.to_text(), text);
    let bundle = world::bundle();
    let Ok(endorsed) = offer.check(&bundle, |_any| true) else {
        return false;
    };
    let kids: BTreeSet<_> = text.split(',').map(kid).collect();
    assert!(kids.contains(&offer.key().id().to_string()));
    let by_the_node = |key: &epoch_core::BundleKey| {
        key.node == offer.node() && kids.contains(&key.key.id().to_string())
    };
    assert!(!endorsed || bundle.keys().iter().any(by_the_node));
    endorsed
}

/// Whom the header of a part names as its signer.
fn kid(part: &str) -> String {
    let header = part.split('.').next().unwrap_or_default();
    let header = world::decoded(header);
    let header: serde_json::Value = serde_json::from_str(&header).expect("a JSON object");
    let kid = header.get("kid").and_then(serde_json::Value::as_str);
    kid.expect("a signer's name").to_owned()
}

/// A holder's proof for one request; or his public key.
pub(crate) fn proof(input: &[u8]) -> bool {
    if let Ok(thumbprint) = Thumbprint::of_jwk(input) {
        assert_eq!(thumbprint.to_string().parse(), Ok(thumbprint));
        return true;
    }
    // What is signed has a header of its own here: of the other kinds none is a proof.
    let Some(text) = world::text(TextKind::Certificate, input) else {
        return false;
    };
    let (bound, certificate) = world::bound();
    let presented = Presented {
        certificate,
        text: bound,
        method: METHOD,
        url: URL,
    };
    let verifier = ProofVerifier::default();
    if verifier.verify(&text, presented, NOW_MS).is_err() {
        return false;
    }
    assert_eq!(world::signer(&text), world::HOLDER);
    let again = verifier.verify(&text, presented, NOW_MS);
    assert!(again.is_err(), "taken twice: {text}");
    true
}
