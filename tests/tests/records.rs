//! Records: the cluster takes a write from the current grant only, and each intent once.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use epoch_tests::agent::Agent;
use epoch_tests::cluster::{Cluster, number, text};
use epoch_tests::json_client::{Answer, JsonClient};
use epoch_tests::waiter;
use serde_json::{Value, json};
use tokio::task::JoinSet;

const TTL_SECONDS: u64 = 2;
const PUTS: usize = 50;

/// A session with a scope, from the test itself.
struct Writer {
    scope: String,
    session: String,
    epoch: u64,
}

impl Writer {
    /// Waits for the scope.
    async fn take(client: &JsonClient, scope: &str) -> Result<Self> {
        let session = client.open("successor", "10m").await?;
        let acquire = json!({
            "scope": scope, "session_id": session, "request_id": 1, "wait": "1m",
        });
        let grant = client.post("/v1/acquire", &acquire).await?.ok()?;
        let epoch = number(&grant, "epoch")?;
        let scope = scope.to_owned();
        Ok(Self {
            scope,
            session,
            epoch,
        })
    }

    /// Writes the record; `more` is an intent, or an expected revision.
    async fn put(&self, client: &JsonClient, value: &str, more: &Value) -> Result<Answer> {
        let mut body = json!({
            "epoch": self.epoch,
            "session_id": self.session,
            "value": BASE64_URL_SAFE_NO_PAD.encode(value),
        });
        if let (Some(body), Some(more)) = (body.as_object_mut(), more.as_object()) {
            body.extend(more.clone());
        }
        let path = format!("/v1/record?scope={}", self.scope);
        let body = body.to_string().into_bytes();
        client
            .raw("PUT", &path, Some("application/json"), body)
            .await
    }
}

/// A record's value and revision.
async fn record(client: &JsonClient, scope: &str) -> Result<(String, u64)> {
    let record = client.get("/v1/record", &[("scope", scope)]).await?.ok()?;
    let value = BASE64_URL_SAFE_NO_PAD.decode(text(&record, "value")?)?;
    Ok((String::from_utf8(value)?, number(&record, "revision")?))
}

/// A process that holds the scope and has written its record; the revision.
async fn first_writer(cluster: &Cluster, scope: &str) -> Result<(Agent, u64)> {
    let mut writer = waiter::start(&cluster.endpoints(), "first", scope, TTL_SECONDS).await?;
    writer.step("granted").await?;
    writer.tell("put from the first").await?;
    let revision = number(&writer.step("written").await?, "revision")?;
    Ok((writer, revision))
}

/// The process wakes up in the middle of a write, and is refused.
async fn wakes_and_is_refused(writer: &mut Agent) -> Result<()> {
    // Read at once when it goes on.
    writer.tell("put too late").await?;
    writer.resume()?;
    writer.step("lost").await?;
    is_refused(writer).await
}

