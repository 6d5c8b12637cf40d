//! Who waits for a scope is served in the order of coming: past waiters that were killed, and over
//! leaders that were.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use epoch_proto::v1::epoch_service_client::EpochServiceClient;
use epoch_proto::v1::{AcquireRequest, Event};
use epoch_tests::agent::Agent;
use epoch_tests::cluster::{Cluster, number};
use epoch_tests::events::Tail;
use epoch_tests::json_client::{Answer, JsonClient};
use epoch_tests::{clock, wait, waiter};
use serde_json::json;
use tokio::task::JoinSet;
use tonic::transport::Endpoint;

const SCOPE: &str = "queue/scope";
const TTL_SECONDS: u64 = 5;
const TTL: Duration = Duration::from_secs(TTL_SECONDS);
/// For an expiry to be committed, and a grant to be answered: far more than that takes, and less
/// than two TTLs.
const SERVED_WITHIN: Duration = Duration::from_secs(3);

/// A grant that is not given back until the test says so.
struct Holder {
    scope: &'static str,
    session: String,
    epoch: u64,
}

impl Holder {
    async fn take(client: &JsonClient) -> Result<Self> {
        Self::take_scope(client, SCOPE).await
    }

    async fn take_scope(client: &JsonClient, scope: &'static str) -> Result<Self> {
        let session = client.open("holder", "10m").await?;
        let grant = client.acquire(scope, &session, 1).await?.ok()?;
        let epoch = number(&grant, "epoch")?;
        Ok(Self {
            scope,
            session,
            epoch,
        })
    }

    async fn release(self, client: &JsonClient) -> Result<()> {
        let released = client
            .release(self.scope, &self.session, self.epoch)
            .await?;
        let released = released.ok()?;
        ensure!(released["released"] == true, "it was not held: {released}");
        Ok(())
    }
}

/// Starts waiters one after another, each once the one before is in the queue.
async fn line_up(cluster: &Cluster, count: usize) -> Result<(Vec<String>, Vec<Agent>)> {
    let client = cluster.client(cluster.leader().await?)?;
    let (mut holders, mut waiters) = (Vec::new(), Vec::new());
    for number in 1..=count {
        let holder = format!("waiter-{number}");
        let endpoints = cluster.endpoints();
        waiters.push(waiter::start(&endpoints, &holder, SCOPE, TTL_SECONDS).await?);
        holders.push(holder);
        waiter::queue_is(client, SCOPE, &holders).await?;
    }
    Ok((holders, waiters))
}

/// Who was granted the scope, in the order of the log.
fn granted(events: &[Event]) -> Vec<(String, u64)> {
    let granted = events.iter().filter(|event| event.kind == "granted");
    granted
        .map(|event| (event.holder.clone().unwrap_or_default(), event.epoch))
        .collect()
}

/// Whether the epochs of these grants rise.
fn rising(grants: &[(String, u64)]) -> bool {
    grants.is_sorted_by(|(_, earlier), (_, later)| earlier < later)
}

