//! `verify` under a pin.

use clap::Parser as _;
use epoch_core::{
    BundleKey, Claims, Epoch, Fence, FirstTerms, Incarnation, Position, RootKey, SigningKey,
    Validity, compose,
};

use super::*;
use crate::args::{Args, Command, Format};

const NOW_S: u64 = 1_767_225_600;

fn key(seed: u8) -> SigningKey {
    SigningKey::from_seed(&[seed; 32]).unwrap()
}

fn incarnation() -> Incarnation {
    "018f4d1c-0000-7000-8000-000000000001".parse().unwrap()
}

fn root() -> RootKey {
    let cluster = "018f4d1c-0000-7000-8000-00000000000a".parse().unwrap();
    RootKey::from_seed(cluster, incarnation(), &[100; 32]).unwrap()
}

/// A chain whose nodes 1, 2 and 3 have the keys 1, 2 and 3.
fn chain() -> String {
    let terms = FirstTerms {
        issued_at_s: NOW_S,
        lifetime_s: 86_400,
        max_age_s: 600,
    };
    let keys = [1, 2, 3].map(|node: u8| BundleKey {
        node: u64::from(node),
        key: key(node).verifying_key().clone(),
        since_s: 0,
    });
    let first = root().sign_first(terms, keys.to_vec()).unwrap();
    json!({ "bundles": [first.to_text()] }).to_string()
}

/// A holderless certificate, signed by these keys.
fn certificate(seeds: &[u8]) -> String {
    let fence = Fence {
        incarnation: incarnation(),
        epoch: Epoch::new((NOW_S * 1_000) << 10).unwrap(),
        position: Position {
            group: 0,
            term: 1,
            leader: 1,
            index: 8,
            offset: 0,
        },
        grant: None,
    };
    let validity = Validity {
        issued_at_s: NOW_S,
        expires_at_s: NOW_S + 3_600,
        jti: "c1".to_owned(),
    };
    let scope = "a/b".parse().unwrap();
    let claims = Claims::new(root().pin().cluster, scope, fence, validity).unwrap();
    let payload = claims.to_json();
    let sign = |seed: &u8| {
        let key = key(*seed);
        (key.id(), key.signature(TextKind::Certificate, &payload))
    };
    let signatures: Vec<_> = seeds.iter().map(sign).collect();
    compose(TextKind::Certificate, &payload, &signatures).unwrap()
}

/// Verifies at `now_s` under a pin, with the arguments `more`.
async fn verified(token: &str, pin: &Pin, now_s: u64, more: &str) -> Result<(), Failure> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), chain()).unwrap();
    let now = times::rfc3339(now_s * 1_000);
    let line = format!(
        "epochctl verify {token} --pin {pin} --bundle {} --now {now} {more}",
        file.path().display()
    );
    let args = Args::try_parse_from(line.split_ascii_whitespace()).unwrap();
    let Command::Verify(command) = args.command else {
        panic!("not verify")
    };
    let nobody = || Err(Failure::local("the cluster was asked", "do not"));
    verify(
        nobody,
        Output::new(Format::Json),
        *command,
        &args.connection,
        args.deadline,
    )
    .await
}

#[tokio::test]
async fn as_many_nodes_as_are_demanded_must_have_signed_under_the_pin() {
    let pin = root().pin();
    let (one, two) = (certificate(&[1]), certificate(&[1, 3]));
    for (token, more) in [(&one, ""), (&two, ""), (&two, "--signatures 2 --scope a/b")] {
        verified(token, &pin, NOW_S, more).await.unwrap();
    }
    let mut other = root().pin();
    other.root = key(9).verifying_key().clone();
    let day = 86_400;
    for (token, pin, now_s, more) in [
        (&one, &pin, NOW_S, "--signatures 2"),
        (&two, &pin, NOW_S, "--signatures 3"),
        (&two, &pin, NOW_S, "--scope a/c"),
        (&two, &pin, NOW_S, "--audience db"),
        (&two, &pin, NOW_S + 2 * day, ""),
        (&two, &other, NOW_S, ""),
        (&certificate(&[1, 4]), &pin, NOW_S, ""),
    ] {
        let refused = verified(token, pin, now_s, more).await.unwrap_err();
        assert_eq!(refused.reason, "CERTIFICATE_INVALID", "{more}: {refused:?}");
    }
}
