//! Calls against nodes on real connections.

use std::net::SocketAddr;
use std::time::Duration;

use epoch_core::Reason;
use epoch_proto::v1::{AcquireRequest, GetRequest, RevokeRequest};

use tonic::{Code, Status};

use crate::call::refused;
use crate::testing::{Answer, Fake, Said, client};
use crate::{Client, ErrorKind, Options, Watched};

fn request() -> AcquireRequest {
    AcquireRequest {
        scope: "s".to_owned(),
        request_id: 9,
        ..AcquireRequest::default()
    }
}

/// An address where nothing listens.
async fn nowhere() -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap()
}

#[tokio::test]
async fn the_leader_named_in_an_answer_is_asked_next() {
    let (follower, leader) = (Fake::start().await, Fake::start().await);
    follower.script(|script| script.leader = Some(leader.address));
    let client = client(&[&follower], 5_000, 2_000);
    client.acquire(request()).await.unwrap();
    client.acquire(request()).await.unwrap();
    client.acquire(request()).await.unwrap();
    assert_eq!(follower.seen(|script| script.seen_acquires.len()), 1);
    assert_eq!(leader.seen(|script| script.seen_acquires.len()), 2);
}

#[tokio::test]
async fn the_leader_named_in_a_refusal_is_asked_next() {
    let (follower, leader) = (Fake::start().await, Fake::start().await);
    follower.script(|script| {
        script.leader = Some(leader.address);
        script.acquires = vec![Answer::Refuse(Reason::NoLeader)];
    });
    let client = client(&[&follower], 5_000, 2_000);
    client.acquire(request()).await.unwrap();
    assert_eq!(follower.seen(|script| script.seen_acquires.len()), 1);
    assert_eq!(leader.seen(|script| script.seen_acquires.len()), 1);
}

#[tokio::test]
async fn when_the_answer_is_lost_the_next_node_gets_the_same_request_id() {
    let (first, second) = (Fake::start().await, Fake::start().await);
    first.script(|script| script.acquires = vec![Answer::Silence]);
    let client = client(&[&first, &second], 10_000, 200);
    let grant = client.acquire(request()).await.unwrap();
    assert_eq!(grant.epoch, 42);
    assert_eq!(
        first.seen(|script| script.seen_acquires.clone()),
        [request()]
    );
    assert_eq!(
        second.seen(|script| script.seen_acquires.clone()),
        [request()]
    );
}

#[tokio::test]
async fn a_request_beyond_a_nodes_limit_is_too_large() {
    let node = Fake::start().await;
    let large = AcquireRequest {
        metadata: "x".repeat(5 << 20),
        ..request()
    };
    let error = client(&[&node], 5_000, 2_000).acquire(large).await;
    let kind = error.unwrap_err().kind();
    assert_eq!(kind, ErrorKind::Refused(Reason::TooLarge));
}

#[test]
fn an_answer_without_words_is_told_by_its_code() {
    let error = refused(&Status::unimplemented(""));
    assert_eq!(error.kind(), ErrorKind::Protocol(Code::Unimplemented));
    let code = Code::Unimplemented.description();
    assert!(error.to_string().ends_with(code), "{error}");
}

#[tokio::test]
async fn reasons_that_pass_are_ridden_out() {
    let node = Fake::start().await;
    node.script(|script| {
        let refusals = [Reason::NoLeader, Reason::NoQuorum, Reason::Overloaded];
        script.acquires = refusals.map(Answer::Refuse).to_vec();
        script.acquires.push(Answer::Serve);
    });
    client(&[&node], 10_000, 2_000)
        .acquire(request())
        .await
        .unwrap();
    assert_eq!(node.seen(|script| script.seen_acquires.len()), 4);
}

#[tokio::test]
async fn a_definite_refusal_is_not_retried() {
    let node = Fake::start().await;
    for reason in [
        Reason::ScopeHeld,
        Reason::EpochSuperseded,
        Reason::InvalidArgument,
    ] {
        node.script(|script| {
            script.acquires = vec![Answer::Refuse(reason), Answer::Serve];
            script.seen_acquires.clear();
        });
        let error = client(&[&node], 5_000, 2_000)
            .acquire(request())
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused(reason));
        assert!(!error.outcome_unknown());
        assert_eq!(
            node.seen(|script| script.seen_acquires.len()),
            1,
            "{reason}"
        );
    }
}

#[tokio::test]
async fn a_refusal_after_a_lost_answer_leaves_the_outcome_unknown() {
    let (first, second) = (Fake::start().await, Fake::start().await);
    first.script(|script| script.acquires = vec![Answer::Silence]);
    second.script(|script| script.acquires = vec![Answer::Refuse(Reason::ScopeHeld)]);
    let error = client(&[&first, &second], 10_000, 200)
        .acquire(request())
        .await
        .unwrap_err();
    assert_eq!(error.reason(), Some(Reason::ScopeHeld));
    assert!(error.outcome_unknown());
}

#[tokio::test]
async fn the_overall_deadline_ends_a_call_that_nobody_answers() {
    let node = Fake::start().await;
    node.script(|script| script.acquires = vec![Answer::Silence]);
    // One attempt may take longer than the whole call.
    let error = client(&[&node], 300, 60_000)
        .acquire(request())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable(None));
    assert!(error.outcome_unknown());
}

#[tokio::test]
async fn what_was_never_sent_has_no_unknown_outcome() {
    let endpoint = nowhere().await.to_string().parse().unwrap();
    let options = Options {
        deadline: Duration::from_millis(300),
        ..Options::default()
    };
    let client = Client::connect([endpoint], options).unwrap();
    let error = client.acquire(request()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable(None));
    assert!(!error.outcome_unknown(), "{error}");
}

#[tokio::test]
async fn a_node_that_is_down_is_passed_over() {
    let node = Fake::start().await;
    let endpoints = [nowhere().await, node.address];
    let endpoints = endpoints.map(|address| address.to_string().parse().unwrap());
    let client = Client::connect(endpoints, Options::default()).unwrap();
    client
        .get(GetRequest {
            scope: "s".to_owned(),
            ..GetRequest::default()
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn a_revoke_without_an_epoch_is_not_repeated_once_it_may_have_happened() {
    let node = Fake::start().await;
    let client = client(&[&node], 60_000, 2_000);
    let error = client.revoke(RevokeRequest::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused(Reason::NoQuorum));
    assert!(error.outcome_unknown());
}

#[tokio::test]
async fn the_longest_times_can_be_waited() {
    let node = Fake::start().await;
    node.script(|script| {
        script.watches = vec![vec![Said::Events(vec![("granted", "s", "7.0")], "7.0")]];
    });
    let options = Options {
        deadline: Duration::MAX,
        attempt_timeout: Duration::MAX,
        ping_interval: Duration::MAX,
        ping_timeout: Duration::MAX,
        ..Options::default()
    };
    let client = Client::connect([node.address.to_string().parse().unwrap()], options).unwrap();
    client.acquire(request()).await.unwrap();
    let from = "6.0".parse().ok();
    let mut watch = client.watch(Watched::All, from).await.unwrap();
    watch.next().await.unwrap();
    let ttl = Duration::from_secs(10);
    let session = client.open_session(&"agent".parse().unwrap(), ttl).await;
    session.unwrap().close().await.unwrap();
    client.shutdown().await.unwrap();
}
