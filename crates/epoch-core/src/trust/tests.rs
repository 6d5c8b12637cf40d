//! What a resource adopts, and what it keeps over a restart.

use super::*;
use crate::BundleTerms;
use crate::testing::{
    NOW_MS, NOW_S, ROOT, bundle, bundle_keys, bundle_terms, incarnation, max_future, pin,
    signed_bundle, signed_by, signing_key, statement, trust, validity,
};
use crate::{TextKind, Validity};

/// Root-signed bundle 1 and four successors, each signed by nodes 1 and 2.
fn chain() -> Vec<SignedBundle> {
    let mut chain = vec![signed_bundle(&[ROOT], &bundle(1))];
    for n in 1..5_u64 {
        let last = chain[chain.len() - 1].bundle();
        let next = last.next(NOW_S + n * 60, last.keys().to_vec()).unwrap();
        chain.push(signed_bundle(&[1, 2], &next));
    }
    chain
}

fn sequence(trust: &Trust) -> Option<u64> {
    trust.bundle().map(|bundle| bundle.terms().sequence)
}

/// A root-signed first bundle of a later life.
fn restored() -> SignedBundle {
    let terms = BundleTerms {
        incarnation: incarnation(2),
        ..bundle_terms(1)
    };
    let bundle = Bundle::new(terms, bundle_keys(&[(4, 4)])).unwrap();
    signed_bundle(&[ROOT], &bundle)
}

#[test]
fn a_chain_is_adopted_as_far_as_it_is_new() {
    let chain = chain();
    let mut trust = Trust::new(pin());
    assert_eq!(trust.bundle(), None);
    assert_eq!(trust.adopt(&chain[..3]), Ok(true));
    assert_eq!(sequence(&trust), Some(3));
    assert_eq!(trust.adopt(&chain[..3]), Ok(false));
    assert_eq!(trust.adopt(&chain[2..3]), Ok(false));
    assert_eq!(trust.adopt(&chain), Ok(true));
    assert_eq!(sequence(&trust), Some(5));
    assert_eq!(trust.bundle(), Some(chain[4].bundle()));
    // The next life's first bundle follows any of the one before.
    assert_eq!(trust.adopt(&[restored()]), Ok(true));
    assert_eq!(trust.bundle(), Some(restored().bundle()));
}

#[test]
fn trust_begins_with_a_root_signed_bundle() {
    let mut trust = Trust::new(pin());
    assert_eq!(trust.adopt(&[]), Err(TrustError::EmptyChain));
    let refused = trust.adopt(&chain()[1..]);
    assert!(matches!(refused, Err(TrustError::NotRootSigned { .. })));
    assert_eq!(trust.bundle(), None);
}

#[test]
fn the_first_bundle_of_a_new_life_is_root_signed() {
    let signed_by_nodes = signed_bundle(&[1, 2, 3], restored().bundle());
    let mut adopted = trust();
    let refused = adopted.adopt(&[signed_by_nodes]);
    assert!(matches!(refused, Err(TrustError::NotRootSigned { .. })));
    assert_eq!(adopted, trust());
}

#[test]
fn a_rollback_is_refused() {
    let chain = chain();
    let mut trust = Trust::new(pin());
    trust.adopt(&chain).unwrap();
    let before = trust.clone();
    for older in [&chain[..1], &chain[..4], &chain[2..4]] {
        let refused = trust.adopt(older);
        assert!(matches!(refused, Err(TrustError::Rollback { .. })));
    }
    assert_eq!(trust, before);
    trust.adopt(&[restored()]).unwrap();
    // A higher number of an earlier life is older too, even where the root signed it.
    let old_life = Bundle::new(bundle_terms(99), bundle_keys(&[(1, 1)])).unwrap();
    for older in [&chain[..], &[signed_bundle(&[ROOT], &old_life)]] {
        let refused = trust.adopt(older);
        assert!(matches!(refused, Err(TrustError::Rollback { .. })));
    }
}

