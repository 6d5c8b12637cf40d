//! Each bound of a bundle, and its one form.

use serde_json::json;

use super::*;
use crate::testing::{NOW_S, bundle, bundle_keys, bundle_terms, pin, signing_key};

fn bundle_of_three() -> Bundle {
    bundle(7)
}

fn usual_keys() -> Vec<BundleKey> {
    bundle_keys(&[(1, 1), (2, 2), (3, 3)])
}

/// The verdict on the usual payload with one change made to it.
fn changed(change: impl FnOnce(&mut Value)) -> Result<Bundle, BundleError> {
    let mut payload: Value = serde_json::from_str(&bundle(7).to_json()).unwrap();
    change(&mut payload);
    Bundle::from_json(payload.to_string().as_bytes())
}

#[test]
fn the_payload_is_as_documented_and_the_same_on_every_node() {
    let keys = bundle_keys(&[(2, 1)]);
    let x = keys[0].key.to_base64url();
    let root = pin().root.to_base64url();
    let bundle = Bundle::new(bundle_terms(7), keys).unwrap();
    let expected = format!(
        "{{\"iss\":\"epochd:018f4d1c-0000-7000-8000-00000000000a\",\
         \"incarnation\":\"018f4d1c-0000-7000-8000-000000000001\",\"sequence\":7,\
         \"root\":\"{root}\",\"iat\":1767225600,\"exp\":1767229200,\"lifetime\":3600,\
         \"max_age\":600,\"keys\":[{{\"node\":2,\"x\":\"{x}\",\"since\":0}}]}}"
    );
    assert_eq!(bundle.to_json(), expected);
    assert_eq!(Bundle::from_json(expected.as_bytes()), Ok(bundle));
    let mut other_order = usual_keys();
    other_order.reverse();
    let other_order = Bundle::new(bundle_terms(7), other_order).unwrap();
    assert_eq!(other_order.to_json(), bundle_of_three().to_json());
}

#[test]
fn the_largest_bundle_has_room() {
    let nodes: Vec<_> = (0..32_u8)
        .map(|n| (EPOCH_EXCLUSIVE_MAX - 1 - u64::from(n % 9), n))
        .collect();
    let mut keys = bundle_keys(&nodes);
    for key in &mut keys {
        key.since_s = EPOCH_EXCLUSIVE_MAX - 1;
    }
    let terms = BundleTerms {
        sequence: EPOCH_EXCLUSIVE_MAX - 1,
        expires_at_s: EPOCH_EXCLUSIVE_MAX - 1,
        ..bundle_terms(1)
    };
    let largest = Bundle::new(terms, keys).unwrap();
    let len = largest.to_json().len();
    assert!(len <= BUNDLE_BYTES_MAX, "{len}");
    // So that the check of the length is never what refuses a bundle that is in bounds.
    let last = largest.next(NOW_S, usual_keys());
    assert!(matches!(
        last,
        Err(BundleError::OutOfBounds {
            claim: "sequence",
            ..
        })
    ));
}

#[test]
fn numbers_out_of_bounds_are_refused() {
    let usual = bundle_terms(7);
    type Case = (&'static str, fn(&mut BundleTerms, u64), &'static [u64]);
    let cases: [Case; 5] = [
        ("sequence", |t, n| t.sequence = n, &[0, EPOCH_EXCLUSIVE_MAX]),
        ("iat", |t, n| t.issued_at_s = n, &[EPOCH_EXCLUSIVE_MAX]),
        ("exp", |t, n| t.expires_at_s = n, &[EPOCH_EXCLUSIVE_MAX]),
        (
            "lifetime",
            |t, n| t.lifetime_s = n,
            &[9, 3_653 * 86_400 + 1],
        ),
        ("max_age", |t, n| t.max_age_s = n, &[0, 86_401]),
    ];
    for (name, set, values) in cases {
        for bad in values {
            let mut terms = usual.clone();
            set(&mut terms, *bad);
            let refused = Bundle::new(terms, usual_keys());
            assert!(
                matches!(refused, Err(BundleError::OutOfBounds { claim, value, .. })
                    if claim == name && value == *bad),
                "{name} {bad}: {refused:?}"
            );
        }
    }
    let with = |change: fn(&mut BundleTerms)| {
        let mut terms = usual.clone();
        change(&mut terms);
        Bundle::new(terms, usual_keys())
    };
    assert!(with(|t| (t.lifetime_s, t.max_age_s) = (10, 9)).is_ok());
    let refused = with(|t| (t.lifetime_s, t.max_age_s) = (10, 10));
    assert!(matches!(
        refused,
        Err(BundleError::AgeNotBelowLifetime { .. })
    ));
    let refused = with(|t| t.expires_at_s = t.issued_at_s);
    assert!(matches!(refused, Err(BundleError::ValidityEmpty { .. })));
}

