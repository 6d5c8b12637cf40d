use serde_json::json;

use super::*;
use crate::fields::FieldError;
use crate::testing::{bundle, cluster, incarnation, signed_by, signing_key};

fn key(seed: u8) -> VerifyingKey {
    signing_key(seed).verifying_key().clone()
}

fn payload(node: NodeId, seed: u8) -> String {
    KeyOffer::payload(cluster(), incarnation(1), node, &key(seed))
}

/// The offer of a key, signed by the keys of these seeds.
fn offer(node: NodeId, seed: u8, signers: &[u8]) -> KeyOffer {
    let text = signed_by(signers, TextKind::KeyOffer, &payload(node, seed));
    KeyOffer::parse(&text).unwrap()
}

/// Nodes 1 to 3 have the keys 1 to 3.
fn checked(offer: &KeyOffer) -> Result<bool, OfferError> {
    offer.check(&bundle(1), |_kid| true)
}

#[test]
fn an_offer_says_whose_key_it_is_and_survives_as_text() {
    let endorser = signing_key(2);
    let made = signing_key(20).offer(cluster(), incarnation(1), 2, Some(&endorser));
    let made = made.unwrap();
    assert_eq!((made.node(), made.key()), (2, &key(20)));
    assert_eq!(KeyOffer::parse(made.to_text()), Ok(made.clone()));
    assert_eq!(made, offer(2, 20, &[20, 2]));
    let alone = signing_key(20).offer(cluster(), incarnation(1), 2, None);
    assert_eq!(alone, Ok(offer(2, 20, &[20])));
}

#[test]
fn an_offer_is_endorsed_by_a_trusted_key_of_the_same_node_only() {
    assert_eq!(checked(&offer(2, 20, &[20, 2])), Ok(true));
    assert_eq!(checked(&offer(2, 20, &[2, 20])), Ok(true));
    assert_eq!(checked(&offer(2, 20, &[20])), Ok(false));
    let untrusted = offer(2, 20, &[20, 2]).check(&bundle(1), |kid| kid != key(2).id());
    assert_eq!(untrusted, Ok(false));
    // A node that is not in the bundle has nobody to endorse its key.
    assert_eq!(checked(&offer(9, 20, &[20])), Ok(false));
}

#[test]
fn keys_of_other_nodes_and_unknown_ones_sign_no_offer() {
    for (node, signer) in [(2, 1), (2, 3), (2, 30), (9, 2)] {
        for signers in [&[20, signer][..], &[signer, 20], &[signer]] {
            let unknown = OfferError::UnknownSigner {
                kid: key(signer).id(),
                node,
            };
            assert_eq!(checked(&offer(node, 20, signers)), Err(unknown));
        }
    }
}

#[test]
fn nobody_offers_a_key_that_he_does_not_have() {
    let not_possessed = OfferError::NotPossessed { kid: key(20).id() };
    assert_eq!(checked(&offer(2, 20, &[2])), Err(not_possessed));
}

#[test]
fn an_offer_counts_in_its_cluster_and_incarnation_only() {
    let other = "018f4d1c-0000-7000-8000-00000000000b".parse().unwrap();
    let made = |cluster, incarnation| {
        let made = signing_key(20).offer(cluster, incarnation, 2, Some(&signing_key(2)));
        checked(&made.unwrap())
    };
    let expected = cluster();
    let other_cluster = OfferError::OtherCluster {
        found: other,
        expected,
    };
    assert_eq!(made(other, incarnation(1)), Err(other_cluster));
    let (found, expected) = (incarnation(2), incarnation(1));
    let other_life = OfferError::OtherIncarnation { found, expected };
    assert_eq!(made(cluster(), incarnation(2)), Err(other_life));
}

#[test]
fn a_signature_that_does_not_verify_voids_the_offer() {
    let good = offer(2, 20, &[20, 2]).to_text().to_owned();
    // The signatures of another node's offer of the same key.
    let other = offer(3, 20, &[20, 3]).to_text().to_owned();
    let part = |text: &str, at: usize| text.split(',').nth(at).unwrap().to_owned();
    let with_signature = |part: &str, other: &str| {
        let (signed, _) = part.rsplit_once('.').unwrap();
        let (_, signature) = other.rsplit_once('.').unwrap();
        format!("{signed}.{signature}")
    };
    for at in 0..2 {
        let forged = with_signature(&part(&good, at), &part(&other, at));
        let text = match at {
            0 => format!("{forged},{}", part(&good, 1)),
            _ => format!("{},{forged}", part(&good, 0)),
        };
        let offer = KeyOffer::parse(&text).unwrap();
        assert!(matches!(checked(&offer), Err(OfferError::Jws(_))), "{at}");
    }
}

#[test]
fn what_is_no_offer_is_refused() {
    let parse = |payload: &str| {
        let text = signed_by(&[20], TextKind::KeyOffer, payload);
        KeyOffer::parse(&text)
    };
    let good: serde_json::Value = serde_json::from_str(&payload(2, 20)).unwrap();
    assert!(parse(&good.to_string()).is_ok());
    for name in ["iss", "incarnation", "node", "x"] {
        let mut without = good.clone();
        without.as_object_mut().unwrap().remove(name);
        let error = parse(&without.to_string()).unwrap_err();
        let missing = FieldError::Missing { claim: name };
        assert_eq!(error, BundleError::Field(missing));
    }
    for (name, wrong) in [
        ("iss", json!("epochd:x")),
        ("incarnation", json!("x")),
        ("node", json!("2")),
        ("node", json!(0)),
        ("node", json!(1_u64 << 53)),
        ("x", json!("AAAA")),
        ("more", json!(1)),
    ] {
        let mut changed = good.clone();
        changed[name] = wrong.clone();
        assert!(parse(&changed.to_string()).is_err(), "{name} {wrong}");
    }
    assert!(matches!(parse("[]"), Err(BundleError::Malformed { .. })));
    let bundle = signed_by(&[20], TextKind::Bundle, &payload(2, 20));
    assert!(KeyOffer::parse(&bundle).is_err());
    assert!(KeyOffer::parse("").is_err());
}
