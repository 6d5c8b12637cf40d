//! Acquires that wait, of many scopes, and what is left of those that nobody waits for.

use std::time::Duration;

use epoch_core::{Reason, Scope};
use epoch_proto::duration;
use epoch_proto::v1::{AcquireManyRequest, AcquireRequest};

use crate::testing::{Answer, Fake, client};
use crate::{Client, ErrorKind, Session};

const WAIT: Duration = Duration::from_secs(60);

fn scope(name: &str) -> Scope {
    name.parse().unwrap()
}

async fn open(client: &Client) -> Session {
    let ttl = Duration::from_secs(1);
    client
        .open_session(&"agent".parse().unwrap(), ttl)
        .await
        .unwrap()
}

fn wait_ms(request: &AcquireRequest) -> u64 {
    duration::to_ms(request.wait.as_ref().unwrap()).unwrap()
}

/// Polls until `node` has seen what is looked for.
async fn until(node: &Fake, seen: impl Fn(&crate::testing::Script) -> bool) {
    while !node.seen(&seen) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn retries_of_a_wait_keep_the_request_id_and_send_what_is_left() {
    let (first, second) = (Fake::start().await, Fake::start().await);
    for node in [&first, &second] {
        node.script(|script| {
            let reasons = [Reason::NoLeader, Reason::NoQuorum, Reason::NoLeader];
            script.acquires = reasons.map(Answer::Refuse).to_vec();
            script.acquires.push(Answer::Serve);
        });
    }
    let session = open(&client(&[&first, &second], 5_000, 2_000)).await;
    session
        .request(&scope("s"))
        .wait(WAIT)
        .send()
        .await
        .unwrap();
    let mut seen = first.seen(|script| script.seen_acquires.clone());
    seen.extend(second.seen(|script| script.seen_acquires.clone()));
    assert!(seen.len() >= 4, "{seen:?}");
    assert!(
        seen.iter().all(|request| request.request_id == 1),
        "{seen:?}"
    );
    let mut waits: Vec<_> = seen.iter().map(wait_ms).collect();
    assert_eq!(waits.iter().max(), Some(&60_000));
    waits.sort_unstable();
    waits.dedup();
    assert_eq!(waits.len(), seen.len(), "each sends less: {waits:?}");
}

#[tokio::test]
async fn a_wait_outlasts_the_time_of_an_attempt_and_the_deadline_of_a_call() {
    let node = Fake::start().await;
    node.script(|script| script.acquires = vec![Answer::Silence]);
    let session = open(&client(&[&node], 100, 100)).await;
    let waiting = tokio::spawn(
        session
            .request(&scope("s"))
            .wait(Duration::from_millis(900))
            .send(),
    );
    let error = waiting.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable(None));
    assert!(error.outcome_unknown());
    // One attempt took the wait and its own time; there was no time for many more.
    assert!(node.seen(|script| script.seen_acquires.len()) <= 2);
}

#[tokio::test]
async fn two_of_unknown_outcome_are_both_asked_for_again() {
    let node = Fake::start().await;
    node.script(|script| {
        script.acquires = vec![Answer::Silence, Answer::Silence, Answer::Serve];
    });
    let session = open(&client(&[&node], 100, 100)).await;
    let scope = scope("s");
    let (one, other) = tokio::join!(session.acquire(&scope), session.acquire(&scope));
    assert!(one.unwrap_err().outcome_unknown() && other.unwrap_err().outcome_unknown());
    let before = node.seen(|script| script.seen_acquires.len());
    for _ in 0..2 {
        session.acquire(&scope).await.unwrap();
    }
    let ids: Vec<_> = node.seen(|script| {
        let again = script.seen_acquires[before..].iter();
        again.map(|request| request.request_id).collect()
    });
    assert_eq!(ids, [1, 2]);
}

#[tokio::test]
async fn a_wait_that_has_ended_is_a_refusal_and_its_id_is_not_used_again() {
    let node = Fake::start().await;
    node.script(|script| {
        script.acquires = vec![
            Answer::Refuse(Reason::NoQuorum),
            Answer::Refuse(Reason::WaitExpired),
            Answer::Serve,
        ];
    });
    let session = open(&client(&[&node], 5_000, 2_000)).await;
    let request = session.request(&scope("s")).wait(WAIT);
    let error = request.clone().send().await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::WaitExpired));
    request.send().await.unwrap();
    let ids = node.seen(|script| {
        let ids = script
            .seen_acquires
            .iter()
            .map(|request| request.request_id);
        ids.collect::<Vec<_>>()
    });
    assert_eq!(ids, [1, 1, 2]);
}

#[tokio::test]
async fn all_that_an_acquire_says_is_sent() {
    let node = Fake::start().await;
    let session = open(&client(&[&node], 5_000, 2_000)).await;
    let grant = session
        .request(&scope("s"))
        .lock_delay(Duration::from_millis(1_500))
        .metadata("job 7")
        .audience(&["db".to_owned()])
        .signatures(2)
        .reissue();
    grant.send().await.unwrap();
    let mut seen = node.seen(|script| script.seen_acquires.clone());
    assert_eq!(
        seen.pop().unwrap(),
        AcquireRequest {
            scope: "s".to_owned(),
            session_id: session.id().to_string(),
            request_id: 1,
            audience: vec!["db".to_owned()],
            wait: None,
            reissue: true,
            lock_delay: Some(duration::from_ms(1_500)),
            metadata: "job 7".to_owned(),
            signatures: 2,
        }
    );
}

