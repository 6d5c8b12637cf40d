//! The keys, names and times that all targets share. Seeds are no secrets: a key is 32 times its
//! number, the root's is [`ROOT`], nodes 1 to 3 have keys 1 to 3, the holder has [`HOLDER`].

use std::sync::LazyLock;

use aws_lc_rs::signature::Ed25519KeyPair;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use epoch_core::{
    Bundle, BundleKey, BundleTerms, Certificate, Claims, ClusterId, Epoch, Fence, Grant, GrantHash,
    Holder, HolderKey, Incarnation, KeySet, Pin, Position, Scope, SignedBundle, SigningKey,
    TextKind, Trust, Validity, Verifier, compose,
};

/// 2026-01-01T00:00:00Z, in seconds.
pub const NOW_S: u64 = 1_767_225_600;
/// The same in milliseconds.
pub const NOW_MS: u64 = NOW_S * 1_000;
/// The root key's number.
pub const ROOT: u8 = 9;
/// The holder key's number.
pub const HOLDER: u8 = 7;
/// The request that a proof is for.
pub const METHOD: &str = "PUT";
/// Where it goes.
pub const URL: &str = "https://files.example.org/reports/7";

/// The cluster.
#[must_use]
pub fn cluster() -> ClusterId {
    let id = "018f4d1c-0000-7000-8000-00000000000a";
    id.parse().expect("a cluster id")
}

/// Its life.
#[must_use]
pub fn incarnation() -> Incarnation {
    let id = "018f4d1c-0000-7000-8000-000000000001";
    id.parse().expect("an incarnation")
}

/// The key of this number.
#[must_use]
pub fn key(number: u8) -> SigningKey {
    SigningKey::from_seed(&[number; 32]).expect("a key")
}

/// The holder's key.
#[must_use]
pub fn holder() -> HolderKey {
    HolderKey::from_seed(&[HOLDER; 32]).expect("a key")
}

/// The pinned root.
#[must_use]
pub fn pin() -> Pin {
    Pin {
        cluster: cluster(),
        root: key(ROOT).verifying_key().clone(),
    }
}

/// The keys of nodes 1 to 3 as a plain set.
#[must_use]
pub fn key_set() -> KeySet {
    let keys = (1..=3).map(|number| key(number).verifying_key().clone());
    keys.collect()
}

/// The first bundle.
#[must_use]
pub fn bundle() -> Bundle {
    let terms = BundleTerms {
        cluster: cluster(),
        incarnation: incarnation(),
        sequence: 1,
        root: pin().root,
        issued_at_s: NOW_S,
        expires_at_s: NOW_S + 3_600,
        lifetime_s: 3_600,
        max_age_s: 600,
    };
    let keys = (1..=3).map(|node| BundleKey {
        node: u64::from(node),
        key: key(node).verifying_key().clone(),
        since_s: 0,
    });
    Bundle::new(terms, keys.collect()).expect("a bundle")
}

/// Trust in the first bundle, which the root signed.
#[must_use]
pub fn trust() -> Trust {
    let text = signed_by(TextKind::Bundle, &[ROOT], &bundle().to_json());
    let signed = SignedBundle::parse(&text.expect("it fits")).expect("a bundle");
    let mut trust = Trust::new(pin());
    trust.adopt(&[signed]).expect("the root's own bundle");
    trust
}

/// What these keys sign together, if anything can be that is signed so.
#[must_use]
pub fn signed_by(kind: TextKind, numbers: &[u8], payload: &str) -> Option<String> {
    let signatures: Vec<_> = numbers
        .iter()
        .map(|number| {
            let key = key(*number);
            (key.id(), key.signature(kind, payload))
        })
        .collect();
    compose(kind, payload, &signatures).ok()
}

