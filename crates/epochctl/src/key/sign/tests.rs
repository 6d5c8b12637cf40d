//! What the root key signs from a chain, and what it does not.

use epoch_core::{FirstTerms, Incarnation, RootKey, SignedBundle, SigningKey};

use super::*;

fn key(seed: u8) -> SigningKey {
    SigningKey::from_seed(&[seed; 32]).unwrap()
}

fn node_key(node: u64, seed: u8) -> NodeKey {
    NodeKey {
        node,
        key: key(seed).verifying_key().clone(),
    }
}

fn root() -> RootKey {
    let cluster = "018f4d1c-0000-7000-8000-00000000000a".parse().unwrap();
    let incarnation: Incarnation = "018f4d1c-0000-7000-8000-000000000001".parse().unwrap();
    RootKey::from_seed(cluster, incarnation, &[100; 32]).unwrap()
}

fn first() -> SignedBundle {
    let terms = FirstTerms {
        issued_at_s: 1_767_225_600,
        lifetime_s: 86_400,
        max_age_s: 600,
    };
    let keys = [1, 2, 3].map(|node: u8| BundleKey {
        node: u64::from(node),
        key: key(node).verifying_key().clone(),
        since_s: 0,
    });
    root().sign_first(terms, keys.to_vec()).unwrap()
}

#[test]
fn keys_are_added_and_left_out_and_the_others_stay_as_they_are() {
    let first = first();
    let newest = first.bundle();
    let keys = keys(newest, &[node_key(2, 7)], &[key(1).id()], 99).unwrap();
    let shown: Vec<_> = keys.iter().map(|key| (key.node, key.since_s)).collect();
    assert_eq!(shown, [(2, 0), (3, 0), (2, 99 + 600)]);
    let signed = root().sign_next(newest, 1_767_225_601, keys).unwrap();
    assert!(signed.bundle().find(key(7).id()).is_some());
    assert!(signed.bundle().find(key(1).id()).is_none());
    assert!(signed.check_successor(newest, &root().pin().root).is_ok());
}

#[test]
fn a_key_that_is_not_there_is_not_left_out_in_silence() {
    let refused = keys(first().bundle(), &[], &[key(9).id()], 0).unwrap_err();
    assert!(refused.message.contains(&key(9).id().to_string()));
}

#[test]
fn a_chain_reads_as_it_was_printed_and_leads_from_its_own_pin_only() {
    let first = first();
    let second = root()
        .sign_next(
            first.bundle(),
            1_767_225_601,
            first.bundle().keys().to_vec(),
        )
        .unwrap();
    let chain = Chain {
        bundles: vec![first, second],
        statements: vec!["s".to_owned()],
    };
    let document = serde_json::to_string(&chain.document(0)).unwrap();
    let read = Chain::parse(document.as_bytes()).unwrap();
    assert_eq!(
        (&read.bundles, &read.statements),
        (&chain.bundles, &chain.statements)
    );
    let trust = read.trust(&root().pin()).unwrap();
    assert_eq!(trust.bundle().unwrap().rank().sequence, 2);
    let later = serde_json::to_string(&chain.document(1)).unwrap();
    assert_eq!(Chain::parse(later.as_bytes()).unwrap().bundles.len(), 1);

    let mut other = root().pin();
    other.root = key(9).verifying_key().clone();
    assert_eq!(
        read.trust(&other).unwrap_err().reason,
        "CERTIFICATE_INVALID"
    );
    let node = |newest: u64| document.replace("]}", &format!("],\"sequence\":{newest}}}"));
    assert!(Chain::parse(node(2).as_bytes()).is_ok());
    let page = Chain::parse(node(3).as_bytes()).unwrap_err();
    assert!(page.message.contains("one page"), "{page:?}");
    for bad in [
        "",
        "[]",
        "{}",
        r#"{"bundles":["x"]}"#,
        r#"{"bundles":[],"more":1}"#,
    ] {
        let refused = Chain::parse(bad.as_bytes()).unwrap_err();
        assert!(refused.next_step.contains("key bundle"), "{bad}");
    }
}

#[test]
fn a_new_key_signs_at_once_only_where_no_other_is_left_that_does() {
    let first = first();
    let all = [1, 2, 3].map(|node| key(node).id());
    let since = |remove: &[KeyId]| {
        let keys = keys(first.bundle(), &[node_key(2, 7)], remove, 99).unwrap();
        keys.last().unwrap().since_s
    };
    assert_eq!(since(&all), 99);
    assert_eq!(since(&all[1..]), 99 + 600);
}
