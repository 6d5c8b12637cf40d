//! Certificates are kept fresh, for as long as the grant stands.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use epoch_core::{Reason, Scope};
use tokio::time::Instant;

use crate::testing::{Answer, Fake, paused_client};
use crate::{ErrorKind, Grant, GrantLoss, RecordOptions};

const TTL: Duration = Duration::from_secs(600);
const HOUR: Duration = Duration::from_secs(3_600);

fn scope() -> Scope {
    "reports/note".parse().unwrap()
}

/// A certificate that is good for an hour.
fn certificate(name: &str) -> String {
    let claims = format!(r#"{{"iat":7000,"exp":10600,"name":"{name}"}}"#);
    format!("header.{}.signature", URL_SAFE_NO_PAD.encode(claims))
}

/// A grant with a certificate for an hour, of a node that answers Certify so.
async fn granted(certifies: Vec<Answer>) -> (Fake, Grant) {
    let node = Fake::start().await;
    node.script(|script| {
        script.certificate = certificate("first");
        script.fresh = certificate("second");
        script.certifies = certifies;
    });
    let holder = "agent".parse().unwrap();
    let session = paused_client(&[&node]).open_session(&holder, TTL).await;
    let grant = session.unwrap().acquire(&scope()).await.unwrap();
    (node, grant)
}

fn certified(node: &Fake) -> usize {
    node.seen(|script| script.seen_certifies)
}

/// Until the grant has that certificate, for its life at most.
async fn renewed(grant: &Grant, name: &str) {
    let ends = Instant::now() + HOUR;
    while *grant.certificate() != *certificate(name) {
        assert!(Instant::now() < ends, "it was not renewed");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_certificate_is_renewed_before_it_ends_again_and_again() {
    let (node, grant) = granted(vec![Answer::Serve]).await;
    let mut asked = Instant::now();
    assert_eq!(*grant.certificate(), *certificate("first"));
    for (times, name) in [(1, "second"), (2, "third"), (3, "fourth")] {
        node.script(|script| script.fresh = certificate(name));
        renewed(&grant, name).await;
        assert_eq!(certified(&node), times);
        let age = asked.elapsed();
        assert!(age >= HOUR * 3 / 4 && age < HOUR, "{age:?}");
        asked = Instant::now();
    }
    assert_eq!(grant.loss(), None);
}

#[tokio::test(start_paused = true)]
async fn a_refresh_that_fails_is_made_up_for_before_the_certificate_ends() {
    let failed = Answer::Refuse(Reason::Internal);
    let (node, grant) = granted(vec![failed, failed, failed, Answer::Serve]).await;
    let asked = Instant::now();
    renewed(&grant, "second").await;
    assert!(asked.elapsed() < HOUR);
    assert_eq!(certified(&node), 4);
    assert_eq!(grant.loss(), None);
}

#[tokio::test(start_paused = true)]
async fn a_refresh_that_is_superseded_loses_the_grant_for_good() {
    let superseded = Answer::Refuse(Reason::EpochSuperseded);
    let (node, grant) = granted(vec![superseded, Answer::Serve]).await;
    grant.lost().await;
    assert_eq!(grant.loss(), Some(GrantLoss::Superseded));
    assert_eq!(grant.session().loss(), None);
    tokio::time::sleep(HOUR * 2).await;

    // The node would serve all of this by now.
    let refused = ErrorKind::Refused(Reason::EpochSuperseded);
    assert_eq!(grant.certify().await.unwrap_err().kind(), refused);
    let written = grant.put_record("x", RecordOptions::default()).await;
    assert_eq!(written.unwrap_err().kind(), refused);
    let other = grant.session().hash();
    assert_eq!(grant.transfer(&other).await.unwrap_err().kind(), refused);
    assert_eq!(grant.release().await.unwrap_err().kind(), refused);
    assert_eq!(grant.loss(), Some(GrantLoss::Superseded));
    assert_eq!(*grant.certificate(), *certificate("first"));
    assert_eq!(certified(&node), 1);
    let calls = |script: &crate::testing::Script| {
        (
            script.seen_acquires.len(),
            script.seen_puts.len(),
            script.seen_transfers.len(),
            script.seen_releases.len(),
        )
    };
    assert_eq!(node.seen(calls), (1, 0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn of_a_grant_that_was_given_back_no_certificate_is_asked_for() {
    let (node, grant) = granted(vec![Answer::Serve]).await;
    grant.release().await.unwrap();
    tokio::time::sleep(HOUR * 2).await;
    assert_eq!(certified(&node), 0);
}
