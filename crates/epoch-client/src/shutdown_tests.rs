//! What is closed when sessions are not needed any more, and within what time.

use std::time::Duration;

use epoch_core::{Holder, Reason};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::testing::{Answer, Fake, paused_client, until};
use crate::{ErrorKind, Loss, Options};

const DAY: Duration = Duration::from_secs(86_400);

fn holder() -> Holder {
    "agent".parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_within_one_deadline_however_many_sessions_nobody_closes() {
    let node = Fake::start().await;
    let client = paused_client(&[&node]);
    let mut opening = JoinSet::new();
    for _ in 0..200 {
        let client = client.clone();
        opening.spawn(async move { client.open_session(&holder(), DAY).await.unwrap() });
    }
    let sessions = opening.join_all().await;
    node.script(|script| script.closes = vec![Answer::Silence]);
    let began = Instant::now();
    let error = client.shutdown().await.unwrap_err();
    // A timer has steps of a millisecond.
    assert!(began.elapsed() <= Options::default().deadline + Duration::from_millis(1));
    assert!(matches!(error.kind(), ErrorKind::Unavailable(_)), "{error}");
    assert!(error.outcome_unknown());
    let closed = Some(Loss::Closed);
    assert!(sessions.iter().all(|session| session.loss() == closed));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_closes_all_sessions_where_each_takes_its_time() {
    let node = Fake::start().await;
    let client = paused_client(&[&node]);
    let mut sessions = Vec::new();
    for _ in 0..200 {
        sessions.push(client.open_session(&holder(), DAY).await.unwrap());
    }
    node.script(|script| script.closes = vec![Answer::Late(1_500)]);
    client.shutdown().await.unwrap();
    assert_eq!(node.seen(|script| script.seen_closes), 200);
}

#[tokio::test(start_paused = true)]
async fn a_session_whose_opening_is_given_up_is_closed() {
    let node = Fake::start().await;
    let client = paused_client(&[&node]);
    node.script(|script| script.opens = vec![Answer::Late(1_000)]);
    let holder = holder();
    let opening = client.open_session(&holder, DAY);
    let given_up = timeout(Duration::from_millis(500), opening).await;
    assert!(given_up.is_err());
    until(|| node.seen(|script| script.seen_closes) == 1).await;
    let opens = node.seen(|script| script.seen_opens.clone());
    assert_eq!(opens.len(), 2);
    assert_eq!(opens[0], opens[1]);
}

#[tokio::test(start_paused = true)]
async fn a_session_whose_opening_has_no_answer_in_time_is_closed_and_a_refused_one_is_not() {
    let node = Fake::start().await;
    let client = paused_client(&[&node]);
    node.script(|script| script.opens = vec![Answer::Silence]);
    let error = client.open_session(&holder(), DAY).await.unwrap_err();
    assert!(error.outcome_unknown());
    node.script(|script| script.opens = vec![Answer::Serve]);
    until(|| node.seen(|script| script.seen_closes) == 1).await;

    let asked = node.seen(|script| script.seen_opens.len());
    let refusal = Answer::Refuse(Reason::SessionLimit);
    node.script(|script| script.opens = vec![refusal]);
    client.open_session(&holder(), DAY).await.unwrap_err();
    tokio::time::sleep(Options::default().deadline * 2).await;
    let seen = node.seen(|script| (script.seen_opens.len(), script.seen_closes));
    assert_eq!(seen, (asked + 1, 1));
}
