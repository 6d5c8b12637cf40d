//! The root key's file, and what it signs.

use serde_json::{Value, json};

use super::*;
use crate::testing::{self, NOW_MS, NOW_S, incarnation};
use crate::{Trust, TrustError};

fn root() -> RootKey {
    RootKey::from_seed(testing::cluster(), incarnation(1), &[100; 32]).unwrap()
}

fn keys(seeds: &[u8]) -> Vec<BundleKey> {
    let key = |seed: &u8| BundleKey {
        node: u64::from(*seed),
        key: testing::signing_key(*seed).verifying_key().clone(),
        since_s: 0,
    };
    seeds.iter().map(key).collect()
}

fn terms() -> FirstTerms {
    FirstTerms {
        issued_at_s: NOW_S,
        lifetime_s: 86_400,
        max_age_s: 600,
    }
}

fn content() -> Value {
    serde_json::from_str(&root().to_json().unwrap()).unwrap()
}

fn read(content: &Value) -> Result<RootKey, RootKeyFileError> {
    RootKey::from_json(content.to_string().as_bytes())
}

#[test]
fn its_file_reads_as_it_was_written_and_the_key_is_never_shown() {
    let root = root();
    let written = root.to_json().unwrap();
    let again = RootKey::from_json(written.as_bytes()).unwrap();
    assert_eq!(again.pin(), testing::pin());
    assert_eq!(again.incarnation(), incarnation(1));
    assert_eq!(again.to_json().unwrap(), written);
    let shown = format!("{root:?}");
    // The seed's bytes are all 100, in base64 and as a list of numbers.
    assert!(written.contains("ZGRkZGRk"));
    assert!(
        !shown.contains("ZGRk") && !shown.contains("100, 100"),
        "{shown}"
    );
    assert!(shown.ends_with(".. }"), "{shown}");
}

#[test]
fn a_file_that_is_not_exactly_one_is_refused_and_not_repeated() {
    let with = |name: &str, value: Value| {
        let mut content = content();
        content[name] = value;
        read(&content)
    };
    let field = |read: Result<RootKey, RootKeyFileError>| {
        matches!(read.unwrap_err(), RootKeyFileError::Field(_))
    };
    let private = content()["private_key"].as_str().unwrap().to_owned();
    assert!(field(with("private_key", json!(format!("{private}=")))));
    assert!(field(with("private_key", json!(7))));
    assert!(field(with(
        "cluster_id",
        json!(testing::cluster().to_string().to_uppercase())
    )));
    assert!(field(with("incarnation", json!("x"))));
    assert!(field(with("more", json!(1))));
    assert!(field(with("format", json!("1"))));
    let later = with("format", json!(2)).unwrap_err();
    assert_eq!(later, RootKeyFileError::Format { found: 2 });
    let cut = with("private_key", json!(private[..40].to_owned())).unwrap_err();
    assert!(matches!(cut, RootKeyFileError::Key(_)));
    assert!(!cut.to_string().contains(&private[..40]));
    for name in MEMBERS {
        let mut content = content();
        content.as_object_mut().unwrap().remove(name);
        assert!(field(read(&content)), "{name}");
    }
    let written = root().to_json().unwrap();
    let twice = written.replace("{\"format\":1", "{\"format\":1,\"format\":1");
    let malformed = RootKey::from_json(twice.as_bytes()).unwrap_err();
    assert_eq!(malformed, RootKeyFileError::Malformed);
    let len = ROOT_KEY_BYTES_MAX + 1;
    let long = RootKey::from_json(&vec![b' '; len]).unwrap_err();
    assert_eq!(long, RootKeyFileError::TooLarge { len });
}

#[test]
fn what_it_signs_is_trusted_under_its_pin() {
    let root = root();
    let first = root.sign_first(terms(), keys(&[1, 2, 3])).unwrap();
    let next = root
        .sign_next(first.bundle(), NOW_S + 60, keys(&[2, 3, 4]))
        .unwrap();
    let mut trust = Trust::new(root.pin());
    assert_eq!(trust.adopt(&[first.clone(), next.clone()]), Ok(true));
    let newest = trust.bundle().unwrap();
    assert_eq!(newest, next.bundle());
    assert_eq!(newest.rank().sequence, 2);
    assert_eq!(newest.terms().expires_at_s, NOW_S + 60 + 86_400);
    assert_eq!(newest.terms().max_age_s, 600);
    assert_eq!(newest.keys(), keys(&[2, 3, 4]));

    let validity = Validity {
        issued_at_s: NOW_S,
        expires_at_s: NOW_S + 60,
        jti: "s1".to_owned(),
    };
    let kind = StatementKind::MaxFuture { seconds: 172_800 };
    let statement = root.sign_statement(validity, kind).unwrap();
    assert_eq!(trust.adopt_statement(&statement, NOW_MS), Ok(true));
    assert_eq!(trust.max_future_ms(NOW_MS), Some(172_800_000));
}

#[test]
fn nothing_is_signed_for_another_cluster_root_or_a_life_that_is_over() {
    let first = root().sign_first(terms(), keys(&[1])).unwrap();
    let other = RootKey::from_seed(testing::cluster(), incarnation(1), &[101; 32]).unwrap();
    let refused = other.sign_next(first.bundle(), NOW_S, keys(&[1]));
    assert!(matches!(refused, Err(RootKeyError::OtherPin { .. })));
    let elsewhere = "018f4d1c-0000-7000-8000-00000000000b".parse().unwrap();
    let other = RootKey::from_seed(elsewhere, incarnation(1), &[100; 32]).unwrap();
    let refused = other.sign_next(first.bundle(), NOW_S, keys(&[1]));
    assert!(matches!(refused, Err(RootKeyError::OtherPin { .. })));

    let restored = root().for_new_life(incarnation(2)).unwrap();
    let (found, known) = (incarnation(1), incarnation(2));
    let refused = restored.sign_next(first.bundle(), NOW_S, keys(&[1]));
    assert_eq!(refused, Err(RootKeyError::IncarnationVoid { found, known }));
    for found in [incarnation(1), incarnation(2)] {
        let again = RootKey::from_json(restored.to_json().unwrap().as_bytes()).unwrap();
        let refused = again.for_new_life(found).unwrap_err();
        assert_eq!(refused, RootKeyError::IncarnationNotNew { found, known });
    }
}

#[test]
fn a_new_life_begins_a_chain_that_outranks_the_one_before() {
    let first = root().sign_first(terms(), keys(&[1, 2, 3])).unwrap();
    let restored = root().for_new_life(incarnation(2)).unwrap();
    let new = restored.sign_first(terms(), keys(&[4])).unwrap();
    let mut trust = Trust::new(restored.pin());
    assert_eq!(trust.adopt(std::slice::from_ref(&first)), Ok(true));
    assert_eq!(trust.adopt(&[new]), Ok(true));
    let refused = trust.adopt(&[first]);
    assert!(matches!(refused, Err(TrustError::Rollback { .. })));
}