#[tokio::test(flavor = "multi_thread")]
async fn three_dead_waiters_hold_up_the_fourth_for_one_ttl_and_not_for_three() -> Result<()> {
    let mut cluster = Cluster::start().await?;
    let mut tail = Tail::of(&cluster, SCOPE).await?;
    let client = cluster.client(cluster.leader().await?)?;
    let holder = Holder::take(client).await?;
    let (holders, waiters) = line_up(&cluster, 5).await?;
    let mut waiters = waiters.into_iter();
    for _ in 0..3 {
        waiters.next().context("no waiter")?.kill().await?;
    }
    let killed = clock::boot();
    holder.release(client).await?;
    let released = clock::boot();

    let mut fourth = waiters.next().context("no waiter")?;
    let step = fourth.step("granted").await?;
    let granted_at = Duration::from_nanos(number(&step, "granted_ns")?);
    eprintln!(
        "the fourth was granted {:?} after the release, {:?} after three were killed",
        granted_at.saturating_sub(released),
        granted_at.saturating_sub(killed)
    );
    ensure!(
        granted_at.saturating_sub(released) < TTL + SERVED_WITHIN,
        "the dead have held it up for longer than one TTL"
    );
    let mut fifth = waiters.next().context("no waiter")?;
    fourth.tell("release").await?;
    fifth.step("granted").await?;
    fifth.tell("release").await?;
    fifth.step("released").await?;

    let living = &holders[3..];
    let last = |event: &Event| event.kind == "released" && event.holder == living.last().cloned();
    let grants = granted(&tail.until(last).await?);
    ensure!(rising(&grants), "epochs do not rise: {grants:?}");
    let mut served: Vec<&String> = grants.iter().map(|(holder, _)| holder).collect();
    served.retain(|holder| living.contains(holder));
    ensure!(
        served.into_iter().eq(living),
        "the living were not served once each, in order: {grants:?}"
    );
    cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn waiters_are_served_in_order_over_two_leader_kills() -> Result<()> {
    const WAITERS: usize = 8;
    let mut cluster = Cluster::start().await?;
    let mut tail = Tail::of(&cluster, SCOPE).await?;
    let holder = Holder::take(cluster.client(cluster.leader().await?)?).await?;
    let first = holder.epoch;
    let (holders, mut waiters) = line_up(&cluster, WAITERS).await?;

    let leader = cluster.replace_leader().await?;
    waiter::queue_is(cluster.client(leader)?, SCOPE, &holders).await?;
    holder.release(cluster.client(leader)?).await?;
    let mut last = first;
    let mut served = 0;
    for waiter in &mut waiters {
        if served == WAITERS / 2 {
            // While the one before holds it.
            let leader = cluster.replace_leader().await?;
            waiter::queue_is(cluster.client(leader)?, SCOPE, &holders[served + 1..]).await?;
        }
        let step = waiter.step("granted").await?;
        let epoch = number(&step, "epoch")?;
        ensure!(epoch > last, "{} got {epoch} after {last}", waiter.holder());
        last = epoch;
        waiter.tell("release").await?;
        waiter.step("released").await?;
        served += 1;
    }

    let events = tail
        .until(|event| event.kind == "released" && event.epoch == last)
        .await?;
    let grants = granted(&events);
    let order: Vec<&str> = grants.iter().map(|(holder, _)| holder.as_str()).collect();
    let mut expected = vec!["holder"];
    expected.extend(holders.iter().map(String::as_str));
    ensure!(order == expected, "granted in the order {order:?}");
    ensure!(rising(&grants), "epochs do not rise: {grants:?}");
    eprintln!(
        "{served} waiters served in order, the watch reconnected {} times",
        tail.reconnects()
    );
    cluster.unharmed()
}

/// An acquire that waits.
async fn wait_for(client: &JsonClient, scope: &str, session: &str) -> Result<Answer> {
    let body = json!({ "scope": scope, "session_id": session, "request_id": 1, "wait": "1m" });
    client.post("/v1/acquire", &body).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_was_cut_off_keeps_its_place_by_its_request_id_on_another_node() -> Result<()> {
    let mut cluster = Cluster::start().await?;
    let clients = cluster.clients();
    let [one, two, ..] = &clients[..] else {
        anyhow::bail!("no nodes");
    };
    let mut tail = Tail::of(&cluster, SCOPE).await?;
    let holder = Holder::take(one).await?;
    let (cut, behind) = (
        one.open("cut", "10m").await?,
        one.open("behind", "10m").await?,
    );
    let order = ["cut".to_owned(), "behind".to_owned()];

    let (client, session) = (one.clone(), cut.clone());
    let call = tokio::spawn(async move { wait_for(&client, SCOPE, &session).await });
    waiter::queue_is(one, SCOPE, &order[..1]).await?;
    let client = two.clone();
    let second = tokio::spawn(async move { wait_for(&client, SCOPE, &behind).await });
    waiter::queue_is(one, SCOPE, &order).await?;
    // Its connection ends with it.
    call.abort();
    ensure!(
        call.await.is_err(),
        "the call was answered before it was cut off"
    );
    let (client, session) = (two.clone(), cut.clone());
    let again = tokio::spawn(async move { wait_for(&client, SCOPE, &session).await });
    holder.release(one).await?;
    let epoch = number(&again.await??.ok()?, "epoch")?;
    one.release(SCOPE, &cut, epoch).await?.ok()?;
    let last = number(&second.await??.ok()?, "epoch")?;

    let events = tail.until(|event| event.epoch == last).await?;
    let grants = granted(&events);
    let order: Vec<&str> = grants.iter().map(|(holder, _)| holder.as_str()).collect();
    ensure!(
        order == ["holder", "cut", "behind"],
        "granted in the order {order:?}"
    );
    ensure!(rising(&grants), "epochs do not rise: {grants:?}");
    cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_came_of_a_wait_that_was_cut_off_is_kept_by_an_acquire_of_many() -> Result<()> {
    const OTHER: &str = "queue/other";
    let mut cluster = Cluster::start().await?;
    let mut tail = Tail::of(&cluster, OTHER).await?;
    let client = cluster.client(cluster.leader().await?)?.clone();
    let mut sessions = Vec::new();
    let mut holders = Vec::new();
    for scope in [SCOPE, OTHER] {
        holders.push(Holder::take_scope(&client, scope).await?);
        let session = client.open("cut", "10m").await?;
        let (waiting, waiter) = (client.clone(), session.clone());
        let call = tokio::spawn(async move { wait_for(&waiting, scope, &waiter).await });
        waiter::queue_is(&client, scope, &["cut".to_owned()]).await?;
        call.abort();
        sessions.push(session);
    }
    // No call stands behind a wait at a new leader.
    let leader = cluster.replace_leader().await?;
    let client = cluster.client(leader)?;
    let mut holders = holders.into_iter();
    holders.next().context("no holder")?.release(client).await?;
    let asked = json!({ "scopes": [SCOPE], "session_id": sessions[0], "request_id": 1 });
    let answer = client.post("/v1/acquire-many", &asked).await?.ok()?;
    let epoch = number(&answer["grants"][0], "epoch")?;
    // Granted later, and asked for by nobody.
    holders.next().context("no holder")?.release(client).await?;
    let gone = |event: &Event| event.kind == "released" && event.holder.as_deref() == Some("cut");
    tail.until(gone).await?;
    let kept = client.scope(SCOPE).await?;
    ensure!(kept["held"] == true && kept["epoch"] == epoch, "{kept}");
    cluster.unharmed()
}

/// More than one connection between two nodes would carry by default.
const WAITS: u64 = 1_216;

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_many_wait_through_passes_on_other_calls() -> Result<()> {
    let mut cluster = Cluster::start().await?;
    let leader = cluster.leader().await?;
    let through = *cluster.all_but(leader).first().context("no follower")?;
    let (leader, through) = (cluster.client(leader)?, cluster.client(through)?);
    let holder = leader.open("holder", "10m").await?;
    let scopes: Vec<String> = (0..WAITS).map(|number| format!("many/{number}")).collect();
    for (number, scopes) in (0..).zip(scopes.chunks(64)) {
        let first = number * 64 + 1;
        let body = json!({ "scopes": scopes, "session_id": holder, "request_id": first });
        leader.post("/v1/acquire-many", &body).await?.ok()?;
    }
    let session = through.open("waiter", "10m").await?;
    let endpoint = Endpoint::from_shared(through.url().to_owned())?;
    let mut waits = JoinSet::new();
    // As many as a client's connection carries.
    for requests in scopes.chunks(1_000) {
        let channel = endpoint.connect_lazy();
        for scope in requests {
            let request = AcquireRequest {
                scope: scope.clone(),
                session_id: session.clone(),
                request_id: waits.len() as u64 + 1,
                wait: Some(TTL.saturating_mul(12).try_into()?),
                ..AcquireRequest::default()
            };
            let mut client = EpochServiceClient::new(channel.clone());
            waits.spawn(async move { client.acquire(request).await });
        }
    }
    wait::until("all of them wait", async || {
        let listed = leader.get("/v1/sessions", &[("holder", "waiter")]).await?;
        let waiting = number(&listed.ok()?["sessions"][0], "waits")?;
        ensure!(waiting == WAITS, "{waiting} wait");
        Ok(())
    })
    .await?;
    let keepalive = format!("/v1/sessions/{session}/keepalive");
    through
        .impatient()
        .post(&keepalive, &json!({}))
        .await?
        .ok()?;
    through.impatient().open("another", "10m").await?;
    waits.shutdown().await;
    cluster.unharmed()
}
