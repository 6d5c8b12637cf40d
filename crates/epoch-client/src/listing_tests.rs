//! Keepalives that tell of grants others than this client believes in.

use std::sync::Arc;
use std::time::Duration;

use epoch_core::Scope;
use epoch_proto::v1;
use tokio::sync::Semaphore;

use crate::testing::{Fake, paused_client, until};
use crate::{Client, ErrorKind, Grant, GrantLoss, Loss, Session};

const TTL: Duration = Duration::from_secs(10);

fn scope(name: &str) -> Scope {
    name.parse().unwrap()
}

async fn open(client: &Client) -> Session {
    let holder = "agent".parse().unwrap();
    client.open_session(&holder, TTL).await.unwrap()
}

fn row(name: &str, epoch: u64) -> v1::SessionGrant {
    v1::SessionGrant {
        scope: name.to_owned(),
        epoch,
        position: Some(v1::Position::default()),
        ..v1::SessionGrant::default()
    }
}

/// Acquired, and counted by the node as the session's.
async fn acquire(node: &Fake, session: &Session, name: &str, epoch: u64) -> Grant {
    node.script(|script| {
        script.epoch = epoch;
        script.grants.push(row(name, epoch));
    });
    session.acquire(&scope(name)).await.unwrap()
}

/// The node has ended the grant of that scope.
fn end(node: &Fake, name: &str) {
    node.script(|script| script.grants.retain(|granted| granted.scope != name));
}

/// A node that compares, and a session that holds a, b and c.
async fn held() -> (Fake, Session, [Grant; 3]) {
    let node = Fake::start().await;
    node.script(|script| script.compares = true);
    let session = open(&paused_client(&[&node])).await;
    let grants = [
        acquire(&node, &session, "a", 42).await,
        acquire(&node, &session, "b", 43).await,
        acquire(&node, &session, "c", 44).await,
    ];
    (node, session, grants)
}

fn pages(node: &Fake) -> usize {
    node.seen(|script| script.seen_pages)
}

/// Time enough for several keepalives and what follows from them.
async fn settle() {
    tokio::time::sleep(TTL * 2).await;
}

#[tokio::test(start_paused = true)]
async fn while_both_sides_believe_the_same_nothing_is_listed() {
    let (node, session, grants) = held().await;
    settle().await;
    grants[1].release().await.unwrap();
    end(&node, "b");
    settle().await;
    assert_eq!(pages(&node), 0);
    assert_eq!(session.loss(), None);
}

#[tokio::test(start_paused = true)]
async fn exactly_the_grants_that_are_gone_are_lost() {
    let (node, session, [a, b, c]) = held().await;
    end(&node, "b");
    b.lost().await;
    assert_eq!(b.loss(), Some(GrantLoss::Superseded));
    settle().await;
    assert_eq!((a.loss(), c.loss()), (None, None));
    assert_eq!(session.loss(), None);
    // One page of two rows, and then both sides believe the same.
    assert_eq!(pages(&node), 1);
    drop(b);
    settle().await;
    let releases = node.seen(|script| script.seen_releases.len());
    assert_eq!(releases, 0, "it has ended already");
}

#[tokio::test(start_paused = true)]
async fn a_grant_at_another_epoch_than_believed_is_lost_and_the_other_is_unclaimed() {
    let (node, session, [a, b, c]) = held().await;
    end(&node, "b");
    node.script(|script| script.grants.push(row("b", 77)));
    b.lost().await;
    assert_eq!(b.loss(), Some(GrantLoss::Superseded));
    assert_eq!((a.loss(), c.loss()), (None, None));
    let unclaimed = session.unclaimed();
    assert_eq!(unclaimed.len(), 1);
    assert_eq!(unclaimed[0].epoch.get(), 77);
    settle().await;
    assert_eq!(pages(&node), 2, "three rows, once");
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_an_unclaimed_grant_is_told_of_it_and_takes_it_over() {
    let (node, session, _grants) = held().await;
    node.script(|script| script.certifies = vec![crate::testing::Answer::Serve]);
    let waiting = {
        let session = session.clone();
        tokio::spawn(async move { session.until_unclaimed().await })
    };
    settle().await;
    assert!(!waiting.is_finished());
    node.script(|script| script.grants.push(row("d", 77)));
    let found = waiting.await.unwrap().unwrap();
    assert_eq!((found.len(), found[0].epoch.get()), (1, 77));
    assert_eq!(session.until_unclaimed().await.unwrap(), found);
    let grant = session.adopt(&found[0].scope).await.unwrap().unwrap();
    assert_eq!(grant.epoch().get(), 77);
    let waiting = session.clone();
    let waiting = tokio::spawn(async move { waiting.until_unclaimed().await });
    settle().await;
    assert!(!waiting.is_finished());
    session.close().await.unwrap();
    let error = waiting.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SessionLost(Loss::Closed));
}