async fn is_refused(writer: &mut Agent) -> Result<()> {
    let refused = writer.step("refused").await?;
    let reason = refused["reason"].as_str();
    ensure!(
        matches!(reason, Some("SESSION_EXPIRED" | "EPOCH_SUPERSEDED")),
        "refused otherwise: {refused}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_that_was_replaced_while_it_slept_is_refused_at_once() -> Result<()> {
    let mut cluster = Cluster::start().await?;
    let client = cluster.client(cluster.leader().await?)?;
    let (quiet, busy) = ("records/quiet", "records/busy");
    let (mut quiet_writer, quiet_revision) = first_writer(&cluster, quiet).await?;
    let (mut busy_writer, _) = first_writer(&cluster, busy).await?;
    quiet_writer.pause().await?;
    busy_writer.pause().await?;
    let (quiet_next, busy_next) =
        tokio::try_join!(Writer::take(client, quiet), Writer::take(client, busy))?;

    // The next holder has read, and written nothing yet.
    let found = record(client, quiet).await?;
    ensure!(
        found == ("from the first".to_owned(), quiet_revision),
        "found {found:?}"
    );
    wakes_and_is_refused(&mut quiet_writer).await?;
    let found = record(client, quiet).await?;
    ensure!(
        found == ("from the first".to_owned(), quiet_revision),
        "found {found:?}"
    );

    // It has written.
    ensure!(
        record(client, busy).await?.0 == "from the first",
        "the value is lost"
    );
    let put = busy_next
        .put(client, "from the next", &json!({}))
        .await?
        .ok()?;
    let revision = number(&put, "revision")?;
    wakes_and_is_refused(&mut busy_writer).await?;
    let found = record(client, busy).await?;
    ensure!(
        found == ("from the next".to_owned(), revision),
        "found {found:?}"
    );

    // And once more, after the first refusal.
    let put = quiet_next
        .put(client, "from the next", &json!({}))
        .await?
        .ok()?;
    let revision = number(&put, "revision")?;
    ensure!(
        revision > quiet_revision,
        "{revision} came after {quiet_revision}"
    );
    quiet_writer.tell("put again").await?;
    is_refused(&mut quiet_writer).await?;
    let found = record(client, quiet).await?;
    ensure!(
        found == ("from the next".to_owned(), revision),
        "found {found:?}"
    );
    cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_puts_of_one_intent_at_once_are_one_revision() -> Result<()> {
    let mut cluster = Cluster::start().await?;
    let clients = cluster.clients();
    let client = clients.first().context("no node")?;
    let writer = Arc::new(Writer::take(client, "records/intent").await?);
    let mut putting = JoinSet::new();
    for client in clients.iter().cycle().take(PUTS) {
        let (client, writer) = (client.clone(), Arc::clone(&writer));
        putting.spawn(async move {
            let intent = json!({ "intent_id": "pay-invoice-7" });
            writer.put(&client, "paid", &intent).await?.ok()
        });
    }
    let (mut revisions, mut done) = (Vec::new(), 0);
    while let Some(answer) = putting.join_next().await {
        let answer = answer??;
        revisions.push(number(&answer, "revision")?);
        done += usize::from(answer["replayed"] == false);
    }
    let found = record(client, &writer.scope).await?;
    ensure!(revisions.len() == PUTS, "{} answers", revisions.len());
    ensure!(
        revisions.iter().all(|revision| *revision == found.1),
        "{found:?}, after the answers {revisions:?}"
    );
    ensure!(
        done == 1,
        "{done} of {PUTS} puts of one intent had an effect"
    );

    let intent = json!({ "intent_id": "pay-invoice-7" });
    let reused = writer.put(client, "paid twice", &intent).await?;
    ensure!(reused.reason() == Some("INTENT_REUSED"), "{reused:?}");
    ensure!(
        record(client, &writer.scope).await? == found,
        "it was written"
    );
    cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_put_at_another_revision_than_the_expected_one_is_refused() -> Result<()> {
    let mut cluster = Cluster::start().await?;
    let clients = cluster.clients();
    let client = clients.first().context("no node")?;
    let writer = Writer::take(client, "records/revision").await?;
    let at = |revision: u64| json!({ "expected_revision": revision });
    let first = writer.put(client, "one", &at(0)).await?.ok()?;
    let first = number(&first, "revision")?;
    let second = writer.put(client, "two", &at(first)).await?.ok()?;
    let second = number(&second, "revision")?;
    ensure!(second > first, "{second} came after {first}");
    for (wrong, client) in [0, first, second + 1].into_iter().zip(&clients) {
        let refused = writer.put(client, "three", &at(wrong)).await?;
        ensure!(
            (refused.status, refused.reason()) == (412, Some("REVISION_MISMATCH")),
            "at {wrong}: {refused:?}"
        );
        let found = record(client, &writer.scope).await?;
        ensure!(found == ("two".to_owned(), second), "found {found:?}");
    }
    cluster.unharmed()
}
