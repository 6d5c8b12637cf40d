//! The loss comes before the cluster can hand the scopes on, counted from when the last
//! acknowledged message was sent.

use std::time::Duration;

use epoch_core::{Reason, Scope};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::testing::{Answer, Fake, Suspend, paused_client, suspendable_client, until};
use crate::{Client, ErrorKind, GrantLoss, Loss, RecordOptions, Session};

const TTL: Duration = Duration::from_secs(9);

fn scope() -> Scope {
    "reports/note".parse().unwrap()
}

async fn open_for(client: &Client, ttl: Duration) -> Session {
    let holder = "agent".parse().unwrap();
    client.open_session(&holder, ttl).await.unwrap()
}

/// When the keepalives of a session came.
fn asked(node: &Fake, session: &Session) -> Vec<Instant> {
    let id = session.id().to_string();
    node.seen(|script| {
        let times = script.keepalive_times.iter();
        let of_it = times.filter(|(session, _)| *session == id);
        of_it.map(|(_, at)| *at).collect()
    })
}

fn answer(node: &Fake, session: &Session, answers: Vec<Answer>) {
    let id = session.id().to_string();
    node.script(|script| {
        script.keepalives_of.insert(id, answers);
    });
}

/// Waits for the loss, and returns when it came.
async fn lost_at(session: &Session) -> Instant {
    session.lost().await;
    assert_eq!(session.loss(), Some(Loss::Lapsed));
    Instant::now()
}

