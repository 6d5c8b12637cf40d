//! Sessions against nodes on real connections.

use std::time::Duration;

use epoch_core::{Reason, Scope};

use crate::testing::{Answer, Fake, client};
use crate::{Client, ErrorKind, Loss, OpenOptions, Session};

const TTL: Duration = Duration::from_secs(1);

fn scope() -> Scope {
    "reports/note".parse().unwrap()
}

async fn open(client: &Client) -> Session {
    open_for(client, TTL).await
}

async fn open_for(client: &Client, ttl: Duration) -> Session {
    client
        .open_session(&"agent".parse().unwrap(), ttl)
        .await
        .unwrap()
}

#[tokio::test]
async fn a_session_that_is_acknowledged_outlives_its_ttl() {
    let node = Fake::start().await;
    let session = open_for(&client(&[&node], 5_000, 2_000), TTL * 2).await;
    let enough = async {
        // At three in a TTL, the fourth comes after more than one TTL.
        while node.seen(|script| script.seen_keepalives) < 4 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        () = enough => {}
        () = session.lost() => panic!("lost: {:?}", session.loss()),
    }
    assert_eq!(session.loss(), None);
}

#[tokio::test]
async fn a_session_is_opened_with_the_holders_own_key_if_there_is_one() {
    let node = Fake::start().await;
    let client = client(&[&node], 5_000, 2_000);
    let name = "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k";
    let options = OpenOptions::new(TTL);
    let with = options.clone().with_holder_key(name.parse().unwrap());
    for options in [options, with] {
        let holder = "agent".parse().unwrap();
        client.open_session_with(&holder, options).await.unwrap();
    }
    let named = node.seen(|script| {
        let opens = script.seen_opens.iter();
        opens
            .map(|open| open.holder_key.clone())
            .collect::<Vec<_>>()
    });
    assert_eq!(named, [None, Some(name.to_owned())]);
}

#[tokio::test]
async fn session_expired_is_a_loss_at_once_and_for_good() {
    let node = Fake::start().await;
    node.script(|script| {
        script.keepalives = vec![Answer::Refuse(Reason::SessionExpired), Answer::Serve];
    });
    let session = open(&client(&[&node], 5_000, 2_000)).await;
    let grant = session.acquire(&scope()).await.unwrap();
    grant.lost().await;
    assert_eq!(session.loss(), Some(Loss::Expired));
    assert!(grant.is_lost());
    let error = session.acquire(&scope()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SessionLost(Loss::Expired));
    assert_eq!(node.seen(|script| script.seen_acquires.len()), 1);
}

#[tokio::test]
async fn a_session_whose_keepalives_go_unanswered_is_lost() {
    let node = Fake::start().await;
    node.script(|script| script.keepalives = vec![Answer::Silence]);
    let session = open(&client(&[&node], 5_000, 2_000)).await;
    session.lost().await;
    assert_eq!(session.loss(), Some(Loss::Lapsed));
    assert!(node.seen(|script| script.seen_keepalives) > 0);
}

#[tokio::test]
async fn a_keepalive_refused_for_now_is_sent_again() {
    let node = Fake::start().await;
    node.script(|script| {
        script.keepalives = vec![
            Answer::Refuse(Reason::NoLeader),
            Answer::Silence,
            Answer::Serve,
        ];
    });
    let session = open_for(&client(&[&node], 5_000, 2_000), TTL * 3).await;
    while node.seen(|script| script.seen_keepalives) < 5 {
        assert_eq!(session.loss(), None);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn request_ids_count_from_one_and_an_unknown_outcome_keeps_its_id() {
    let node = Fake::start().await;
    node.script(|script| {
        script.acquires = vec![
            Answer::Serve,
            Answer::Refuse(Reason::Internal),
            Answer::Serve,
        ];
    });
    let session = open(&client(&[&node], 5_000, 2_000)).await;
    session.acquire(&"a".parse().unwrap()).await.unwrap();
    assert!(
        session
            .acquire(&"b".parse().unwrap())
            .await
            .unwrap_err()
            .outcome_unknown()
    );
    session.acquire(&"c".parse().unwrap()).await.unwrap();
    session.acquire(&"b".parse().unwrap()).await.unwrap();
    session.acquire(&"b".parse().unwrap()).await.unwrap();
    let ids = node.seen(|script| {
        script
            .seen_acquires
            .iter()
            .map(|request| request.request_id)
            .collect::<Vec<_>>()
    });
    assert_eq!(ids, [1, 2, 3, 2, 4]);
}

#[tokio::test]
async fn a_superseded_grant_is_lost_and_its_session_is_not() {
    let node = Fake::start().await;
    let session = open(&client(&[&node], 5_000, 2_000)).await;
    let grant = session.acquire(&scope()).await.unwrap();
    let error = grant.certify().await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::EpochSuperseded));
    assert!(grant.is_lost());
    assert_eq!(session.loss(), None);
}

#[tokio::test]
async fn closing_loses_the_grants_before_the_call_and_happens_once() {
    let node = Fake::start().await;
    let session = open(&client(&[&node], 5_000, 2_000)).await;
    let grant = session.acquire(&scope()).await.unwrap();
    assert!(session.close().await.unwrap());
    grant.lost().await;
    assert_eq!(session.loss(), Some(Loss::Closed));
    drop((session, grant));
    assert_eq!(node.seen(|script| script.seen_closes), 1);
}

#[tokio::test]
async fn the_last_handle_dropped_closes_the_session() {
    let node = Fake::start().await;
    let session = open(&client(&[&node], 5_000, 2_000)).await;
    let grant = session.acquire(&scope()).await.unwrap();
    drop(session);
    assert!(!grant.is_lost());
    drop(grant);
    while node.seen(|script| script.seen_closes) == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
