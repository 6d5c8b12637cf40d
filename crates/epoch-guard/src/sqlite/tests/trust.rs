//! The guard under a pinned root key: keys that come and go, and certificates of several nodes.

use epoch_core::{Bundle, BundleKey, BundleTerms, Pin, SignedBundle, TextKind, Trust, compose};

use super::*;

const ROOT: u8 = 9;
const NOW_S: u64 = NOW_MS / 1_000;

fn key(number: u8) -> SigningKey {
    SigningKey::from_seed(&[number; 32]).unwrap()
}

/// What these keys sign together.
fn signed_by(kind: TextKind, numbers: &[u8], payload: &str) -> String {
    let signatures = numbers.iter().map(|number| {
        let key = key(*number);
        (key.id(), key.signature(kind, payload))
    });
    compose(kind, payload, &signatures.collect::<Vec<_>>()).unwrap()
}

fn certified_by(numbers: &[u8], epoch: u64) -> String {
    let claims = claims_in(&scope(), &fence(epoch, "writer"));
    signed_by(TextKind::Certificate, numbers, &claims.to_json())
}

fn bundle_key(node: u64, number: u8) -> BundleKey {
    BundleKey {
        node,
        key: key(number).verifying_key().clone(),
        since_s: 0,
    }
}

fn first_bundle() -> Bundle {
    let terms = BundleTerms {
        cluster: cluster(),
        incarnation: fence(1, "writer").incarnation,
        sequence: 1,
        root: key(ROOT).verifying_key().clone(),
        issued_at_s: NOW_S,
        expires_at_s: NOW_S + 3_600,
        lifetime_s: 3_600,
        max_age_s: 60,
    };
    let keys = vec![bundle_key(1, 1), bundle_key(2, 2), bundle_key(3, 3)];
    Bundle::new(terms, keys).unwrap()
}

fn signed_bundle(bundle: &Bundle, by: &[u8]) -> SignedBundle {
    SignedBundle::parse(&signed_by(TextKind::Bundle, by, &bundle.to_json())).unwrap()
}

/// A guard that has pinned the root, and the first bundle; `signatures` nodes have to sign.
fn bench(signatures: usize) -> Bench {
    let pin = Pin {
        cluster: cluster(),
        root: key(ROOT).verifying_key().clone(),
    };
    let mut trust = Trust::new(pin);
    trust
        .adopt(&[signed_bundle(&first_bundle(), &[ROOT])])
        .unwrap();
    let verifier = Verifier::pinned(trust).with_signatures(signatures);
    Bench {
        guard: guarding(verifier, SqliteSettings::default()),
        ..Bench::new()
    }
}

/// Node 1 has key 4 in place of key 1, as whoever follows the bundles hears it.
fn rotate(bench: &Bench) {
    let keys = vec![bundle_key(1, 4), bundle_key(2, 2), bundle_key(3, 3)];
    let next = first_bundle().next(NOW_S, keys).unwrap();
    let adopted = bench
        .guard
        .verifier()
        .adopt(&[signed_bundle(&next, &[2, 3])]);
    assert_eq!(adopted, Ok(true));
}

#[test]
fn keys_that_are_adopted_elsewhere_count_at_once_and_those_retired_no_more() {
    let bench = bench(1);
    let connection = &mut bench.open();
    let by_old = certified_by(&[1], 1);
    bench.write_as(connection, &by_old, None, None).unwrap();
    let by_new = certified_by(&[4], 2);
    let unknown = bench.write_as(connection, &by_new, None, None);
    assert_eq!(reason(&unknown), Some(Reason::CertificateInvalid));

    rotate(&bench);
    bench.write_as(connection, &by_new, None, None).unwrap();
    // Also that which was remembered, and even where the fence would admit it.
    let retired = bench.write_as(connection, &certified_by(&[1], 3), None, None);
    assert_eq!(reason(&retired), Some(Reason::CertificateInvalid));
    let remembered = bench.write_as(connection, &by_old, None, None);
    assert_eq!(reason(&remembered), Some(Reason::CertificateInvalid));
    let written = SqliteGuard::revision(connection, &scope()).unwrap();
    assert_eq!(written, 2);
}

#[test]
fn fewer_signatures_than_the_policy_asks_for_are_refused_and_noted() {
    let bench = bench(2);
    let connection = &mut bench.open();
    let once = certified_by(&[1], 1);
    let twice = [once.as_str(), once.as_str()].join(",");
    let few = [
        once,
        twice,
        certified_by(&[1, 4], 1),
        certified_by(&[ROOT, 1], 1),
    ];
    for few in &few {
        let refused = bench.write_as(connection, few, None, None);
        assert_eq!(reason(&refused), Some(Reason::CertificateInvalid), "{few}");
    }
    assert_eq!(SqliteGuard::fence(connection, &scope()).unwrap(), None);
    let noted = SqliteGuard::refusals(connection, 10).unwrap();
    assert_eq!(noted.len(), 4);
    assert!(noted.iter().all(|one| one.reason == "CERTIFICATE_INVALID"));
    bench
        .write_as(connection, &certified_by(&[3, 1], 1), None, None)
        .unwrap();
}