#[tokio::test(start_paused = true)]
async fn a_session_is_lost_within_a_ttl_of_the_last_keepalive_that_was_acknowledged() {
    let node = Fake::start().await;
    let client = paused_client(&[&node]);
    for served in 0..4 {
        let session = open_for(&client, TTL).await;
        let mut sent = vec![Instant::now()];
        let mut answers = vec![Answer::Serve; served];
        answers.push(Answer::Silence);
        answer(&node, &session, answers);
        let lost = lost_at(&session).await;
        sent.extend(asked(&node, &session));
        assert!(lost <= sent[served] + TTL);
        assert!(lost > sent[served] + TTL / 2, "nor much too early");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_late_counts_from_its_own_sending() {
    let node = Fake::start().await;
    let session = open_for(&paused_client(&[&node]), TTL).await;
    answer(&node, &session, vec![Answer::Late(1_900), Answer::Silence]);
    let lost = lost_at(&session).await;
    let sent = asked(&node, &session)[0];
    assert!(lost <= sent + TTL);
    assert!(lost > sent + TTL / 2, "it counts");
}

#[tokio::test(start_paused = true)]
async fn the_answer_to_a_keepalive_that_was_given_up_counts_from_its_own_sending() {
    for others_served in [true, false] {
        let nodes = (Fake::start().await, Fake::start().await);
        let client = paused_client(&[&nodes.0, &nodes.1]);
        // Where another session is served all the while, the same node is asked again.
        let other = match others_served {
            true => Some(open_for(&client, Duration::from_secs(1)).await),
            false => None,
        };
        let session = open_for(&client, TTL).await;
        answer(
            &nodes.0,
            &session,
            vec![Answer::Late(2_500), Answer::Silence],
        );
        answer(&nodes.1, &session, vec![Answer::Silence]);
        let lost = lost_at(&session).await;
        let mut sent = asked(&nodes.0, &session);
        sent.extend(asked(&nodes.1, &session));
        sent.sort_unstable();
        let late = sent[0] + Duration::from_millis(2_500);
        assert!(sent.len() >= 3 && sent[1] < late, "it was given up");
        assert!(lost <= sent[0] + TTL);
        assert!(lost > sent[0] + TTL * 9 / 10, "it counts");
        assert!(other.is_none_or(|other| other.loss().is_none()));
    }
}

/// Whether a client of nodes that answer so much later keeps so many sessions for ten TTLs.
async fn keeps(sessions: usize, ttl_ms: u64, round_trip_ms: u64) -> bool {
    let nodes = [
        Fake::start().await,
        Fake::start().await,
        Fake::start().await,
    ];
    for node in &nodes {
        node.script(|script| {
            // One that takes longer than an attempt is not opened at all.
            script.opens = vec![Answer::Late(round_trip_ms.min(1_900))];
            script.keepalives = vec![Answer::Late(round_trip_ms)];
        });
    }
    let client = paused_client(&[&nodes[0], &nodes[1], &nodes[2]]);
    let mut opening = JoinSet::new();
    for _ in 0..sessions {
        let client = client.clone();
        opening.spawn(async move { open_for(&client, Duration::from_millis(ttl_ms)).await });
    }
    let sessions = opening.join_all().await;
    tokio::time::sleep(Duration::from_millis(10 * ttl_ms)).await;
    sessions.iter().all(|session| session.loss().is_none())
}

#[tokio::test(start_paused = true)]
async fn round_trips_of_up_to_a_third_of_the_ttl_lose_nothing() {
    for sessions in [1, 100] {
        for (ttl_ms, round_trips) in [
            (1_000, [20, 150, 250, 330]),
            (3_000, [60, 540, 900, 990]),
            (10_000, [1_000, 1_700, 2_600, 3_300]),
        ] {
            for round_trip_ms in round_trips {
                assert!(
                    keeps(sessions, ttl_ms, round_trip_ms).await,
                    "{sessions} sessions of {ttl_ms} ms at {round_trip_ms} ms"
                );
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_opened_at_the_second_attempt_counts_from_the_first() {
    let node = Fake::start().await;
    node.script(|script| {
        script.opens = vec![Answer::Silence, Answer::Serve];
        script.keepalives = vec![Answer::Silence];
    });
    let client = paused_client(&[&node]);
    let first = Instant::now();
    let session = open_for(&client, TTL).await;
    assert_eq!(node.seen(|script| script.seen_opens.len()), 2);
    assert!(lost_at(&session).await <= first + TTL);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_took_longer_to_open_than_it_lasts_is_an_error() {
    let node = Fake::start().await;
    node.script(|script| script.opens = vec![Answer::Late(1_500)]);
    let client = paused_client(&[&node]);
    let holder = "agent".parse().unwrap();
    let opened = client.open_session(&holder, Duration::from_secs(1)).await;
    let error = opened.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SessionLost(Loss::Lapsed));
}

#[tokio::test(start_paused = true)]
async fn keepalives_find_the_node_that_serves_before_the_ttl_is_up() {
    let (down, refusing, serving) = (
        Fake::start().await,
        Fake::start().await,
        Fake::start().await,
    );
    let session = open_for(&paused_client(&[&down, &refusing, &serving]), TTL).await;
    down.script(|script| script.keepalives = vec![Answer::Silence]);
    refusing.script(|script| script.keepalives = vec![Answer::Refuse(Reason::NoLeader)]);
    tokio::select! {
        () = tokio::time::sleep(TTL * 4) => {}
        () = session.lost() => panic!("{:?}", session.loss()),
    }
    assert!(asked(&serving, &session).len() > 6);
}

#[tokio::test(start_paused = true)]
async fn while_no_node_can_be_reached_they_are_asked_at_a_bounded_pace() {
    let (first, second) = (Fake::start().await, Fake::start().await);
    let nodes = [&first, &second];
    for node in nodes {
        node.script(|script| script.down = true);
    }
    // Opened while one answers; then its connection breaks with every keepalive.
    first.script(|script| {
        script.down = false;
        script.keepalives = vec![Answer::Refuse(Reason::NoLeader)];
    });
    let session = open_for(&paused_client(&nodes), TTL).await;
    session.lost().await;
    let asked = asked(&first, &session).len() + second.seen(|script| script.seen_connects);
    // Pauses grow from 20 ms to 100 ms at least.
    assert!((4..120).contains(&asked), "{asked}");
}

#[tokio::test(start_paused = true)]
async fn after_a_suspend_beyond_the_ttl_the_loss_is_told_at_once_and_nothing_is_written() {
    let node = Fake::start().await;
    let suspend = Suspend::default();
    let client = suspendable_client(&[&node], &suspend);
    let (session, other) = (open_for(&client, TTL).await, open_for(&client, TTL).await);
    let grant = session.acquire(&scope()).await.unwrap();
    let waiting = tokio::spawn({
        let grant = grant.clone();
        async move { grant.lost().await }
    });
    tokio::time::sleep(TTL).await;
    assert_eq!(grant.loss(), None);

    suspend.pass(TTL);
    // No task has run since: whoever asks is told, also who waits from now on.
    let at_once = Duration::ZERO;
    assert!(timeout(at_once, other.lost()).await.is_ok());
    assert!(timeout(at_once, grant.lost()).await.is_ok());
    assert_eq!(session.loss(), Some(Loss::Lapsed));
    assert_eq!(grant.loss(), Some(GrantLoss::Session(Loss::Lapsed)));
    let written = grant.put_record("late", RecordOptions::default()).await;
    let lost = ErrorKind::SessionLost(Loss::Lapsed);
    assert_eq!(written.unwrap_err().kind(), lost);
    assert!(node.seen(|script| script.seen_puts.is_empty()));
    waiting.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn after_a_suspend_the_waiting_are_told_within_a_tick_though_nobody_asks() {
    let node = Fake::start().await;
    let suspend = Suspend::default();
    let session = open_for(&suspendable_client(&[&node], &suspend), TTL).await;
    let token = session.lost_token();
    // The background task waits for the first keepalive's time.
    tokio::time::sleep(Duration::from_millis(1)).await;
    suspend.pass(TTL);
    let resumed = Instant::now();
    token.cancelled().await;
    assert!(resumed.elapsed() <= Duration::from_millis(250));
}

#[tokio::test(start_paused = true)]
async fn an_answer_from_before_a_suspend_does_not_revive_the_session() {
    let node = Fake::start().await;
    let suspend = Suspend::default();
    let session = open_for(&suspendable_client(&[&node], &suspend), TTL).await;
    answer(
        &node,
        &session,
        vec![Answer::Serve, Answer::Late(20), Answer::Serve],
    );
    until(|| asked(&node, &session).len() == 2).await;
    // Longer than what was left of the lease, and not longer than that answer would make it. It
    // comes before anybody has looked at the clock.
    suspend.pass(TTL * 3 / 4);
    tokio::time::sleep(TTL).await;
    assert_eq!(session.loss(), Some(Loss::Lapsed));
    assert_eq!(
        asked(&node, &session).len(),
        2,
        "and it is not asked for again"
    );
}

#[tokio::test(start_paused = true)]
async fn a_suspend_that_ends_in_time_loses_nothing() {
    let node = Fake::start().await;
    let suspend = Suspend::default();
    let session = open_for(&suspendable_client(&[&node], &suspend), TTL).await;
    for _ in 0..5 {
        tokio::time::sleep(TTL / 2).await;
        suspend.pass(TTL / 2);
    }
    tokio::time::sleep(TTL / 2).await;
    assert_eq!(session.loss(), None);
}

#[tokio::test(start_paused = true)]
async fn what_is_lost_stays_lost_and_nothing_is_opened_or_acquired_anew() {
    let node = Fake::start().await;
    let session = open_for(&paused_client(&[&node]), TTL).await;
    let grant = session.acquire(&scope()).await.unwrap();
    answer(
        &node,
        &session,
        vec![Answer::Refuse(Reason::SessionExpired), Answer::Serve],
    );
    session.lost().await;
    tokio::time::sleep(TTL * 4).await;
    let lost = ErrorKind::SessionLost(Loss::Expired);
    assert_eq!(session.loss(), Some(Loss::Expired));
    assert_eq!(grant.loss(), Some(GrantLoss::Session(Loss::Expired)));
    assert_eq!(grant.certify().await.unwrap_err().kind(), lost);
    assert_eq!(session.acquire(&scope()).await.unwrap_err().kind(), lost);
    assert_eq!(session.adopt(&scope()).await.unwrap_err().kind(), lost);
    assert_eq!(asked(&node, &session).len(), 1);
    let calls = |script: &crate::testing::Script| {
        (
            script.seen_opens.len(),
            script.seen_acquires.len(),
            script.seen_certifies,
            script.seen_pages,
        )
    };
    assert_eq!(node.seen(calls), (1, 1, 0, 0));
}
