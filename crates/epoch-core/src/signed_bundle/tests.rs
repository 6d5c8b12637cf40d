//! Whose signatures make a bundle valid, and for whom.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::testing::{
    NOW_S, ROOT, bundle, bundle_keys, bundle_terms, incarnation, pin, signed_bundle, signed_by,
    signing_key,
};
use crate::{BundleRank, BundleTerms, ClusterId};

fn next() -> Bundle {
    let keys = bundle_keys(&[(1, 1), (2, 2), (3, 3), (4, 4)]);
    bundle(1).next(NOW_S + 60, keys).unwrap()
}

fn root() -> VerifyingKey {
    pin().root
}

/// The verdict on `offered` after bundle 1.
fn after_first(seeds: &[u8], offered: &Bundle) -> Result<(), TrustError> {
    signed_bundle(seeds, offered).check_successor(&bundle(1), &root())
}

fn with_terms(change: impl FnOnce(&mut BundleTerms)) -> Bundle {
    let mut terms = next().terms().clone();
    change(&mut terms);
    Bundle::new(terms, next().keys().to_vec()).unwrap()
}

/// A copy with one bit of its first signature changed.
fn damaged(signed: &SignedBundle) -> SignedBundle {
    let mut signatures = signed.signatures().to_vec();
    signatures[0].1[5] ^= 1;
    SignedBundle::from_parts(signed.payload().to_owned(), signatures).unwrap()
}

#[test]
fn a_signed_bundle_is_the_same_as_text_and_as_parts() {
    let text = signed_by(&[1, 3], TextKind::Bundle, &bundle(1).to_json());
    let signed = SignedBundle::parse(&text).unwrap();
    assert_eq!(signed.to_text(), text);
    assert_eq!(signed.bundle(), &bundle(1));
    let parts = SignedBundle::from_parts(signed.payload().to_owned(), signed.signatures().to_vec());
    assert_eq!(parts, Ok(signed.clone()));
    let payload = || signed.payload().to_owned();
    let first = signed.signatures()[0];
    let refused = |signatures| SignedBundle::from_parts(payload(), signatures);
    let jws = |error| Err(BundleError::Jws(error));
    assert_eq!(refused(vec![]), jws(crate::JwsError::NoSignature));
    let twice = crate::JwsError::KeyTwice { kid: first.0 };
    assert_eq!(refused(vec![first, first]), jws(twice));
    let ten = (1..=10).map(|seed| (signing_key(seed).id(), [0; 64]));
    assert_eq!(refused(ten.collect()), jws(crate::JwsError::TooManyParts));
    assert!(SignedBundle::from_parts("{}".to_owned(), vec![first]).is_err());
}

#[test]
fn a_header_that_could_not_be_kept_is_refused() {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    let key = signing_key(ROOT);
    let header = format!(
        r#"{{"typ":"epoch-bundle+jwt","alg":"EdDSA","kid":"{}"}}"#,
        key.id()
    );
    let signed = format!(
        "{}.{}",
        URL_SAFE_NO_PAD.encode(header),
        URL_SAFE_NO_PAD.encode(bundle(1).to_json())
    );
    let signature = URL_SAFE_NO_PAD.encode(key.sign_bytes(signed.as_bytes()));
    let text = format!("{signed}.{signature}");
    assert_eq!(SignedBundle::parse(&text), Err(BundleError::HeaderUnusual));
    let usual = signed_by(&[ROOT], TextKind::Bundle, &bundle(1).to_json());
    let (signed, _) = usual.rsplit_once('.').unwrap();
    let short = SignedBundle::parse(&format!("{signed}.AA"));
    assert!(matches!(short, Err(BundleError::Jws(_))), "{short:?}");
}

#[test]
fn a_chain_begins_with_the_root_and_nobody_else() {
    let first = |seeds: &[u8]| signed_bundle(seeds, &bundle(1)).check_first(&root());
    assert_eq!(first(&[ROOT]), Ok(()));
    let rank = bundle(1).rank();
    assert_eq!(first(&[1, 2, 3]), Err(TrustError::NotRootSigned { rank }));
    let kid = signing_key(1).id();
    assert_eq!(first(&[ROOT, 1]), Err(TrustError::UnknownSigner { kid }));
    let damaged = damaged(&signed_bundle(&[ROOT], &bundle(1))).check_first(&root());
    assert!(matches!(damaged, Err(TrustError::Jws(_))), "{damaged:?}");
    // Signed by a root that is not pinned; and by the pinned one, but naming another.
    let other = signing_key(101).verifying_key().clone();
    let other_root = signed_bundle(&[ROOT], &bundle(1)).check_first(&other);
    assert!(matches!(other_root, Err(TrustError::OtherRoot { .. })));
    let terms = BundleTerms {
        root: other,
        ..bundle_terms(1)
    };
    let names_other = Bundle::new(terms, bundle_keys(&[(1, 1)])).unwrap();
    let names_other = signed_bundle(&[ROOT], &names_other).check_first(&root());
    assert!(matches!(names_other, Err(TrustError::OtherRoot { .. })));
}

