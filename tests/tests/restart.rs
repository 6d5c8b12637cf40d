//! What is left after processes end: leadership only by a won election, and every grant.

use std::fs::File;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use epoch_tests::binaries::binary;
use epoch_tests::cluster::{Cluster, number, text};
use epoch_tests::command_line::run;
use epoch_tests::grants::{held, take};
use epoch_tests::json_client::JsonClient;
use epoch_tests::{load, wait};
use serde_json::Value;

/// A leadership: a term can have several, one after another, told apart by the node.
type Leadership = (u64, u64);

/// Every leadership that began, in the order of (term, node), as the logs of all lives say. A node
/// that took up its old leadership without an election would be here twice with it.
fn leaderships(cluster: &Cluster) -> Result<Vec<Leadership>> {
    let mut begun = Vec::new();
    for id in cluster.ids() {
        for line in cluster
            .log(id)?
            .iter()
            .filter(|line| line.message() == "leading")
        {
            let term = line
                .number("term")
                .context("a line \"leading\" without a term")?;
            begun.push((term, id));
        }
        let own: Vec<_> = begun.iter().filter(|(_, node)| *node == id).collect();
        ensure!(
            own.is_sorted_by(|a, b| a < b),
            "node {id} went back: {own:?}"
        );
    }
    begun.sort_unstable();
    ensure!(
        begun.is_sorted_by(|a, b| a < b),
        "a leadership began twice: {begun:?}"
    );
    Ok(begun)
}

