//! Watches: each event once and in order, whatever breaks.

use std::time::Duration;

use epoch_core::Reason;

use crate::testing::{Fake, Said, client, paused_client};
use crate::{ErrorKind, EventKind, Watch, Watched};

async fn cursors<const N: usize>(watch: &mut Watch) -> [String; N] {
    let mut seen = Vec::new();
    for _ in 0..N {
        seen.push(watch.next().await.unwrap().cursor.to_string());
    }
    seen.try_into().unwrap()
}

fn asked_after(node: &Fake) -> Vec<Option<String>> {
    node.seen(|script| {
        let after = script
            .seen_watches
            .iter()
            .map(|request| request.after.clone());
        after.collect()
    })
}

#[tokio::test]
async fn a_watch_goes_on_between_and_inside_entries_without_gap_or_duplicate() {
    let node = Fake::start().await;
    node.script(|script| {
        script.watches = vec![
            vec![
                Said::Events(
                    vec![("granted", "a", "7.1"), ("released", "a", "8.1")],
                    "8.1",
                ),
                Said::End,
            ],
            // An entry of three events, cut off after the first; and one that was seen before.
            vec![
                Said::Events(
                    vec![("released", "a", "8.1"), ("granted", "b", "9.1")],
                    "9.1",
                ),
                Said::Refuse(Reason::WatchLimit),
            ],
            vec![
                Said::Events(vec![("expired", "b", "9.2")], "9.2"),
                Said::Refuse(Reason::NoLeader),
            ],
            vec![Said::Events(vec![("revoked", "c", "9.3")], "9.3")],
        ];
    });
    let client = client(&[&node], 5_000, 2_000);
    let mut watch = client
        .watch(Watched::All, "6.0".parse().ok())
        .await
        .unwrap();
    let first = watch.next().await.unwrap();
    assert_eq!(
        (first.kind, first.scope.as_str()),
        (EventKind::Granted, "a")
    );
    assert_eq!(cursors(&mut watch).await, ["8.1", "9.1", "9.2", "9.3"]);
    let after = ["6.0", "8.1", "9.1", "9.2"].map(|cursor| Some(cursor.to_owned()));
    assert_eq!(asked_after(&node), after);
}

#[tokio::test]
async fn an_answer_without_events_moves_the_cursor_and_never_back() {
    let node = Fake::start().await;
    node.script(|script| {
        script.watches = vec![
            vec![
                Said::Events(vec![], "5.0"),
                Said::Events(vec![], "12.0"),
                // A node that is behind.
                Said::Events(vec![], "10.0"),
                Said::End,
            ],
            vec![Said::Events(vec![("granted", "a", "13.1")], "13.1")],
        ];
    });
    let client = client(&[&node], 5_000, 2_000);
    // Without a cursor, the first answer says from where.
    let mut watch = client
        .watch(Watched::Prefix("a".to_owned()), None)
        .await
        .unwrap();
    assert_eq!(watch.cursor(), "5.0".parse().ok());
    assert_eq!(cursors(&mut watch).await, ["13.1"]);
    assert_eq!(asked_after(&node), [None, Some("12.0".to_owned())]);
    assert!(node.seen(|script| {
        script
            .seen_watches
            .iter()
            .all(|request| request.prefix == "a")
    }));
}

#[tokio::test]
async fn events_that_are_gone_end_it_with_that_reason() {
    let node = Fake::start().await;
    node.script(|script| script.watches = vec![vec![Said::Refuse(Reason::WatchCompacted)]]);
    let client = client(&[&node], 5_000, 2_000);
    let mut watch = client
        .watch(Watched::All, "6.0".parse().ok())
        .await
        .unwrap();
    let error = watch.next().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused(Reason::WatchCompacted));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_says_nothing_is_left_for_the_next() {
    let (silent, other) = (Fake::start().await, Fake::start().await);
    silent.script(|script| script.watches = vec![vec![Said::Events(vec![], "5.0")]]);
    other.script(|script| {
        script.watches = vec![vec![Said::Events(vec![("granted", "a", "6.1")], "6.1")]];
    });
    let client = paused_client(&[&silent, &other]);
    let mut watch = client.watch(Watched::All, None).await.unwrap();
    assert_eq!(cursors(&mut watch).await, ["6.1"]);
    assert_eq!(asked_after(&other), [Some("5.0".to_owned())]);
}

#[tokio::test]
async fn a_watch_that_is_dropped_while_it_waits_loses_nothing() {
    let node = Fake::start().await;
    node.script(|script| {
        let events = vec![("granted", "a", "6.1"), ("granted", "b", "6.2")];
        script.watches = vec![vec![Said::Events(events, "6.2")]];
    });
    let client = client(&[&node], 5_000, 2_000);
    let mut watch = client
        .watch(Watched::All, "5.0".parse().ok())
        .await
        .unwrap();
    // Polled once each, and dropped where there is no event yet.
    let mut seen = Vec::new();
    while seen.len() < 2 {
        tokio::select! {
            biased;
            event = watch.next() => seen.push(event.unwrap().cursor.to_string()),
            () = tokio::time::sleep(Duration::from_millis(1)) => {}
        }
    }
    assert_eq!(seen, ["6.1", "6.2"]);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_says_nothing_is_left_also_by_who_asks_for_a_moment_at_a_time() {
    let (silent, other) = (Fake::start().await, Fake::start().await);
    silent.script(|script| script.watches = vec![vec![Said::Events(vec![], "5.0")]]);
    other.script(|script| {
        script.watches = vec![vec![Said::Events(vec![("granted", "a", "6.1")], "6.1")]];
    });
    let client = paused_client(&[&silent, &other]);
    let mut watch = client.watch(Watched::All, None).await.unwrap();
    let moment = Duration::from_millis(5);
    let event = loop {
        if let Ok(event) = tokio::time::timeout(moment, watch.next()).await {
            break event.unwrap();
        }
    };
    assert_eq!(event.cursor.to_string(), "6.1");
}

#[tokio::test]
async fn without_a_node_it_says_so_and_may_be_asked_again() {
    let node = Fake::start().await;
    node.script(|script| {
        script.watches = vec![vec![Said::Refuse(Reason::NoLeader)]; 40];
    });
    let client = client(&[&node], 100, 100);
    let mut watch = client
        .watch(Watched::All, "5.0".parse().ok())
        .await
        .unwrap();
    watch.silence_max = Duration::from_millis(100);
    let error = watch.next().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable(Some(Reason::NoLeader)));
    node.script(|script| {
        script.watches = vec![vec![Said::Events(vec![("granted", "a", "6.1")], "6.1")]];
    });
    assert_eq!(cursors(&mut watch).await, ["6.1"]);
}

#[tokio::test]
async fn a_watch_can_be_begun_and_read_in_a_task_of_its_own() {
    let node = Fake::start().await;
    node.script(|script| {
        script.watches = vec![vec![
            Said::Events(vec![], "6.0"),
            Said::Events(vec![("granted", "a", "7.1")], "7.1"),
        ]];
    });
    let client = client(&[&node], 5_000, 2_000);
    let task = tokio::spawn(async move {
        let mut watch = client.watch(Watched::All, None).await.unwrap();
        watch.next().await.unwrap().cursor.to_string()
    });
    assert_eq!(task.await.unwrap(), "7.1");
}
