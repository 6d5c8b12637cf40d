//! What the tests of this crate share: fixed keys, claims and times.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;

use crate::{
    Bundle, BundleKey, BundleTerms, Certificate, Claims, ClusterId, Epoch, Fence, Grant, GrantHash,
    Holder, HolderKey, Incarnation, KeySet, Pin, Position, Scope, SignedBundle, SigningKey,
    Statement, StatementKind, TextKind, Thumbprint, Trust, Validity, Verifier, compose,
};

/// 2026-01-01T00:00:00Z.
pub(crate) const NOW_S: u64 = 1_767_225_600;
pub(crate) const NOW_MS: u64 = NOW_S * 1000;

pub(crate) fn cluster() -> ClusterId {
    "018f4d1c-0000-7000-8000-00000000000a".parse().unwrap()
}

pub(crate) fn incarnation(n: u8) -> Incarnation {
    format!("018f4d1c-0000-7000-8000-0000000000{n:02x}")
        .parse()
        .unwrap()
}

/// The seed of the root key.
pub(crate) const ROOT: u8 = 100;

pub(crate) fn pin() -> Pin {
    Pin {
        cluster: cluster(),
        root: signing_key(ROOT).verifying_key().clone(),
    }
}

pub(crate) fn bundle_terms(sequence: u64) -> BundleTerms {
    BundleTerms {
        cluster: cluster(),
        incarnation: incarnation(1),
        sequence,
        root: pin().root,
        issued_at_s: NOW_S,
        expires_at_s: NOW_S + 3600,
        lifetime_s: 3600,
        max_age_s: 600,
    }
}

/// Keys in force at once, as (node, seed).
pub(crate) fn bundle_keys(keys: &[(u64, u8)]) -> Vec<BundleKey> {
    let key = |(node, seed): &(u64, u8)| BundleKey {
        node: *node,
        key: signing_key(*seed).verifying_key().clone(),
        since_s: 0,
    };
    keys.iter().map(key).collect()
}

/// A bundle of nodes 1 to 3 with the keys of these seeds.
pub(crate) fn bundle(sequence: u64) -> Bundle {
    let keys = bundle_keys(&[(1, 1), (2, 2), (3, 3)]);
    Bundle::new(bundle_terms(sequence), keys).unwrap()
}

/// What these seeds' keys sign together.
pub(crate) fn signed_by(seeds: &[u8], kind: TextKind, payload: &str) -> String {
    let sign = |seed: &u8| {
        let key = signing_key(*seed);
        (key.id(), key.signature(kind, payload))
    };
    compose(kind, payload, &seeds.iter().map(sign).collect::<Vec<_>>()).unwrap()
}

pub(crate) fn signed_bundle(seeds: &[u8], bundle: &Bundle) -> SignedBundle {
    SignedBundle::parse(&signed_by(seeds, TextKind::Bundle, &bundle.to_json())).unwrap()
}

/// Trust in the root-signed bundle 1.
pub(crate) fn trust() -> Trust {
    let mut trust = Trust::new(pin());
    trust.adopt(&[signed_bundle(&[ROOT], &bundle(1))]).unwrap();
    trust
}

pub(crate) fn statement(kind: StatementKind, validity: Validity) -> String {
    let statement = Statement::new(cluster(), validity, kind).unwrap();
    signing_key(ROOT).sign_statement(&statement).unwrap()
}

pub(crate) fn holder_key(seed: u8) -> HolderKey {
    HolderKey::from_seed(&[seed; 32]).unwrap()
}

/// A certificate that is bound to a holder's key, and its text.
pub(crate) fn bound_certificate(key: Thumbprint) -> (Certificate, String) {
    let claims = claims(42, "writer-b").with_confirmation(key);
    let text = signing_key(1).sign(&claims).unwrap();
    (verifier().verify(&text, NOW_MS).unwrap(), text)
}

/// A statement about the future bound, issued now, that holds for an hour.
pub(crate) fn max_future(seconds: u64) -> String {
    let validity = Validity {
        expires_at_s: NOW_S + 3600,
        ..validity()
    };
    statement(StatementKind::MaxFuture { seconds }, validity)
}

pub(crate) fn scope() -> Scope {
    Scope::parse("reports/research-note").unwrap()
}

pub(crate) fn fence(epoch: u64, holder: &str) -> Fence {
    Fence {
        incarnation: incarnation(1),
        epoch: Epoch::new(epoch).unwrap(),
        position: Position {
            group: 0,
            term: 3,
            leader: 2,
            index: 1000 + epoch,
            offset: 1,
        },
        grant: Some(Grant {
            holder: Holder::parse(holder).unwrap(),
            hash: GrantHash([u8::try_from(epoch % 251).unwrap(); 32]),
        }),
    }
}

pub(crate) fn validity() -> Validity {
    Validity {
        issued_at_s: NOW_S,
        expires_at_s: NOW_S + 12 * 3600,
        jti: "0197-certificate-1".to_owned(),
    }
}

pub(crate) fn claims_in(scope: Scope, fence: Fence) -> Claims {
    Claims::new(cluster(), scope, fence, validity()).unwrap()
}

pub(crate) fn claims(epoch: u64, holder: &str) -> Claims {
    claims_in(scope(), fence(epoch, holder))
}

/// The certificate of a fence, really signed and verified.
pub(crate) fn certificate(fence: Fence) -> Certificate {
    let token = signing_key(1).sign(&claims_in(scope(), fence)).unwrap();
    verifier().verify(&token, NOW_MS).unwrap()
}

pub(crate) fn signing_key(seed: u8) -> SigningKey {
    SigningKey::from_seed(&[seed; 32]).unwrap()
}

pub(crate) fn key_set(seeds: &[u8]) -> KeySet {
    seeds
        .iter()
        .map(|seed| signing_key(*seed).verifying_key().clone())
        .collect()
}

pub(crate) fn verifier() -> Verifier {
    Verifier::new(cluster(), key_set(&[1]))
}

/// A token over any header and payload text, signed by key 1: what a hostile or broken issuer
/// with a good key could make.
pub(crate) fn forge(header: &str, payload: &str) -> String {
    let signed = format!(
        "{}.{}",
        URL_SAFE_NO_PAD.encode(header),
        URL_SAFE_NO_PAD.encode(payload)
    );
    let signature = signing_key(1).sign_bytes(signed.as_bytes());
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
}

pub(crate) fn header() -> String {
    format!(
        r#"{{"alg":"EdDSA","typ":"epoch+jwt","kid":"{}"}}"#,
        signing_key(1).id()
    )
}

pub(crate) fn payload() -> Value {
    serde_json::from_str(&claims(42, "writer-b").to_json()).unwrap()
}