/// The leadership that a node says it is under.
async fn leadership(client: &JsonClient) -> Result<Leadership> {
    let status = client.cluster().await?;
    Ok((number(&status, "term")?, number(&status, "leader")?))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_leader_leads_only_after_a_new_election() -> Result<()> {
    let mut cluster = Cluster::start().await?;
    let mut seen = Vec::new();
    for _ in 0..4 {
        let leader = cluster.leader().await?;
        seen.push(leadership(cluster.client(leader)?).await?);
        // All at once: nobody else is there to take over, and the old vote is on every disk.
        for id in cluster.ids() {
            cluster.kill(id)?;
        }
        for id in cluster.ids() {
            cluster.start_node(id)?;
        }
        cluster.all_ready().await?;
    }
    let leader = cluster.leader().await?;
    seen.push(leadership(cluster.client(leader)?).await?);
    ensure!(
        seen.is_sorted_by(|a, b| a < b),
        "a leadership outlived a restart: {seen:?}"
    );
    let begun = leaderships(&cluster)?;
    ensure!(
        begun.len() >= seen.len(),
        "the logs name {begun:?}, the nodes said {seen:?}"
    );
    cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_killed_alone_comes_back_without_its_leadership() -> Result<()> {
    let mut cluster = Cluster::start().await?;
    let old = cluster.leader().await?;
    let before = leadership(cluster.client(old)?).await?;
    let new = cluster.replace_leader().await?;
    ensure!(new != old, "a dead node leads");
    cluster.agreed().await?;
    let after = leadership(cluster.client(old)?).await?;
    ensure!(after > before, "{before:?} goes on as {after:?}");
    leaderships(&cluster)?;
    cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn grants_outlive_the_end_of_all_processes_at_once() -> Result<()> {
    let mut cluster = Cluster::start().await?;
    let client = cluster.client(cluster.leader().await?)?.clone();
    let taken = take(&client, "kept", 50).await?;
    let session = client.open("short", "1h").await?;
    let grant = client.acquire("again", &session, 7).await?.ok()?;
    for id in cluster.ids() {
        cluster.kill(id)?;
    }
    for id in cluster.ids() {
        cluster.start_node(id)?;
    }
    cluster.all_ready().await?;
    let client = cluster.client(cluster.leader().await?)?;
    ensure!(
        held(client, "kept/").await? == taken,
        "grants were lost or changed"
    );

    let same = client.acquire("again", &session, 7).await?.ok()?;
    assert_eq!(
        same["epoch"], grant["epoch"],
        "the same request got another epoch"
    );
    assert_eq!(same["position"], grant["position"]);
    let other = client.open("other", "1h").await?;
    let refused = client.acquire("again", &other, 1).await?;
    assert_eq!(
        (refused.status, refused.reason()),
        (409, Some("SCOPE_HELD"))
    );
    let epoch = number(&grant, "epoch")?;
    client.release("again", &session, epoch).await?.ok()?;
    let next = client.acquire("again", &other, 2).await?.ok()?;
    ensure!(
        number(&next, "epoch")? > epoch,
        "the next epoch is not higher"
    );
    // A certificate signed before still verifies: keys outlive processes.
    let verifier = load::verifier(&cluster).await?;
    verifier.verify(text(&grant, "certificate")?, epoch_tests::clock::unix_ms())?;
    cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_told_to_stop_ends_cleanly_and_comes_back() -> Result<()> {
    let mut cluster = Cluster::start().await?;
    let leader = cluster.leader().await?;
    let taken = take(cluster.client(leader)?, "kept", 5).await?;
    let ended = cluster.terminate(leader).await?;
    ensure!(ended.success(), "it ended with {ended}");
    let new = cluster.leader().await?;
    ensure!(
        held(cluster.client(new)?, "kept/").await? == taken,
        "grants were lost"
    );
    cluster.start_node(leader)?;
    cluster.all_ready().await?;
    cluster.agreed().await?;
    cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_in_use_is_refused_by_a_second_process() -> Result<()> {
    let mut cluster = Cluster::start().await?;
    let mut second = tokio::process::Command::new(binary("epochd")?);
    second
        .args(["serve", "--data-dir"])
        .arg(cluster.path().join("node1"));
    for listener in ["--client-listen", "--peer-listen", "--admin-listen"] {
        second.args([listener, "127.0.0.1:0"]);
    }
    let ran = run(&mut second).await?;
    ensure!(
        ran.code == Some(1) && ran.stderr.contains("in use by another process"),
        "{ran:?}"
    );
    cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_cannot_be_written_ends_no_node() -> Result<()> {
    let mut cluster = Cluster::init_nodes(1, &[])?;
    let full = || File::options().write(true).open("/dev/full");
    let serve = |folder: &Path| -> Result<tokio::process::Command> {
        let mut command = tokio::process::Command::new(binary("epochd")?);
        command.args(["serve", "--data-dir"]).arg(folder);
        command.stdout(full()?).stderr(full()?).kill_on_drop(true);
        Ok(command)
    };
    let mut node = serve(&cluster.folder(1))?.spawn()?;
    let client = cluster.client(1)?.impatient();
    wait::until("the node is ready", async || {
        ensure!(node.try_wait()?.is_none(), "it has ended");
        client.get("/readyz", &[]).await?.ok_text()?;
        Ok(())
    })
    .await?;
    take(cluster.client(1)?, "kept", 5).await?;
    ensure!(node.try_wait()?.is_none(), "it has ended");
    node.kill().await?;
    let refused = serve(&cluster.path().join("nothing"))?.status().await?;
    ensure!(refused.code() == Some(1), "it ended with {refused}");
    cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_a_quorum_answers_unavailable_and_recovers() -> Result<()> {
    let mut cluster = Cluster::start().await?;
    let leader = cluster.leader().await?;
    let client = cluster.client(leader)?.impatient();
    let session = client.open("alone", "1h").await?;
    let others = cluster.all_but(leader);
    for id in &others {
        cluster.kill(*id)?;
    }
    let refused = client.acquire("alone", &session, 1).await?;
    ensure!(refused.status == 503, "a minority answered: {refused:?}");
    let reason = refused.reason().context("no reason")?;
    ensure!(
        ["NO_QUORUM", "NO_LEADER"].contains(&reason),
        "another reason: {refused:?}"
    );
    let read = client.get("/v1/scope", &[("scope", "alone")]).await?;
    ensure!(read.status == 503, "a minority answered a read: {read:?}");
    wait::until("the node is not ready", async || {
        let ready = client.get("/readyz", &[]).await?;
        ensure!(ready.status == 503, "it says {}", ready.status);
        Ok(())
    })
    .await?;
    assert_eq!(client.get("/livez", &[]).await?.status, 200);

    for id in &others {
        cluster.start_node(*id)?;
    }
    cluster.all_ready().await?;
    let leader = cluster.leader().await?;
    let same = wait::until("the same request is granted", async || {
        cluster
            .client(leader)?
            .acquire("alone", &session, 1)
            .await?
            .ok()
    });
    let epoch = number(&same.await?, "epoch")?;
    let again: Value = cluster
        .client(leader)?
        .acquire("alone", &session, 1)
        .await?
        .ok()?;
    assert_eq!(number(&again, "epoch")?, epoch);
    cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_leader_gives_nothing_away_when_it_goes_on() -> Result<()> {
    let mut cluster = Cluster::start().await?;
    let old = cluster.leader().await?;
    let session = cluster.client(old)?.open("holder", "5s").await?;
    let grant = cluster
        .client(old)?
        .acquire("paused", &session, 1)
        .await?
        .ok()?;
    let before = leadership(cluster.client(old)?).await?;
    cluster.pause(old)?;
    let new = cluster.leader_among(&cluster.all_but(old)).await?;
    // The session lives on under the new leader while it is renewed there.
    let client = cluster.client(new)?;
    let path = format!("/v1/sessions/{session}/keepalive");
    client.post(&path, &serde_json::json!({})).await?.ok()?;
    cluster.resume(old)?;
    client.post(&path, &serde_json::json!({})).await?.ok()?;
    cluster.agreed().await?;
    let state = cluster.client(old)?.scope("paused").await?;
    assert_eq!(
        state["epoch"], grant["epoch"],
        "the pause cost the holder its grant"
    );
    leaderships(&cluster)?;
    ensure!(
        leadership(cluster.client(old)?).await? > before,
        "the paused leader went on leading"
    );
    cluster.unharmed()
}