#[test]
fn the_root_may_sign_any_newer_bundle() {
    let changed = with_terms(|terms| {
        (terms.sequence, terms.lifetime_s, terms.max_age_s) = (40, 7200, 60);
    });
    assert_eq!(after_first(&[ROOT], &changed), Ok(()));
    assert_eq!(after_first(&[ROOT, 1], &changed), Ok(()));
    let restored = with_terms(|terms| (terms.sequence, terms.incarnation) = (1, incarnation(2)));
    assert_eq!(after_first(&[ROOT], &restored), Ok(()));
    let (last, rank) = (bundle(1).rank(), bundle(1).rank());
    let refused = after_first(&[ROOT], &bundle(1));
    assert_eq!(refused, Err(TrustError::NotNewer { rank, last }));
    let first = restored.rank();
    let refused = signed_bundle(&[ROOT], &next()).check_successor(&restored, &root());
    let rank = next().rank();
    assert_eq!(refused, Err(TrustError::NotNewer { rank, last: first }));
}

#[test]
fn a_majority_of_nodes_may_sign_the_next_bundle() {
    assert_eq!(after_first(&[1, 2], &next()), Ok(()));
    assert_eq!(after_first(&[3, 1, 2], &next()), Ok(()));
    let (found, needed) = (1, 2);
    let too_few = Err(TrustError::TooFewNodes { found, needed });
    assert_eq!(after_first(&[2], &next()), too_few);
    // A key of the new bundle alone has no say in it, nor does a stranger's.
    for stranger in [4, 50] {
        let kid = signing_key(stranger).id();
        let refused = after_first(&[1, 2, stranger], &next());
        assert_eq!(refused, Err(TrustError::UnknownSigner { kid }));
    }
    let refused = damaged(&signed_bundle(&[1, 2, 3], &next())).check_successor(&bundle(1), &root());
    assert!(matches!(refused, Err(TrustError::Jws(_))), "{refused:?}");
}

#[test]
fn two_keys_of_one_node_count_once() {
    let keys = bundle_keys(&[(1, 1), (1, 4), (2, 2), (3, 3)]);
    let current = Bundle::new(bundle_terms(1), keys).unwrap();
    let offered = current.next(NOW_S, current.keys().to_vec()).unwrap();
    let verdict = |seeds: &[u8]| signed_bundle(seeds, &offered).check_successor(&current, &root());
    let (found, needed) = (1, 2);
    assert_eq!(
        verdict(&[1, 4]),
        Err(TrustError::TooFewNodes { found, needed })
    );
    assert_eq!(verdict(&[1, 4, 3]), Ok(()));
}

#[test]
fn nodes_may_change_keys_and_dates_alone() {
    let rank = next().rank();
    let changes: [fn(&mut BundleTerms); 4] = [
        |terms| terms.lifetime_s += 1,
        |terms| terms.max_age_s += 1,
        |terms| terms.expires_at_s += 1,
        |terms| (terms.issued_at_s, terms.expires_at_s) = (NOW_S - 1, NOW_S + 3599),
    ];
    for change in changes {
        let refused = after_first(&[1, 2, 3], &with_terms(change));
        assert_eq!(refused, Err(TrustError::TermsChanged { rank }));
    }
    let last = bundle(1).rank();
    for sequence in [1, 3, 4] {
        let offered = with_terms(|terms| terms.sequence = sequence);
        let rank = offered.rank();
        let refused = after_first(&[1, 2, 3], &offered);
        assert_eq!(refused, Err(TrustError::NotNext { rank, last }));
    }
    for incarnation in [incarnation(0), incarnation(2)] {
        let offered = with_terms(|terms| terms.incarnation = incarnation);
        let rank = BundleRank {
            incarnation,
            sequence: 2,
        };
        let refused = after_first(&[1, 2, 3], &offered);
        assert_eq!(refused, Err(TrustError::NotRootSigned { rank }));
    }
    let cluster: ClusterId = "018f4d1c-0000-7000-8000-00000000000b".parse().unwrap();
    for seeds in [&[1, 2, 3][..], &[ROOT]] {
        let refused = after_first(seeds, &with_terms(|terms| terms.cluster = cluster));
        assert!(matches!(refused, Err(TrustError::OtherCluster { .. })));
        let other = signing_key(101).verifying_key().clone();
        let refused = after_first(seeds, &with_terms(|terms| terms.root = other));
        assert!(matches!(refused, Err(TrustError::OtherRoot { .. })));
    }
}

proptest! {
    /// Whoever signs, a bundle follows exactly if more than half of the nodes did, and no stranger.
    #[test]
    fn exactly_majorities_make_a_successor(
        nodes in 1_u8..=9, signers in prop::collection::btree_set(1_u8..=10, 1..=9),
    ) {
        let keys: Vec<_> = (1..=nodes).map(|n| (u64::from(n), n)).collect();
        let current = Bundle::new(bundle_terms(1), bundle_keys(&keys)).unwrap();
        let offered = current.next(NOW_S, bundle_keys(&[(1, 40)])).unwrap();
        let seeds: Vec<u8> = signers.iter().copied().collect();
        let verdict = signed_bundle(&seeds, &offered).check_successor(&current, &root());
        let members: BTreeSet<u8> = (1..=nodes).collect();
        let expected = signers.is_subset(&members) && signers.len() * 2 > usize::from(nodes);
        prop_assert_eq!(verdict.is_ok(), expected);
    }
}
