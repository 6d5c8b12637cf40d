//! Watches after a cursor whose events some nodes have forgotten.

use epoch_core::Reason;

use crate::testing::{Fake, Said, paused_client};
use crate::{ErrorKind, Watch, Watched};

const GONE: Said = Said::Refuse(Reason::WatchCompacted);

async fn three() -> [Fake; 3] {
    [
        Fake::start().await,
        Fake::start().await,
        Fake::start().await,
    ]
}

async fn watch(nodes: &[Fake; 3]) -> Watch {
    let client = paused_client(&nodes.each_ref());
    client
        .watch(Watched::All, "6.0".parse().ok())
        .await
        .unwrap()
}

fn says(node: &Fake, said: Vec<Vec<Said>>) {
    node.script(|script| script.watches = said);
}

fn event() -> Said {
    Said::Events(vec![("granted", "a", "7.1")], "7.1")
}

fn asked(nodes: &[Fake; 3]) -> [usize; 3] {
    nodes
        .each_ref()
        .map(|node| node.seen(|script| script.seen_watches.len()))
}

#[tokio::test(start_paused = true)]
async fn events_that_one_node_has_forgotten_come_from_another() {
    let nodes = three().await;
    // The one that has restarted leads, and so is named by the others.
    for node in &nodes {
        node.script(|script| script.leader = Some(nodes[0].address));
    }
    says(&nodes[0], vec![vec![GONE]]);
    says(&nodes[1], vec![vec![GONE]]);
    says(&nodes[2], vec![vec![event()]]);
    let mut watch = watch(&nodes).await;
    assert_eq!(watch.next().await.unwrap().cursor.to_string(), "7.1");
    assert_eq!(asked(&nodes), [1, 1, 1]);
    let after = nodes[2].seen(|script| script.seen_watches[0].after.clone());
    assert_eq!(after.as_deref(), Some("6.0"));
}

#[tokio::test(start_paused = true)]
async fn they_are_gone_once_every_node_has_said_so_and_each_is_asked_once() {
    let nodes = three().await;
    for node in &nodes {
        says(node, vec![vec![GONE]; 2]);
    }
    let mut watch = watch(&nodes).await;
    for asks in [1, 2] {
        let error = watch.next().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused(Reason::WatchCompacted));
        assert_eq!(asked(&nodes), [asks; 3]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_cursor_that_no_log_comes_to_is_refused_once_every_node_was_asked() {
    let nodes = three().await;
    for node in &nodes {
        // Each looks for a while whether its log gets there.
        let waits = Said::Events(vec![], "6.0");
        says(node, vec![vec![waits.clone(), waits, GONE]; 9]);
    }
    let mut watch = watch(&nodes).await;
    let error = watch.next().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused(Reason::WatchCompacted));
    assert_eq!(asked(&nodes), [1; 3]);
}

#[tokio::test(start_paused = true)]
async fn what_nodes_said_before_the_cursor_moved_does_not_count_any_more() {
    let nodes = three().await;
    says(&nodes[0], vec![vec![GONE], vec![event()]]);
    says(&nodes[1], vec![vec![Said::Events(vec![], "6.5"), GONE]]);
    says(&nodes[2], vec![vec![GONE]]);
    let mut watch = watch(&nodes).await;
    assert_eq!(watch.next().await.unwrap().cursor.to_string(), "7.1");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_cannot_serve_for_now_is_asked_again_before_they_count_as_gone() {
    let nodes = three().await;
    let for_now = vec![Said::Refuse(Reason::NoLeader)];
    says(&nodes[0], vec![vec![GONE]; 9]);
    says(
        &nodes[1],
        vec![for_now.clone(), for_now.clone(), for_now, vec![event()]],
    );
    says(&nodes[2], vec![vec![GONE]; 9]);
    let mut watch = watch(&nodes).await;
    assert_eq!(watch.next().await.unwrap().cursor.to_string(), "7.1");
    assert_eq!(asked(&nodes), [1, 4, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_down_is_tried_a_few_times_and_then_the_others_word_is_enough() {
    let nodes = three().await;
    says(&nodes[0], vec![vec![GONE]; 9]);
    nodes[1].script(|script| script.down = true);
    says(&nodes[2], vec![vec![GONE]; 9]);
    let mut watch = watch(&nodes).await;
    let error = watch.next().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused(Reason::WatchCompacted));
    assert_eq!(asked(&nodes), [1, 0, 1]);
    let connects = nodes[1].seen(|script| script.seen_connects);
    assert!((2..=5).contains(&connects), "{connects}");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_says_nothing_does_not_hold_the_answer_back_for_ever() {
    let nodes = three().await;
    says(&nodes[0], vec![vec![GONE]; 9]);
    // It takes the watch, and says nothing.
    says(&nodes[1], Vec::new());
    says(&nodes[2], vec![vec![GONE]; 9]);
    let mut watch = watch(&nodes).await;
    let error = watch.next().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused(Reason::WatchCompacted));
    assert_eq!(asked(&nodes)[0], 1);
}

#[tokio::test(start_paused = true)]
async fn without_a_node_that_said_so_they_do_not_count_as_gone() {
    let nodes = three().await;
    for node in &nodes {
        node.script(|script| script.down = true);
    }
    let mut watch = watch(&nodes).await;
    let error = watch.next().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable(None));
}