#[test]
fn a_fork_is_refused() {
    let chain = chain();
    let mut trust = Trust::new(pin());
    trust.adopt(&chain[..2]).unwrap();
    let last = chain[0].bundle();
    let other = last.next(NOW_S + 60, bundle_keys(&[(1, 1)])).unwrap();
    let rank = other.rank();
    let fork = signed_bundle(&[1, 2], &other);
    let refused = trust.adopt(std::slice::from_ref(&fork));
    assert_eq!(refused, Err(TrustError::Fork { rank }));
    let mut signatures = fork.signatures().to_vec();
    signatures[0].1[3] ^= 1;
    let made_up = SignedBundle::from_parts(fork.payload().to_owned(), signatures).unwrap();
    let refused = trust.adopt(&[made_up]);
    assert!(matches!(refused, Err(TrustError::Jws(_))), "{refused:?}");
    let onward = other.next(NOW_S + 120, bundle_keys(&[(1, 1)])).unwrap();
    let refused = trust.adopt(&[fork, signed_bundle(&[1], &onward)]);
    assert_eq!(refused, Err(TrustError::Fork { rank }));
    // The same bundle signed by others is the same bundle.
    assert_eq!(
        trust.adopt(&[signed_bundle(&[2, 3], chain[1].bundle())]),
        Ok(false)
    );
}

#[test]
fn all_of_a_chain_is_adopted_or_nothing() {
    let mut chain = chain();
    chain[3] = signed_bundle(&[1], chain[3].bundle());
    let mut adopted = trust();
    let refused = adopted.adopt(&chain);
    assert!(matches!(refused, Err(TrustError::TooFewNodes { .. })));
    assert_eq!(adopted, trust());
}

#[test]
fn a_gap_is_bridged_by_the_root_alone() {
    let chain = chain();
    let mut trust = trust();
    let refused = trust.adopt(&chain[2..]);
    assert!(matches!(refused, Err(TrustError::NotNext { .. })));
    let renewed = signed_bundle(&[ROOT], chain[2].bundle());
    let chain = [&[renewed], &chain[3..]].concat();
    assert_eq!(trust.adopt(&chain), Ok(true));
    assert_eq!(sequence(&trust), Some(5));
}

#[test]
fn another_clusters_bundle_is_refused() {
    let mut pin = pin();
    pin.cluster = "018f4d1c-0000-7000-8000-00000000000b".parse().unwrap();
    let refused = Trust::new(pin).adopt(&chain());
    assert!(matches!(refused, Err(TrustError::OtherCluster { .. })));
}

#[test]
fn the_latest_statement_counts_until_it_expires() {
    let at = |issued_at_s, seconds, jti: &str| {
        let validity = Validity {
            issued_at_s,
            expires_at_s: NOW_S + 100,
            jti: jti.to_owned(),
        };
        statement(StatementKind::MaxFuture { seconds }, validity)
    };
    let mut trust = trust();
    assert_eq!(trust.max_future_ms(NOW_MS), None);
    assert_eq!(
        trust.adopt_statement(&at(NOW_S, 500, "b"), NOW_MS),
        Ok(true)
    );
    assert_eq!(trust.max_future_ms(NOW_MS), Some(500_000));
    for older in [
        at(NOW_S - 1, 900, "c"),
        at(NOW_S, 900, "a"),
        at(NOW_S, 500, "b"),
    ] {
        assert_eq!(trust.adopt_statement(&older, NOW_MS), Ok(false));
    }
    assert_eq!(
        trust.adopt_statement(&at(NOW_S + 1, 300, "a"), NOW_MS),
        Ok(true)
    );
    let end_ms = (NOW_S + 100) * 1_000;
    assert_eq!(trust.max_future_ms(end_ms - 1), Some(300_000));
    assert_eq!(trust.max_future_ms(end_ms), None);
    let clock = statement(StatementKind::Clock, validity());
    let refused = trust.adopt_statement(&clock, NOW_MS);
    assert_eq!(refused, Err(StatementError::ForTheCluster));
    let expired = trust.adopt_statement(&at(NOW_S + 2, 300, "a"), end_ms);
    assert!(matches!(expired, Err(StatementError::Expired { .. })));
}