#[tokio::test]
async fn all_that_an_acquire_of_many_says_is_sent_and_holds_for_each_certificate() {
    let node = Fake::start().await;
    let session = open(&client(&[&node], 5_000, 2_000)).await;
    let audience = ["db".to_owned()];
    let request = session
        .request_many(&["a", "b"].map(scope))
        .lock_delay(Duration::from_millis(1_500))
        .metadata("job 7")
        .signatures(3)
        .audience(&audience);
    let grants = request.send().await.unwrap();
    let sent = AcquireManyRequest {
        scopes: vec!["a".to_owned(), "b".to_owned()],
        session_id: session.id().to_string(),
        request_id: 1,
        audience: audience.to_vec(),
        lock_delay: Some(duration::from_ms(1_500)),
        metadata: "job 7".to_owned(),
        signatures: 3,
    };
    assert_eq!(node.seen(|script| script.seen_many.clone()), [sent]);
    for grant in &grants {
        let certify = grant.held().certify_request(session.id().to_string());
        assert_eq!(
            (certify.audience, certify.signatures),
            (audience.to_vec(), 3)
        );
        grant.set_signatures(2);
        let certify = grant.held().certify_request(session.id().to_string());
        assert_eq!(certify.signatures, 2);
    }
}

#[tokio::test]
async fn a_wait_that_nobody_waits_for_is_cancelled_and_its_id_is_not_used_again() {
    let node = Fake::start().await;
    node.script(|script| script.acquires = vec![Answer::Silence, Answer::Serve]);
    let session = open(&client(&[&node], 5_000, 2_000)).await;
    let request = session.request(&scope("s")).wait(WAIT);
    let waiting = tokio::spawn(request.clone().send());
    until(&node, |script| script.seen_acquires.len() == 1).await;
    waiting.abort();
    until(&node, |script| script.seen_cancels.len() == 1).await;
    let cancelled = node.seen(|script| script.seen_cancels[0].clone());
    assert_eq!((cancelled.scope.as_str(), cancelled.request_id), ("s", 1));
    assert_eq!(cancelled.session_id, session.id().to_string());
    request.send().await.unwrap();
    assert_eq!(node.seen(|script| script.seen_acquires[1].request_id), 2);
    assert!(node.seen(|script| script.seen_releases.is_empty()));
}

#[tokio::test]
async fn what_a_cancelled_wait_had_been_granted_is_given_back() {
    let node = Fake::start().await;
    node.script(|script| {
        script.acquires = vec![Answer::Silence];
        script.cancelled_epoch = Some(77);
    });
    let session = open(&client(&[&node], 5_000, 2_000)).await;
    let waiting = tokio::spawn(session.request(&scope("s")).wait(WAIT).send());
    until(&node, |script| script.seen_acquires.len() == 1).await;
    waiting.abort();
    until(&node, |script| script.seen_releases.len() == 1).await;
    assert_eq!(node.seen(|script| script.seen_releases[0].epoch), 77);
}

#[tokio::test]
async fn a_try_that_nobody_waits_for_keeps_its_id_for_the_next() {
    let node = Fake::start().await;
    node.script(|script| script.acquires = vec![Answer::Silence, Answer::Serve]);
    let session = open(&client(&[&node], 5_000, 2_000)).await;
    let trying = tokio::spawn(session.request(&scope("s")).send());
    until(&node, |script| script.seen_acquires.len() == 1).await;
    trying.abort();
    assert!(trying.await.unwrap_err().is_cancelled());
    session.acquire(&scope("s")).await.unwrap();
    assert_eq!(node.seen(|script| script.seen_acquires[1].request_id), 1);
    assert!(node.seen(|script| script.seen_cancels.is_empty()));
}

#[tokio::test]
async fn many_scopes_use_as_many_ids_and_a_retry_the_same_ones() {
    let node = Fake::start().await;
    node.script(|script| {
        script.many = vec![Answer::Refuse(Reason::Internal), Answer::Serve];
    });
    let session = open(&client(&[&node], 5_000, 2_000)).await;
    let scopes = ["a", "b", "c"].map(scope);
    assert!(
        session
            .acquire_many(&scopes)
            .await
            .unwrap_err()
            .outcome_unknown()
    );
    session.acquire(&scope("d")).await.unwrap();
    let grants = session.acquire_many(&scopes).await.unwrap();
    session.acquire_many(&scopes).await.unwrap();
    let epochs: Vec<_> = grants.iter().map(|grant| grant.epoch().get()).collect();
    assert_eq!(epochs, [42, 43, 44]);
    assert!(grants.iter().map(crate::Grant::scope).eq(&scopes));
    let ids = node.seen(|script| {
        let ids = script.seen_many.iter().map(|request| request.request_id);
        ids.collect::<Vec<_>>()
    });
    assert_eq!(ids, [1, 1, 5]);
    assert_eq!(node.seen(|script| script.seen_acquires[0].request_id), 4);
}
