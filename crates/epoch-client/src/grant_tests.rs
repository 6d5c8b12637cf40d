//! Records, transfers and what a session holds.

use std::time::Duration;

use epoch_core::{Epoch, Reason, Scope};
use epoch_proto::v1;

use crate::testing::{Answer, Fake, client};
use crate::{Client, GrantLoss, Loss, Record, RecordOptions, Session};

fn scope() -> Scope {
    "reports/note".parse().unwrap()
}

async fn open(client: &Client) -> Session {
    let ttl = Duration::from_secs(1);
    client
        .open_session(&"agent".parse().unwrap(), ttl)
        .await
        .unwrap()
}

#[tokio::test]
async fn a_record_is_written_under_the_grants_epoch_with_one_intent_for_all_attempts() {
    let node = Fake::start().await;
    node.script(|script| {
        script.writes = vec![Answer::Refuse(Reason::NoQuorum), Answer::Serve];
    });
    let client = client(&[&node], 5_000, 2_000);
    let session = open(&client).await;
    let grant = session.acquire(&scope()).await.unwrap();
    let written = grant
        .put_record("step 3", RecordOptions::default())
        .await
        .unwrap();
    assert_eq!((written.revision, written.replayed), (7, false));
    let puts = node.seen(|script| script.seen_puts.clone());
    assert_eq!(puts.len(), 2);
    assert_eq!(puts[0], puts[1]);
    assert!(puts[0].intent_id.is_some());
    assert_eq!(
        (puts[0].epoch, puts[0].value.as_slice()),
        (42, b"step 3".as_slice())
    );

    let options = RecordOptions {
        expected_revision: Some(7),
        intent_id: Some("end".parse().unwrap()),
    };
    assert!(grant.delete_record(options).await.unwrap().deleted);
    let deletes = node.seen(|script| script.seen_deletes.clone());
    assert_eq!(deletes[0].expected_revision, Some(7));
    assert_eq!(deletes[0].intent_id.as_deref(), Some("end"));
    assert_eq!(
        client.get_record(&scope()).await.unwrap(),
        Record {
            value: Some(b"step 3".to_vec()),
            revision: 7,
            epoch: Some(Epoch::new(42).unwrap()),
        }
    );
}

#[tokio::test]
async fn a_write_that_is_superseded_loses_the_grant_and_another_refusal_does_not() {
    let node = Fake::start().await;
    node.script(|script| {
        script.writes = vec![
            Answer::Refuse(Reason::RevisionMismatch),
            Answer::Refuse(Reason::EpochSuperseded),
        ];
    });
    let session = open(&client(&[&node], 5_000, 2_000)).await;
    let grant = session.acquire(&scope()).await.unwrap();
    grant
        .put_record("x", RecordOptions::default())
        .await
        .unwrap_err();
    assert!(!grant.is_lost());
    grant
        .delete_record(RecordOptions::default())
        .await
        .unwrap_err();
    assert_eq!(grant.loss(), Some(GrantLoss::Superseded));
    assert_eq!(session.loss(), None);
}

#[tokio::test]
async fn a_write_that_finds_no_session_loses_the_session() {
    let node = Fake::start().await;
    node.script(|script| script.writes = vec![Answer::Refuse(Reason::SessionExpired)]);
    let session = open(&client(&[&node], 5_000, 2_000)).await;
    let grant = session.acquire(&scope()).await.unwrap();
    let written = grant.put_record("x", RecordOptions::default()).await;
    assert_eq!(written.unwrap_err().reason(), Some(Reason::SessionExpired));
    assert_eq!(session.loss(), Some(Loss::Expired));
    assert_eq!(grant.loss(), Some(GrantLoss::Session(Loss::Expired)));
}

#[tokio::test]
async fn a_transferred_grant_is_lost_and_one_that_was_refused_is_not() {
    let node = Fake::start().await;
    node.script(|script| {
        script.transfers = vec![Answer::Refuse(Reason::GrantLimit), Answer::Serve];
    });
    let client = client(&[&node], 5_000, 2_000);
    let (session, other) = (open(&client).await, open(&client).await);
    let grant = session.acquire(&scope()).await.unwrap();
    grant.transfer(&other.hash()).await.unwrap_err();
    assert!(!grant.is_lost());
    assert_eq!(grant.transfer(&other.hash()).await.unwrap().get(), 43);
    assert_eq!(grant.loss(), Some(GrantLoss::Transferred));
    let seen = node.seen(|script| script.seen_transfers.clone());
    assert_eq!(
        (seen[1].epoch, &seen[1].to),
        (42, &other.hash().to_string())
    );
}

#[tokio::test]
async fn a_transfer_of_unknown_outcome_loses_the_grant_and_may_be_asked_for_again() {
    let node = Fake::start().await;
    node.script(|script| {
        script.transfers = vec![
            Answer::Refuse(Reason::Internal),
            Answer::Serve,
            Answer::Silence,
        ];
    });
    let session = open(&client(&[&node], 5_000, 2_000)).await;
    let grant = session.acquire(&scope()).await.unwrap();
    assert!(
        grant
            .transfer(&session.hash())
            .await
            .unwrap_err()
            .outcome_unknown()
    );
    assert_eq!(grant.loss(), Some(GrantLoss::Transferred));
    grant.transfer(&session.hash()).await.unwrap();

    let grant = session.acquire(&scope()).await.unwrap();
    let hash = session.hash();
    tokio::select! {
        answer = grant.transfer(&hash) => panic!("{answer:?}"),
        () = async {
            while node.seen(|script| script.seen_transfers.len()) < 3 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        } => {}
    }
    // Nobody waits for the answer any more.
    assert_eq!(grant.loss(), Some(GrantLoss::Transferred));
}

#[tokio::test]
async fn what_a_session_holds_is_listed_over_pages_and_adopted() {
    let node = Fake::start().await;
    node.script(|script| {
        script.certifies = vec![Answer::Serve];
        let grants = (1..=3).map(|number| v1::SessionGrant {
            scope: format!("s{number}"),
            epoch: 100 + number,
            request_id: number - 1,
            position: Some(v1::Position::default()),
            metadata: format!("m{number}"),
        });
        script.grants = grants.collect();
    });
    let session = open(&client(&[&node], 5_000, 2_000)).await;
    let held = session.grants().await.unwrap();
    assert_eq!(node.seen(|script| script.seen_pages), 2);
    let epochs: Vec<_> = held.iter().map(|held| held.epoch.get()).collect();
    assert_eq!(epochs, [101, 102, 103]);
    assert_eq!(held[0].request_id, None, "it was transferred");
    assert_eq!(held[2].request_id.unwrap().get(), 2);
    assert_eq!(held[2].metadata, "m3");

    let grant = session
        .adopt(&"s3".parse().unwrap())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(grant.epoch().get(), 103);
    assert_eq!(&*grant.certificate(), "header.fresh.signature");
    assert!(session.adopt(&scope()).await.unwrap().is_none());
}