#[test]
fn trust_is_the_same_after_a_restart() {
    let again = |trust: &Trust| Trust::from_json(pin(), trust.to_json().as_bytes());
    let mut trust = Trust::new(pin());
    assert_eq!(again(&trust), Ok(trust.clone()));
    for chain in [&chain()[..1], &chain()] {
        trust.adopt(chain).unwrap();
        assert_eq!(again(&trust), Ok(trust.clone()));
    }
    trust.adopt_statement(&max_future(500), NOW_MS).unwrap();
    assert_eq!(again(&trust), Ok(trust));
}

#[test]
fn stored_trust_that_was_changed_is_refused() {
    let mut trust = trust();
    trust.adopt_statement(&max_future(500), NOW_MS).unwrap();
    let changed = |name: &str, value: Value| {
        let mut stored: Value = serde_json::from_str(&trust.to_json()).unwrap();
        stored[name] = value;
        Trust::from_json(pin(), stored.to_string().as_bytes())
    };
    let refused = changed("format", json!("epochd-trust-2"));
    assert!(matches!(refused, Err(StoredTrustError::Malformed { .. })));
    let refused = changed("more", json!(1));
    assert!(matches!(refused, Err(StoredTrustError::Field(_))));
    let refused = changed("bundle", json!(1));
    assert!(matches!(refused, Err(StoredTrustError::Field(_))));
    let refused = changed("bundle", json!("x"));
    assert!(matches!(refused, Err(StoredTrustError::Bundle(_))));
    let clock = signed_by(&[1], TextKind::Statement, "{}");
    let refused = changed("statement", json!(clock));
    assert!(matches!(refused, Err(StoredTrustError::Statement(_))));
    let mut other = pin();
    other.root = signing_key(101).verifying_key().clone();
    let refused = Trust::from_json(other, trust.to_json().as_bytes());
    assert!(matches!(refused, Err(StoredTrustError::OtherPin { .. })));
    // Signed by the root or by a node that is in the bundle itself: both can be verified.
    for seed in [ROOT, 2] {
        let forged = signed_bundle(&[seed], chain()[1].bundle());
        let mut signatures = forged.signatures().to_vec();
        signatures[0].1[7] ^= 1;
        let forged = SignedBundle::from_parts(forged.payload().to_owned(), signatures).unwrap();
        let refused = changed("bundle", json!(forged.to_text()));
        assert!(matches!(refused, Err(StoredTrustError::Trust(_))));
    }
    let terms = BundleTerms {
        cluster: "018f4d1c-0000-7000-8000-00000000000b".parse().unwrap(),
        ..bundle_terms(1)
    };
    let foreign = Bundle::new(terms, bundle_keys(&[(1, 1)])).unwrap();
    let refused = changed("bundle", json!(signed_bundle(&[ROOT], &foreign).to_text()));
    assert!(matches!(refused, Err(StoredTrustError::Trust(_))));
    let len = TRUST_BYTES_MAX + 1;
    let refused = Trust::from_json(pin(), " ".repeat(len).as_bytes());
    assert_eq!(refused, Err(StoredTrustError::TooLarge { len }));
    assert!(Trust::from_json(pin(), b"{}").is_err());
}

#[test]
fn the_largest_trust_fits_its_stored_form() {
    let nine: Vec<_> = (1..=9_u8).map(|n| (u64::from(n), n)).collect();
    let many: Vec<_> = (0..32_u8).map(|n| (u64::from(n % 9) + 1, n)).collect();
    let first = Bundle::new(bundle_terms(1), bundle_keys(&nine)).unwrap();
    let next = first.next(NOW_S, bundle_keys(&many)).unwrap();
    let seeds: Vec<u8> = (1..=9).collect();
    let mut trust = Trust::new(pin());
    let chain = [signed_bundle(&[ROOT], &first), signed_bundle(&seeds, &next)];
    trust.adopt(&chain).unwrap();
    trust.adopt_statement(&max_future(1), NOW_MS).unwrap();
    let again = Trust::from_json(pin(), trust.to_json().as_bytes());
    assert_eq!(again, Ok(trust));
}
