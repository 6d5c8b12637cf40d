//! A resource keeps its trust fresh, and nobody rolls it back.

use std::os::unix::fs::PermissionsExt as _;

use epoch_core::{
    Bundle, BundleKey, Claims, Epoch, Fence, FirstTerms, Grant, GrantHash, Incarnation, Position,
    RootKey, SignedBundle, SigningKey, StatementKind, TextKind, Validity,
};
use tokio::task::JoinSet;

use super::*;
use crate::testing::{Answer, Fake, paused_client, until};

const MAX_AGE: Duration = Duration::from_secs(600);
const LIFETIME_S: u64 = 86_400;

fn now_s() -> u64 {
    wall_ms() / 1_000
}

fn key(seed: u8) -> SigningKey {
    SigningKey::from_seed(&[seed; 32]).unwrap()
}

fn incarnation(life: u8) -> Incarnation {
    format!("018f4d1c-0000-7000-8000-0000000000{life:02x}")
        .parse()
        .unwrap()
}

fn root(life: u8) -> RootKey {
    let cluster = "018f4d1c-0000-7000-8000-00000000000a".parse().unwrap();
    RootKey::from_seed(cluster, incarnation(life), &[100; 32]).unwrap()
}

/// The keys of these nodes and seeds.
fn keys(of: &[(u64, u8)]) -> Vec<BundleKey> {
    let key = |(node, seed): &(u64, u8)| BundleKey {
        node: *node,
        key: key(*seed).verifying_key().clone(),
        since_s: 0,
    };
    of.iter().map(key).collect()
}

/// The first bundle of a life: nodes 1, 2 and 3 with the keys 1, 2 and 3.
fn first(life: u8) -> SignedBundle {
    let terms = FirstTerms {
        issued_at_s: now_s(),
        lifetime_s: LIFETIME_S,
        max_age_s: MAX_AGE.as_secs(),
    };
    let keys = keys(&[(1, 1), (2, 2), (3, 3)]);
    root(life).sign_first(terms, keys).unwrap()
}

/// The one that follows, with other keys, signed by two nodes.
fn next(current: &Bundle, with: &[(u64, u8)], signers: [u8; 2]) -> SignedBundle {
    let issued_at_s = current.terms().issued_at_s;
    let payload = current.next(issued_at_s, keys(with)).unwrap().to_json();
    let sign = |seed| {
        let key = key(seed);
        (key.id(), key.signature(TextKind::Bundle, &payload))
    };
    let signatures = signers.map(sign).to_vec();
    SignedBundle::from_parts(payload, signatures).unwrap()
}

/// Two bundles: in the second one, node 1 has the key 4 in place of 1.
fn rotated() -> [SignedBundle; 2] {
    let first = first(1);
    let second = next(first.bundle(), &[(1, 4), (2, 2), (3, 3)], [1, 2]);
    [first, second]
}

fn serve(node: &Fake, chain: &[SignedBundle]) {
    let told = chain.iter().map(|signed| {
        let number = signed.bundle().rank().sequence;
        (number, signed.to_text())
    });
    node.script(|script| script.bundles = told.collect());
}

/// A certificate for an hour, of an epoch so far ahead, signed by the key of this seed.
fn certificate(life: u8, seed: u8, ahead_ms: u64) -> String {
    let fence = Fence {
        incarnation: incarnation(life),
        epoch: Epoch::new((wall_ms() + ahead_ms) << 10).unwrap(),
        position: Position {
            group: 0,
            term: 1,
            leader: 1,
            index: 8,
            offset: 0,
        },
        grant: Some(Grant {
            holder: "agent".parse().unwrap(),
            hash: GrantHash([7; 32]),
        }),
    };
    let validity = Validity {
        issued_at_s: now_s(),
        expires_at_s: now_s() + 3_600,
        jti: format!("c-{seed}"),
    };
    let cluster = root(life).pin().cluster;
    let claims = Claims::new(cluster, "a/b".parse().unwrap(), fence, validity).unwrap();
    key(seed).sign(&claims).unwrap()
}

