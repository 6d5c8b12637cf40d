//! Sessions and the threads that keep them alive. These wait for real.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tokio::runtime::{Builder, Runtime};

use crate::testing::{Answer, Fake, client, paused_client, until};
use crate::{Grant, GrantLoss, Loss, OpenOptions, Session};

const TTL: Duration = Duration::from_secs(2);

/// A node on threads of its own.
fn node() -> (Runtime, Fake) {
    let elsewhere = Runtime::new().unwrap();
    let node = elsewhere.block_on(Fake::start());
    (elsewhere, node)
}

fn single_threaded() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

async fn open(node: &Fake) -> Session {
    let options = OpenOptions::new(TTL).with_stall_limit(TTL);
    let holder = "agent".parse().unwrap();
    let client = client(&[node], 5_000, 2_000);
    client.open_session_with(&holder, options).await.unwrap()
}

/// Keeps this thread from everything else until the node has seen four keepalives more: at three
/// in a TTL, that is longer than one.
fn block(node: &Fake, session: &Session) {
    let enough = node.seen(|script| script.seen_keepalives) + 4;
    while node.seen(|script| script.seen_keepalives) < enough {
        assert_eq!(session.loss(), None);
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn keepalives_go_on_while_the_caller_blocks_the_only_thread_of_its_runtime() {
    let (_elsewhere, node) = node();
    single_threaded().block_on(async {
        let session = open(&node).await;
        block(&node, &session);
        let grant = session.acquire(&"s".parse().unwrap()).await.unwrap();
        block(&node, &session);
        assert_eq!(grant.loss(), None);
    });
}

async fn acquire(session: &Session) -> Grant {
    session.acquire(&"s".parse().unwrap()).await.unwrap()
}

/// Keeps this thread from everything else until that is so; the background has the time of eight
/// keepalives for it.
fn block_until(node: &Fake, is_so: impl Fn() -> bool) {
    let enough = node.seen(|script| script.seen_keepalives) + 8;
    while !is_so() {
        assert!(node.seen(|script| script.seen_keepalives) < enough);
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn that_a_grant_has_ended_is_told_while_the_caller_blocks_its_thread_and_outside_its_runtime() {
    let (_elsewhere, node) = node();
    let runtime = single_threaded();
    let session = runtime.block_on(open(&node));
    // The node lists no grant of the session: it is as if each were revoked at once.
    node.script(|script| script.compares = true);
    runtime.block_on(async {
        let grant = acquire(&session).await;
        let lost = grant.lost_token();
        block_until(&node, || lost.is_cancelled());
        assert_eq!(grant.loss(), Some(GrantLoss::Superseded));
    });
    node.script(|script| script.epoch += 1);
    let grant = runtime.block_on(acquire(&session));
    block_until(&node, || grant.is_lost());
    assert_eq!(grant.loss(), Some(GrantLoss::Superseded));
}

#[test]
fn certificates_are_kept_fresh_while_the_caller_blocks_its_thread() {
    let (_elsewhere, node) = node();
    node.script(|script| {
        // Good for a second.
        let claims = URL_SAFE_NO_PAD.encode(r#"{"iat":7000,"exp":7001}"#);
        script.certificate = format!("header.{claims}.signature");
        script.certifies = vec![Answer::Serve];
    });
    single_threaded().block_on(async {
        let grant = acquire(&open(&node).await).await;
        let fresh = node.seen(|script| script.fresh.clone());
        block_until(&node, || *grant.certificate() == *fresh);
    });
}

#[test]
fn keepalives_go_on_while_a_caller_that_has_told_of_progress_blocks_its_thread() {
    let (_elsewhere, node) = node();
    node.script(|script| script.wants_progress = true);
    single_threaded().block_on(async {
        let session = open(&node).await;
        while !session.shared().is_stalled() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        node.script(|script| script.wants_progress = false);
        session.progress();
        block(&node, &session);
    });
}

#[test]
fn sessions_outlive_the_runtime_in_which_they_were_opened() {
    let (_elsewhere, node) = node();
    let session = single_threaded().block_on(open(&node));
    block(&node, &session);
}

#[test]
fn a_client_goes_on_in_another_runtime_once_the_one_that_it_was_made_in_has_ended() {
    let (_elsewhere, node) = node();
    let session = single_threaded().block_on(open(&node));
    single_threaded().block_on(async {
        session.acquire(&"s".parse().unwrap()).await.unwrap();
        session.close().await.unwrap();
    });
    assert_eq!(node.seen(|script| script.seen_closes), 1);
}

#[test]
fn sessions_are_lost_when_what_sends_their_keepalives_ends() {
    // Over connections of a test's own, that is the runtime in which they were opened.
    let session = single_threaded().block_on(async {
        let node = Fake::start().await;
        let holder = "agent".parse().unwrap();
        let opened = paused_client(&[&node]).open_session(&holder, TTL).await;
        // By then it is among those that are kept alive.
        until(|| node.seen(|script| script.seen_keepalives) > 0).await;
        opened.unwrap()
    });
    single_threaded().block_on(session.lost());
    assert_eq!(session.loss(), Some(Loss::Lapsed));
}
