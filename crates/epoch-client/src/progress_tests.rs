//! Sessions with a stall limit, against a node that serves a keepalive only with a new mark.

use std::time::Duration;

use tokio::time::Instant;

use crate::testing::{Answer, Fake, paused_client, until};
use crate::{Client, ErrorKind, Loss, OpenOptions, Reason, Session};

const TTL: Duration = Duration::from_secs(10);

async fn open(client: &Client) -> Session {
    let options = OpenOptions::new(TTL).with_stall_limit(TTL);
    let holder = "agent".parse().unwrap();
    client.open_session_with(&holder, options).await.unwrap()
}

async fn strict() -> (Fake, Session) {
    let node = Fake::start().await;
    node.script(|script| script.wants_progress = true);
    let session = open(&paused_client(&[&node])).await;
    (node, session)
}

/// Until the node has refused a keepalive for want of progress.
async fn stalled(node: &Fake) {
    let before = node.seen(|script| script.seen_keepalives);
    // The first may carry a mark that is new.
    until(|| node.seen(|script| script.seen_keepalives) >= before + 2).await;
}

#[tokio::test(start_paused = true)]
async fn without_progress_the_session_is_not_renewed_and_ends_as_stalled() {
    let (node, session) = strict().await;
    session.lost().await;
    assert_eq!(session.loss(), Some(Loss::Stalled));
    let error = session.acquire(&"s".parse().unwrap()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SessionLost(Loss::Stalled));
    assert_eq!(error.reason(), Some(Reason::SessionExpired));
    let times = node.seen(|script| script.keepalive_times.clone());
    // The first was served, with the first mark.
    assert!(times.len() >= 3, "{}", times.len());
    assert!(Instant::now() <= times[0].1 + TTL);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_gets_on_again_and_loses_the_network_has_lapsed_and_not_stalled() {
    let (node, session) = strict().await;
    stalled(&node).await;
    node.script(|script| {
        script.wants_progress = false;
        script.keepalives = vec![Answer::Silence];
    });
    session.progress();
    session.lost().await;
    assert_eq!(session.loss(), Some(Loss::Lapsed));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_that_progress_has_overtaken_does_not_count_as_a_stall() {
    let node = Fake::start().await;
    let session = open(&paused_client(&[&node])).await;
    let told = session.shared().progress_mark();
    session.progress();
    assert!(session.shared().stalled_at(told));
    assert!(!session.shared().is_stalled());
    assert!(
        !session
            .shared()
            .stalled_at(session.shared().progress_mark())
    );
    assert!(session.shared().is_stalled());
}

#[tokio::test(start_paused = true)]
async fn progress_before_the_ttl_is_up_renews_the_session_at_once() {
    let (node, session) = strict().await;
    for _ in 0..5 {
        stalled(&node).await;
        assert_eq!(session.loss(), None);
        session.progress();
        let mark = node.seen(|script| script.served_mark);
        let told = Instant::now();
        until(|| node.seen(|script| script.served_mark) != mark).await;
        assert!(
            told.elapsed() < Duration::from_secs(1),
            "and not with the next one"
        );
    }
    assert_eq!(session.loss(), None);
}

#[tokio::test(start_paused = true)]
async fn a_session_without_a_stall_limit_sends_no_mark() {
    let node = Fake::start().await;
    let client = paused_client(&[&node]);
    let holder = "agent".parse().unwrap();
    let session = client.open_session(&holder, TTL).await.unwrap();
    session.progress();
    until(|| node.seen(|script| script.seen_keepalives) > 0).await;
    assert_eq!(node.seen(|script| script.served_mark), None);
}