async fn start(nodes: &[&Fake], settings: TrustSettings) -> TrustFollower {
    let started = TrustFollower::start(paused_client(nodes), root(1).pin(), settings).await;
    started.unwrap()
}

fn asked(node: &Fake) -> usize {
    node.seen(|script| script.seen_bundles.len())
}

fn sequence(follower: &TrustFollower) -> u64 {
    let trust = follower.verifier().trust().unwrap();
    trust.bundle().unwrap().rank().sequence
}

#[tokio::test(start_paused = true)]
async fn a_new_key_is_fetched_when_it_is_seen_and_an_old_one_verifies_no_more() {
    let node = Fake::start().await;
    let [old, new] = rotated();
    serve(&node, std::slice::from_ref(&old));
    let follower = start(&[&node], TrustSettings::default()).await;
    let before = certificate(1, 1, 0);
    assert!(follower.verify(&before, wall_ms()).await.is_ok());
    assert_eq!(asked(&node), 1);

    serve(&node, &[old, new]);
    let after = certificate(1, 4, 0);
    let verified = follower.verify(&after, wall_ms()).await.unwrap();
    assert_eq!(verified.scope().as_str(), "a/b");
    assert_eq!((asked(&node), sequence(&follower)), (2, 2));
    let refused = follower.verify(&before, wall_ms()).await.unwrap_err();
    assert!(
        matches!(refused, VerifyError::UnknownKey { .. }),
        "{refused}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_chain_is_fetched_again_within_half_of_its_age() {
    let node = Fake::start().await;
    let [old, new] = rotated();
    serve(&node, std::slice::from_ref(&old));
    let follower = start(&[&node], TrustSettings::default()).await;
    for fetches in 2..6 {
        let began = Instant::now();
        until(|| asked(&node) == fetches).await;
        let age = began.elapsed();
        assert!(age >= MAX_AGE / 4 && age <= MAX_AGE / 2, "{age:?}");
    }
    serve(&node, &[old, new]);
    until(|| sequence(&follower) == 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_thousand_certificates_of_unknown_keys_are_one_fetch_and_later_ones_another() {
    let node = Fake::start().await;
    serve(&node, &[first(1)]);
    let follower = start(&[&node], TrustSettings::default()).await;
    let flood = || async {
        let mut all = JoinSet::new();
        for number in 0..1_000_u32 {
            let mut seed = [9; 32];
            seed[..4].copy_from_slice(&number.to_be_bytes());
            let kid = SigningKey::from_seed(&seed).unwrap().id().to_string();
            let token =
                certificate(1, 1, 0).replace(&encoded(&key(1).id().to_string()), &encoded(&kid));
            let follower = follower.clone();
            all.spawn(async move { follower.verify(&token, wall_ms()).await });
        }
        for verified in all.join_all().await {
            let refused = verified.unwrap_err();
            assert!(
                matches!(refused, VerifyError::UnknownKey { .. }),
                "{refused}"
            );
        }
    };
    flood().await;
    assert_eq!(asked(&node), 2);
    flood().await;
    assert_eq!(asked(&node), 2);
    tokio::time::advance(REFETCH_AFTER_DEFAULT).await;
    flood().await;
    assert_eq!(asked(&node), 3);
}

/// What stands in an encoded header from a key's name on.
fn encoded(kid: &str) -> String {
    use base64::Engine as _;
    let header = format!(r#"{{"alg":"EdDSA","typ":"epoch+jwt","kid":"{kid}"}}"#);
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(header)
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_rolled_back_is_passed_over_and_the_next_one_asked() {
    let (good, stale, other) = (
        Fake::start().await,
        Fake::start().await,
        Fake::start().await,
    );
    let [old, new] = rotated();
    serve(&stale, std::slice::from_ref(&old));
    serve(&other, std::slice::from_ref(&old));
    serve(&good, &[old.clone(), new.clone()]);
    let follower = start(&[&good, &stale, &other], TrustSettings::default()).await;
    assert_eq!((asked(&good), asked(&stale), asked(&other)), (0, 1, 0));
    // By a key that the newer bundle alone has: all nodes are asked for it, those behind first.
    let newer = certificate(1, 4, 0);
    assert!(follower.verify(&newer, wall_ms()).await.is_ok());
    let (begun, before) = (asked(&stale), asked(&good));
    until(|| asked(&stale) >= begun + 2 && asked(&good) >= before + 2).await;
    assert_eq!(sequence(&follower), 2);

    // With nobody else to ask, what is known stands, and is asked for again and again.
    serve(&good, &[old]);
    let before = asked(&good);
    until(|| asked(&good) >= before + 4).await;
    assert_eq!(sequence(&follower), 2);
    assert!(follower.verify(&newer, wall_ms()).await.is_ok());
    let retired = certificate(1, 1, 0);
    assert!(follower.verify(&retired, wall_ms()).await.is_err());

    // A failure is made up for soon.
    serve(&good, &[first(1)]);
    tokio::time::sleep(MAX_AGE).await;
    let third = next(new.bundle(), &[(1, 5), (2, 2), (3, 3)], [4, 3]);
    serve(&good, &[rotated()[0].clone(), new, third]);
    let began = Instant::now();
    until(|| sequence(&follower) == 3).await;
    assert!(began.elapsed() <= PAUSE_MAX * 2, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn without_nodes_it_goes_on_until_the_bundle_expires() {
    let node = Fake::start().await;
    serve(&node, &[first(1)]);
    let follower = start(&[&node], TrustSettings::default()).await;
    node.script(|script| {
        script.bundle_answers = vec![Answer::Refuse(epoch_core::Reason::NoLeader)]
    });
    let token = certificate(1, 2, 0);
    let before = asked(&node);
    until(|| asked(&node) >= before + 3).await;
    assert!(follower.verify(&token, wall_ms()).await.is_ok());
    let later_ms = wall_ms() + (LIFETIME_S + 60) * 1_000;
    let refused = follower.verify(&token, later_ms).await.unwrap_err();
    assert!(
        matches!(refused, VerifyError::BundleExpired { .. }),
        "{refused}"
    );
}

#[tokio::test(start_paused = true)]
async fn one_that_starts_without_nodes_has_no_bundle_until_one_answers() {
    let node = Fake::start().await;
    node.script(|script| {
        script.bundle_answers = vec![Answer::Refuse(epoch_core::Reason::NoLeader)]
    });
    let follower = start(&[&node], TrustSettings::default()).await;
    let token = certificate(1, 2, 0);
    let refused = follower.verify(&token, wall_ms()).await.unwrap_err();
    assert_eq!(refused, VerifyError::NoBundle);
    node.script(|script| script.bundle_answers = vec![Answer::Serve]);
    serve(&node, &[first(1)]);
    let began = Instant::now();
    until(|| follower.verifier().verify(&token, wall_ms()).is_ok()).await;
    assert!(began.elapsed() <= PAUSE_MAX * 2);
}

#[tokio::test(start_paused = true)]
async fn what_is_stored_is_not_rolled_back_by_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trust.json");
    let settings = || TrustSettings {
        file: Some(file.clone()),
        ..TrustSettings::default()
    };
    let node = Fake::start().await;
    let [old, new] = rotated();
    serve(&node, &[old.clone(), new]);
    let follower = start(&[&node], settings()).await;
    assert_eq!(sequence(&follower), 2);
    drop(follower);
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    serve(&node, &[old]);
    let follower = start(&[&node], settings()).await;
    assert_eq!(sequence(&follower), 2);
    let retired = certificate(1, 1, 0);
    assert!(follower.verify(&retired, wall_ms()).await.is_err());
    assert!(
        follower
            .verify(&certificate(1, 4, 0), wall_ms())
            .await
            .is_ok()
    );

    // Without the file it would be: what the file is for.
    let forgetful = start(&[&node], TrustSettings::default()).await;
    assert_eq!(sequence(&forgetful), 1);

    std::fs::write(&file, "{}").unwrap();
    let client = paused_client(&[&node]);
    let refused = TrustFollower::start(client, root(1).pin(), settings()).await;
    assert!(matches!(refused, Err(TrustFileError::Content { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_long_chain_is_read_in_pages_and_a_new_life_with_lower_numbers_is_followed() {
    let node = Fake::start().await;
    let mut chain = vec![first(1)];
    for seed in 10..16 {
        let last = chain.last().unwrap().bundle();
        chain.push(next(last, &[(1, seed), (2, 2), (3, 3)], [2, 3]));
    }
    serve(&node, &chain);
    let follower = start(&[&node], TrustSettings::default()).await;
    assert_eq!((asked(&node), sequence(&follower)), (4, 7));

    serve(&node, &[first(2)]);
    let restored = certificate(2, 1, 0);
    assert!(follower.verify(&restored, wall_ms()).await.is_ok());
    assert_eq!(sequence(&follower), 1);
    let void = follower.verify(&certificate(1, 1, 0), wall_ms()).await;
    assert!(matches!(void, Err(VerifyError::IncarnationVoid { .. })));
}

#[tokio::test(start_paused = true)]
async fn an_operators_statement_lets_epochs_lie_further_ahead() {
    let node = Fake::start().await;
    serve(&node, &[first(1)]);
    let follower = start(&[&node], TrustSettings::default()).await;
    let ahead = certificate(1, 1, 3 * LIFETIME_S * 1_000);
    let refused = follower.verify(&ahead, wall_ms()).await.unwrap_err();
    assert!(
        matches!(refused, VerifyError::EpochTooFar { .. }),
        "{refused}"
    );
    let statement = |kind, jti: &str| {
        let validity = Validity {
            issued_at_s: now_s(),
            expires_at_s: now_s() + 3_600,
            jti: jti.to_owned(),
        };
        root(1).sign_statement(validity, kind).unwrap()
    };
    let seconds = 4 * LIFETIME_S;
    node.script(|script| {
        script.statements = vec![
            "garbage".to_owned(),
            statement(StatementKind::Clock, "a"),
            statement(StatementKind::MaxFuture { seconds }, "b"),
        ];
    });
    let raised = |trust: Trust| trust.max_future_ms(wall_ms());
    until(|| follower.verifier().trust().and_then(raised).is_some()).await;
    assert!(follower.verify(&ahead, wall_ms()).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn as_many_nodes_as_are_demanded_have_to_have_signed_for_this_resource() {
    let node = Fake::start().await;
    serve(&node, &[first(1)]);
    let settings = TrustSettings {
        signatures: 2,
        ..TrustSettings::default()
    };
    let follower = start(&[&node], settings).await;
    let one = certificate(1, 1, 0);
    let refused = follower.verify(&one, wall_ms()).await.unwrap_err();
    let (found, needed) = (1, 2);
    assert_eq!(refused, VerifyError::TooFewSignatures { found, needed });

    let settings = TrustSettings {
        audience: Some("db".to_owned()),
        ..TrustSettings::default()
    };
    let follower = start(&[&node], settings).await;
    let refused = follower.verify(&one, wall_ms()).await.unwrap_err();
    assert!(
        matches!(refused, VerifyError::AudienceMissing { .. }),
        "{refused}"
    );
}

#[tokio::test(start_paused = true)]
async fn nothing_is_fetched_once_the_last_handle_is_dropped() {
    let node = Fake::start().await;
    serve(&node, &[first(1)]);
    let follower = start(&[&node], TrustSettings::default()).await;
    let other = follower.clone();
    drop(follower);
    until(|| asked(&node) == 2).await;
    drop(other);
    tokio::time::sleep(MAX_AGE * 5).await;
    assert_eq!(asked(&node), 2);
}