/// A compact JWS with any header and payload.
#[must_use]
pub fn forged(number: u8, header: &[u8], payload: &[u8]) -> String {
    let mut text = URL_SAFE_NO_PAD.encode(header);
    text.push('.');
    URL_SAFE_NO_PAD.encode_string(payload, &mut text);
    let signature = signature(number, &text);
    text + "." + &signature
}

/// The signature of a text by the key of this number, as base64url.
#[must_use]
pub fn signature(number: u8, signed: &str) -> String {
    let pair = Ed25519KeyPair::from_seed_unchecked(&[number; 32]).expect("a key");
    URL_SAFE_NO_PAD.encode(pair.sign(signed.as_bytes()))
}

/// The text that an input stands for: itself, or, where it begins with `!`, what somebody with good
/// keys makes of it. A line then says who signs, the rest is the payload: the numbers of keys, for
/// a text of this kind (`!13`), or one number and a header of its own (`!1{"alg":"EdDSA"}`).
///
/// None where it stands for nothing.
#[must_use]
pub fn text(kind: TextKind, input: &[u8]) -> Option<String> {
    let Some(order) = input.strip_prefix(b"!") else {
        return str::from_utf8(input).ok().map(str::to_owned);
    };
    let end = order.iter().position(|byte| *byte == b'\n')?;
    let (who, payload) = order.split_at(end);
    let payload = payload.get(1..)?;
    let digits = who.iter().take_while(|byte| byte.is_ascii_digit());
    let numbers: Vec<u8> = digits.map(|digit| digit - b'0').collect();
    let header = who.get(numbers.len()..)?;
    if header.is_empty() {
        return signed_by(kind, &numbers, str::from_utf8(payload).ok()?);
    }
    Some(forged(*numbers.first()?, header, payload))
}

/// The number of the key that signed one part of a text that was taken as valid; panics if the part
/// is not exactly what that key makes: whoever passes a text on could change it then.
///
/// # Panics
/// None of the keys signed the part.
#[must_use]
pub fn signer(part: &str) -> u8 {
    let (signed, found) = part.rsplit_once('.').expect("a compact JWS");
    let mut keys = (1..=3).chain([ROOT, HOLDER]);
    let by = keys.find(|number| signature(*number, signed) == found);
    by.unwrap_or_else(|| panic!("taken, though no key made it: {part}"))
}

/// A segment of a compact JWS, as text.
///
/// # Panics
/// It is none.
#[must_use]
pub fn decoded(segment: &str) -> String {
    let bytes = URL_SAFE_NO_PAD.decode(segment).expect("base64url");
    String::from_utf8(bytes).expect("UTF-8")
}

/// A certificate that is bound to the holder's key: its text, and what it says.
#[must_use]
pub fn bound() -> &'static (String, Certificate) {
    static BOUND: LazyLock<(String, Certificate)> = LazyLock::new(|| {
        let text = key(1).sign(&claims(true)).expect("it fits");
        let verifier = Verifier::new(cluster(), key_set());
        let certificate = verifier.verify(&text, NOW_MS).expect("a certificate");
        (text, certificate)
    });
    &BOUND
}

/// Claims of a certificate of now, bound to the holder's key or not.
#[must_use]
pub fn claims(bound: bool) -> Claims {
    let fence = Fence {
        incarnation: incarnation(),
        epoch: Epoch::new(42).expect("an epoch"),
        position: Position {
            group: 0,
            term: 3,
            leader: 2,
            index: 1_042,
            offset: 1,
        },
        grant: Some(Grant {
            holder: Holder::parse("writer-b").expect("a holder"),
            hash: GrantHash([42; 32]),
        }),
    };
    let validity = Validity {
        issued_at_s: NOW_S,
        expires_at_s: NOW_S + 12 * 3_600,
        jti: "0197-certificate-1".to_owned(),
    };
    let scope = Scope::parse("reports/research-note").expect("a scope");
    let claims = Claims::new(cluster(), scope, fence, validity).expect("claims");
    match bound {
        true => claims.with_confirmation(holder().thumbprint()),
        false => claims,
    }
}