#[tokio::test(start_paused = true)]
async fn waits_and_their_places_are_listed_after_all_pages_of_grants() {
    let (node, session, _grants) = held().await;
    assert!(session.waits().await.unwrap().is_empty());
    node.script(|script| {
        let waits = (7..=9).map(|request_id| v1::SessionWait {
            scope: format!("w{request_id}"),
            request_id,
            ahead: 9 - u32::try_from(request_id).unwrap(),
        });
        script.waits = waits.collect();
    });
    let before = pages(&node);
    let waits = session.waits().await.unwrap();
    let waits = waits.iter().map(|wait| {
        let id = wait.request_id.get();
        (wait.scope.as_str(), id, wait.ahead)
    });
    assert!(waits.eq([("w7", 7, 2), ("w8", 8, 1), ("w9", 9, 0)]));
    assert_eq!(pages(&node), before + 3);

    // Who asks for the grants reads on to the first wait only.
    assert_eq!(session.grants().await.unwrap().len(), 3);
    assert_eq!(pages(&node), before + 5);
}

#[tokio::test(start_paused = true)]
async fn what_is_taken_while_the_listing_is_read_is_not_judged_by_it() {
    let (node, session, [a, b, c]) = held().await;
    let gate = Arc::new(Semaphore::new(0));
    node.script(|script| script.listing_gate = Some(Arc::clone(&gate)));
    end(&node, "b");
    until(|| pages(&node) == 1).await;
    // The listing has been read, without it.
    let d = acquire(&node, &session, "d", 45).await;
    gate.add_permits(100);
    b.lost().await;
    assert_eq!([a.loss(), c.loss(), d.loss()], [None; 3]);
    settle().await;
    assert_eq!([a.loss(), c.loss(), d.loss()], [None; 3]);
    assert!(session.unclaimed().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_is_given_back_while_the_listing_is_read_does_not_come_back_with_it() {
    let (node, session, [a, b, c]) = held().await;
    let gate = Arc::new(Semaphore::new(0));
    node.script(|script| script.listing_gate = Some(Arc::clone(&gate)));
    end(&node, "b");
    until(|| pages(&node) == 1).await;
    // The listing has been read, with it.
    c.release().await.unwrap();
    end(&node, "c");
    gate.add_permits(100);
    b.lost().await;
    assert!(session.unclaimed().is_empty(), "{:?}", session.unclaimed());
    assert_eq!((a.loss(), c.loss()), (None, Some(GrantLoss::Released)));
    settle().await;
    assert_eq!(pages(&node), 1);
}

#[tokio::test(start_paused = true)]
async fn what_was_taken_and_given_up_while_the_listing_is_read_is_still_counted() {
    let (node, session, [_a, b, _c]) = held().await;
    let gate = Arc::new(Semaphore::new(0));
    node.script(|script| {
        script.listing_gate = Some(Arc::clone(&gate));
        script.releases = vec![crate::testing::Answer::Refuse(epoch_core::Reason::Internal)];
    });
    end(&node, "b");
    until(|| pages(&node) == 1).await;
    let d = acquire(&node, &session, "d", 45).await;
    d.release().await.unwrap_err();
    gate.add_permits(100);
    b.lost().await;
    settle().await;
    // The node counts it, and it was not wanted here: both sides agree about it.
    assert!(session.unclaimed().is_empty(), "{:?}", session.unclaimed());
    assert_eq!(pages(&node), 1);
}

#[tokio::test(start_paused = true)]
async fn a_difference_that_no_listing_explains_is_asked_about_ever_more_rarely() {
    let (node, session, [_a, b, _c]) = held().await;
    node.script(|script| script.always_differs = true);
    let keepalives = || node.seen(|script| script.seen_keepalives);
    let (began, page) = (keepalives(), pages(&node));
    until(|| keepalives() == began + 40).await;
    // Two pages a listing: of the 1st, 3rd, 6th, 11th, 20th and 37th answer.
    let listings = (pages(&node) - page) / 2;
    assert!((4..=7).contains(&listings), "{listings}");

    // Another set of grants is asked about at once, and what is gone is lost.
    let page = pages(&node);
    let d = acquire(&node, &session, "d", 45).await;
    end(&node, "b");
    let began = keepalives();
    b.lost().await;
    assert!(keepalives() <= began + 1);
    assert!(pages(&node) > page);
    assert_eq!((b.loss(), d.loss()), (Some(GrantLoss::Superseded), None));
}

#[tokio::test(start_paused = true)]
async fn what_comes_and_goes_while_listings_are_read_does_not_make_them_rare() {
    let (node, session, [_a, b, _c]) = held().await;
    node.script(|script| script.always_differs = true);
    for epoch in 45..50 {
        let gate = Arc::new(Semaphore::new(0));
        let page = pages(&node);
        node.script(|script| script.listing_gate = Some(Arc::clone(&gate)));
        until(|| pages(&node) > page).await;
        // The digest is then what it was.
        let d = acquire(&node, &session, "d", epoch).await;
        d.release().await.unwrap();
        end(&node, "d");
        node.script(|script| script.listing_gate = None);
        gate.add_permits(100);
        until(|| pages(&node) > page + 1).await;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let keepalives = || node.seen(|script| script.seen_keepalives);
    let began = keepalives();
    end(&node, "b");
    b.lost().await;
    assert!(keepalives() <= began + 1);
}
