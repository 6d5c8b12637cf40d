//! What becomes of a scope in the cluster when its grant is let go of here.

use std::time::Duration;

use epoch_core::{Reason, Scope};
use epoch_proto::v1;

use crate::testing::{Answer, Fake, paused_client, until};
use crate::{Client, ErrorKind, GrantLoss, Loss, Session};

const TTL: Duration = Duration::from_secs(10);

fn scope() -> Scope {
    "reports/note".parse().unwrap()
}

async fn open(client: &Client) -> Session {
    let holder = "agent".parse().unwrap();
    client.open_session(&holder, TTL).await.unwrap()
}

fn released(node: &Fake) -> Vec<u64> {
    node.seen(|script| {
        let released = script.seen_releases.iter().map(|request| request.epoch);
        released.collect()
    })
}

/// Time enough for whatever is done in the background.
async fn settle() {
    tokio::time::sleep(TTL).await;
}

#[tokio::test(start_paused = true)]
async fn the_last_clone_dropped_releases_the_scope_and_the_session_goes_on() {
    let node = Fake::start().await;
    let session = open(&paused_client(&[&node])).await;
    let grant = session.acquire(&scope()).await.unwrap();
    let (clone, lost) = (grant.clone(), grant.lost_token());
    drop(grant);
    settle().await;
    assert!(released(&node).is_empty());
    drop(clone);
    assert!(lost.is_cancelled());
    settle().await;
    assert_eq!(released(&node), [42]);
    assert_eq!(session.loss(), None);
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_is_kept_is_not_released_and_tells_of_its_loss() {
    let node = Fake::start().await;
    let session = open(&paused_client(&[&node])).await;
    let grant = session.acquire(&scope()).await.unwrap();
    let lost = grant.lost_token();
    grant.keep();
    settle().await;
    assert!(released(&node).is_empty());
    assert!(!lost.is_cancelled());
    session.close().await.unwrap();
    assert!(lost.is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn a_release_that_was_not_waited_for_or_failed_is_made_up_for_at_the_drop() {
    let node = Fake::start().await;
    node.script(|script| {
        script.releases = vec![
            Answer::Silence,
            Answer::Serve,
            Answer::Refuse(Reason::Internal),
            Answer::Serve,
        ];
    });
    let session = open(&paused_client(&[&node])).await;
    let grant = session.acquire(&scope()).await.unwrap();
    let unanswered = tokio::time::timeout(Duration::from_secs(1), grant.release()).await;
    assert!(unanswered.is_err());
    drop(grant);
    settle().await;
    assert_eq!(released(&node), [42, 42]);

    node.script(|script| script.epoch = 43);
    let grant = session.acquire(&scope()).await.unwrap();
    grant.release().await.unwrap_err();
    drop(grant);
    settle().await;
    assert_eq!(released(&node), [42, 42, 43, 43]);
}

#[tokio::test(start_paused = true)]
async fn a_release_that_was_answered_is_not_made_again() {
    let node = Fake::start().await;
    let session = open(&paused_client(&[&node])).await;
    let grant = session.acquire(&scope()).await.unwrap();
    assert!(grant.release().await.unwrap());
    assert_eq!(grant.loss(), Some(GrantLoss::Released));
    drop(grant);
    settle().await;
    assert_eq!(released(&node), [42]);
}

/// The same grant, taken up by another handle after `first` was given up.
async fn taken_up_again(node: &Fake, session: &Session) -> crate::Grant {
    node.script(|script| {
        script.certifies = vec![Answer::Serve];
        script.grants = vec![v1::SessionGrant {
            scope: scope().as_str().to_owned(),
            epoch: 42,
            position: Some(v1::Position::default()),
            ..v1::SessionGrant::default()
        }];
    });
    session.adopt(&scope()).await.unwrap().unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_drop_of_a_grant_that_was_given_up_leaves_its_successor_alone() {
    let node = Fake::start().await;
    node.script(|script| script.releases = vec![Answer::Refuse(Reason::Internal)]);
    let session = open(&paused_client(&[&node])).await;
    let grant = session.acquire(&scope()).await.unwrap();
    grant.release().await.unwrap_err();
    let again = taken_up_again(&node, &session).await;
    drop(grant);
    settle().await;
    assert_eq!(again.loss(), None);
    assert_eq!(released(&node), [42], "the one that was asked for");
}

#[tokio::test(start_paused = true)]
async fn a_release_that_takes_effect_late_ends_what_was_taken_up_meanwhile() {
    let node = Fake::start().await;
    node.script(|script| script.releases = vec![Answer::Silence, Answer::Serve]);
    let session = open(&paused_client(&[&node])).await;
    let grant = session.acquire(&scope()).await.unwrap();
    let releasing = tokio::spawn(async move { grant.release().await });
    until(|| !released(&node).is_empty()).await;
    let again = taken_up_again(&node, &session).await;
    assert_eq!(again.loss(), None);
    assert!(releasing.await.unwrap().unwrap());
    assert_eq!(again.loss(), Some(GrantLoss::Released));
}

#[tokio::test(start_paused = true)]
async fn shutdown_closes_all_sessions_and_what_is_asked_of_them_later_fails() {
    let node = Fake::start().await;
    let client = paused_client(&[&node]);
    let (first, second) = (open(&client).await, open(&client).await);
    let grant = first.acquire(&scope()).await.unwrap();
    client.shutdown().await.unwrap();
    assert_eq!(node.seen(|script| script.seen_closes), 2);
    let closed = ErrorKind::SessionLost(Loss::Closed);
    for session in [&first, &second] {
        session.lost().await;
        assert_eq!(session.loss(), Some(Loss::Closed));
        let error = session.acquire(&scope()).await.unwrap_err();
        assert_eq!(error.kind(), closed);
    }
    assert_eq!(grant.loss(), Some(GrantLoss::Session(Loss::Closed)));
    assert_eq!(grant.certify().await.unwrap_err().kind(), closed);
    assert_eq!(grant.release().await.unwrap_err().kind(), closed);

    let keepalives = node.seen(|script| script.seen_keepalives);
    drop((grant, first, second));
    settle().await;
    assert_eq!(node.seen(|script| script.seen_keepalives), keepalives);
    assert_eq!(node.seen(|script| script.seen_closes), 2);
    assert_eq!(node.seen(|script| script.seen_acquires.len()), 1);
}

#[tokio::test(start_paused = true)]
async fn shutdown_loses_all_sessions_before_the_first_is_closed() {
    let node = Fake::start().await;
    node.script(|script| script.closes = vec![Answer::Silence]);
    let client = paused_client(&[&node]);
    let mut sessions = Vec::new();
    // More than are closed at once.
    for _ in 0..70 {
        sessions.push(open(&client).await);
    }
    let shutdown = tokio::time::timeout(Duration::from_secs(1), client.shutdown()).await;
    assert!(shutdown.is_err(), "it waits for answers");
    for session in &sessions {
        assert_eq!(session.loss(), Some(Loss::Closed));
    }
}

#[tokio::test(start_paused = true)]
async fn shutdown_asks_for_every_session_and_returns_the_first_failure() {
    let node = Fake::start().await;
    node.script(|script| {
        script.closes = vec![Answer::Refuse(Reason::Internal), Answer::Serve];
    });
    let client = paused_client(&[&node]);
    let (first, second) = (open(&client).await, open(&client).await);
    let error = client.shutdown().await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::Internal));
    assert_eq!(node.seen(|script| script.seen_closes), 2);
    assert_eq!(first.loss(), Some(Loss::Closed));
    assert_eq!(second.loss(), Some(Loss::Closed));
}

fn opens_no_more(opened: Result<Session, crate::Error>) {
    let error = opened.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Usage);
    assert!(error.to_string().contains("shut down"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_was_shut_down_opens_no_session_and_answers_other_calls() {
    let node = Fake::start().await;
    let client = paused_client(&[&node]);
    let clone = client.clone();
    client.shutdown().await.unwrap();
    let holder = "agent".parse().unwrap();
    opens_no_more(clone.open_session(&holder, TTL).await);
    assert!(node.seen(|script| script.seen_opens.is_empty()));
    clone.status().await.unwrap();
    client.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_session_that_was_being_opened_at_the_shutdown_is_closed_and_not_returned() {
    let node = Fake::start().await;
    node.script(|script| script.opens = vec![Answer::Late(500)]);
    let client = paused_client(&[&node]);
    let opening = {
        let client = client.clone();
        let holder = "agent".parse().unwrap();
        tokio::spawn(async move { client.open_session(&holder, TTL).await })
    };
    until(|| node.seen(|script| script.seen_opens.len()) == 1).await;
    client.shutdown().await.unwrap();
    opens_no_more(opening.await.unwrap());
    until(|| node.seen(|script| script.seen_closes) == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_close_that_was_not_waited_for_or_failed_is_made_up_for_at_the_drop() {
    let node = Fake::start().await;
    node.script(|script| {
        script.closes = vec![
            Answer::Silence,
            Answer::Serve,
            Answer::Refuse(Reason::Internal),
            Answer::Serve,
        ];
    });
    let client = paused_client(&[&node]);
    for closes in [2, 4] {
        let session = open(&client).await;
        let closing = tokio::time::timeout(Duration::from_secs(1), session.close()).await;
        assert!(!matches!(closing, Ok(Ok(_))), "{closing:?}");
        assert_eq!(session.loss(), Some(Loss::Closed));
        drop(session);
        settle().await;
        assert_eq!(node.seen(|script| script.seen_closes), closes);
    }
}