#[test]
fn keys_out_of_bounds_are_refused() {
    let with = |keys| Bundle::new(bundle_terms(7), keys);
    assert_eq!(with(vec![]), Err(BundleError::KeyCount { count: 0 }));
    let many: Vec<_> = (0..33).map(|seed| (1, seed)).collect();
    let refused = with(bundle_keys(&many));
    assert_eq!(refused, Err(BundleError::KeyCount { count: 33 }));
    let nodes: Vec<_> = (1..=10).map(|node| (u64::from(node), node)).collect();
    let refused = with(bundle_keys(&nodes));
    assert_eq!(refused, Err(BundleError::TooManyNodes { count: 10 }));
    assert!(with(bundle_keys(&nodes[..9])).is_ok());
    let kid = signing_key(1).id();
    let refused = with(bundle_keys(&[(1, 1), (2, 1)]));
    assert_eq!(refused, Err(BundleError::KeyTwice { kid }));
    let refused = with(bundle_keys(&[(1, 1), (2, crate::testing::ROOT)]));
    assert_eq!(refused, Err(BundleError::RootAmongKeys));
    for node in [0, EPOCH_EXCLUSIVE_MAX] {
        let refused = with(bundle_keys(&[(node, 1)]));
        assert!(matches!(refused, Err(BundleError::OutOfBounds { .. })));
    }
    let mut late = bundle_keys(&[(1, 1)]);
    late[0].since_s = EPOCH_EXCLUSIVE_MAX;
    assert!(matches!(with(late), Err(BundleError::OutOfBounds { .. })));
}

#[test]
fn the_next_bundle_keeps_what_the_root_laid_down() {
    let first = bundle(7);
    let next = first.next(NOW_S + 60, bundle_keys(&[(1, 4)])).unwrap();
    let expected = BundleTerms {
        issued_at_s: NOW_S + 60,
        expires_at_s: NOW_S + 60 + 3600,
        ..bundle_terms(8)
    };
    assert_eq!(next.terms(), &expected);
    assert!(next.rank() > first.rank());
    assert!(first.next(NOW_S, usual_keys()).is_ok());
    let refused = first.next(NOW_S - 1, usual_keys());
    assert!(matches!(refused, Err(BundleError::IssuedBefore { .. })));
}

#[test]
fn keys_are_found_by_node_and_by_name_and_nodes_are_counted_once() {
    let keys = bundle_keys(&[(5, 1), (5, 2), (6, 3), (7, 4)]);
    let bundle = Bundle::new(bundle_terms(7), keys).unwrap();
    let id = |seed| signing_key(seed).id();
    assert_eq!(bundle.find(id(2)).map(|key| key.node), Some(5));
    assert_eq!(bundle.find(id(9)), None);
    let of_five: BTreeSet<_> = bundle.keys_of(5).map(|key| key.key.id()).collect();
    assert_eq!(of_five, BTreeSet::from([id(1), id(2)]));
    assert_eq!(bundle.nodes(), BTreeSet::from([5, 6, 7]));
    assert_eq!(bundle.majority(), 2);
    assert_eq!(bundle.nodes_among([id(1), id(2), id(9)]), 1);
    assert_eq!(bundle.nodes_among([id(1), id(3)]), 2);
    for (nodes, majority) in [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (9, 5)] {
        let keys: Vec<_> = (1..=nodes).map(|n| (u64::from(n), n)).collect();
        let bundle = Bundle::new(bundle_terms(1), bundle_keys(&keys)).unwrap();
        assert_eq!(bundle.majority(), majority, "{nodes} nodes");
    }
}

#[test]
fn members_that_are_missing_unknown_or_malformed_are_refused() {
    assert_eq!(changed(|_| ()), Ok(bundle(7)));
    for claim in MEMBERS {
        let refused = changed(|payload| drop(payload.as_object_mut().unwrap().remove(claim)));
        let missing = FieldError::Missing { claim };
        assert_eq!(refused, Err(BundleError::Field(missing)));
        for bad in [json!(null), json!(-1), json!(1.5), json!({}), json!("1")] {
            let refused = changed(|payload| payload[claim] = bad.clone());
            assert!(
                matches!(
                    refused,
                    Err(BundleError::Field(FieldError::Malformed { .. }))
                ),
                "{claim} {bad}: {refused:?}"
            );
        }
    }
    for claim in ["node", "x", "since"] {
        for bad in [None, Some(json!("AA")), Some(json!(-1))] {
            let refused = changed(|payload| match &bad {
                Some(bad) => payload["keys"][0][claim] = bad.clone(),
                None => drop(payload["keys"][0].as_object_mut().unwrap().remove(claim)),
            });
            assert!(matches!(refused, Err(BundleError::Field(_))), "{refused:?}");
        }
    }
    let unknown = [
        changed(|payload| payload["more"] = json!(1)),
        changed(|payload| payload["keys"][1]["more"] = json!(1)),
    ];
    for refused in unknown {
        assert!(matches!(
            refused,
            Err(BundleError::Field(FieldError::Unknown { .. }))
        ));
    }
    let refused = changed(|payload| payload["keys"] = json!([1]));
    assert!(matches!(refused, Err(BundleError::Field(_))));
    for bad in [
        "epochd:018F4D1C-0000-7000-8000-00000000000A",
        "epochd:",
        "x",
    ] {
        let refused = changed(|payload| payload["iss"] = json!(bad));
        assert!(matches!(refused, Err(BundleError::Field(_))), "{bad}");
    }
    let refused = changed(|payload| payload["keys"].as_array_mut().unwrap().reverse());
    assert_eq!(refused, Err(BundleError::KeyOrder));
    let twice = bundle(7).to_json().replacen('{', r#"{"sequence":8,"#, 1);
    assert!(matches!(
        Bundle::from_json(twice.as_bytes()),
        Err(BundleError::Malformed { .. })
    ));
    let len = BUNDLE_BYTES_MAX + 1;
    assert_eq!(
        Bundle::from_json(" ".repeat(len).as_bytes()),
        Err(BundleError::TooLarge { len })
    );
}
