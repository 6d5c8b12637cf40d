//! Watches: over killed and restarted leaders each tells of every event, once, in the order of the
//! log.

#![expect(clippy::print_stderr, reason = "how it went has to be seen")]

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use epoch_client::Client;
use epoch_proto::v1::{CloseRequest, Event, OpenRequest};
use epoch_tests::cluster::Cluster;
use epoch_tests::events::Tail;
use epoch_tests::setting::setting;
use epoch_tests::watchers::Watchers;
use epoch_tests::{clock, scale, wait};
use tokio::sync::watch;
use tokio::task::JoinSet;

const PREFIX: &str = "busy/";
/// Its first event is the last that watches wait for.
const LAST_SCOPE: &str = "busy/last";
/// Its holder's session expires.
const LEFT_SCOPE: &str = "busy/left";
const WATCHERS: u64 = 1_000;
const CALLERS: u64 = 8;
/// Between two grants of one caller: a thousand watches multiply each.
const PAUSE: Duration = Duration::from_millis(20);
/// Before each kill, and after the last.
const GRANTS_BETWEEN: u64 = 50;
/// A watch keeps nothing but its place: far more than a node takes.
const RESIDENT_BYTES_MAX: u64 = 256 << 20;

/// What was done to each scope, in order, as the one who did it knows it.
type Done = BTreeMap<String, Vec<(String, u64)>>;

/// Takes and gives back scopes of its own until it is stopped. The last is given
/// back by closing the session.
async fn call(
    client: Client,
    number: u64,
    prefix: &str,
    count: watch::Sender<u64>,
    stopped: watch::Receiver<bool>,
) -> Result<Done> {
    let mut done = Done::new();
    let mut note = |scope: &str, kind: &str, epoch: u64| {
        let done = done.entry(scope.to_owned()).or_default();
        done.push((kind.to_owned(), epoch));
    };
    let session = scale::open(&client, &format!("caller-{number}")).await?;
    for request_id in 1.. {
        let scope = format!("{prefix}{number}/{}", request_id % 5);
        let epoch = scale::acquire(&client, &scope, &session, request_id).await?;
        note(&scope, "granted", epoch);
        count.send_modify(|count| *count += 1);
        if *stopped.borrow() {
            let session_id = session.clone();
            client.close(CloseRequest { session_id }).await?;
            note(&scope, "released", epoch);
            break;
        }
        scale::release(&client, &scope, &session, epoch).await?;
        note(&scope, "released", epoch);
        tokio::time::sleep(PAUSE).await;
    }
    Ok(done)
}

/// Waits for so many grants more.
async fn more(count: &watch::Sender<u64>) -> Result<()> {
    let mut count = count.subscribe();
    let enough = *count.borrow() + GRANTS_BETWEEN;
    let counted = count.wait_for(|count| *count >= enough);
    tokio::time::timeout(wait::BOUND, counted).await??;
    Ok(())
}

/// Takes a scope in a session that nobody keeps alive.
async fn leave(client: &Client) -> Result<u64> {
    let request = OpenRequest {
        holder: "gone".to_owned(),
        ttl: Some(Duration::from_secs(1).try_into()?),
        ..OpenRequest::default()
    };
    let session = client.open(request).await?.session_id;
    scale::acquire(client, LEFT_SCOPE, &session, 1).await
}

/// What happened to each scope, as a watch tells it.
fn told(events: &[Event]) -> Done {
    let mut told = Done::new();
    for event in events {
        let told = told.entry(event.scope.clone()).or_default();
        told.push((event.kind.clone(), event.epoch));
    }
    told
}

/// The resident memory of every node, which has to be bounded.
fn memory(cluster: &Cluster, when: &str) -> Result<()> {
    let mut resident = Vec::new();
    for id in cluster.running() {
        let bytes = cluster.resident_bytes(id)?;
        ensure!(
            bytes < RESIDENT_BYTES_MAX,
            "node {id} takes {bytes} bytes {when}"
        );
        resident.push(format!("{} MiB", bytes >> 20));
    }
    eprintln!("the nodes take {} {when}", resident.join(", "));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_watch_tells_of_every_event_once_over_leader_kills() -> Result<()> {
    let mut cluster = Cluster::start().await?;
    let watches = usize::try_from(setting("EPOCH_WATCHERS", WATCHERS)?)?;
    memory(&cluster, "without watches")?;
    let mut tail = Tail::of(&cluster, PREFIX).await?;
    let watching = Watchers::begin(&cluster, watches, PREFIX)
        .await?
        .read(LAST_SCOPE);
    memory(&cluster, &format!("with {watches} watches"))?;

    let client = scale::client(&cluster.endpoints())?;
    let count = watch::Sender::new(0);
    let (stop, stopped) = watch::channel(false);
    let left = leave(&client).await?;
    let mut calling = JoinSet::new();
    for number in 0..CALLERS {
        calling.spawn(call(
            client.clone(),
            number,
            PREFIX,
            count.clone(),
            stopped.clone(),
        ));
    }
    // Of no concern to the watches.
    let other = tokio::spawn(call(
        client.clone(),
        CALLERS,
        "other/",
        watch::Sender::new(0),
        stopped,
    ));
    for _ in 0..setting("EPOCH_ROUNDS", 2)? {
        more(&count).await?;
        let killed = clock::boot();
        let new = cluster.replace_leader().await?;
        eprintln!(
            "node {new} leads, and all are up, after {:?}",
            clock::boot().saturating_sub(killed)
        );
    }
    more(&count).await?;
    stop.send_replace(true);
    let mut done = Done::new();
    while let Some(calls) = calling.join_next().await {
        done.append(&mut calls??);
    }
    ensure!(!other.await??.is_empty(), "nothing else has happened");
    wait::until("the session that was left has expired", async || {
        let state = cluster
            .client(cluster.leader().await?)?
            .scope(LEFT_SCOPE)
            .await?;
        ensure!(state["held"] == false, "it is held: {state}");
        Ok(())
    })
    .await?;
    let ended = ["granted", "expired"].map(|kind| (kind.to_owned(), left));
    done.insert(LEFT_SCOPE.to_owned(), ended.to_vec());
    let session = scale::open(&client, "last").await?;
    let epoch = scale::acquire(&client, LAST_SCOPE, &session, 1).await?;
    done.insert(LAST_SCOPE.to_owned(), vec![("granted".to_owned(), epoch)]);

    let events = tail.until(|event| event.scope == LAST_SCOPE).await?;
    let told = told(&events);
    for (scope, done) in &done {
        let told = told.get(scope).context("no event")?;
        ensure!(
            told == done,
            "{scope}: {done:?} was done, and the watch tells of {told:?}"
        );
    }
    ensure!(told.len() == done.len(), "the watch tells of other scopes");
    let before = clock::boot();
    let reconnects = watching.saw(&events).await?;
    eprintln!(
        "{} events were told {watches} times, the last after {:?}, over {reconnects} reconnects",
        events.len(),
        clock::boot().saturating_sub(before)
    );
    memory(&cluster, "in the end")?;
    cluster.unharmed()
}
