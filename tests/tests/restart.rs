//! What is left after processes end: leadership only by a won election, and every grant.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use epoch_tests::binaries::binary;
use epoch_tests::cluster::{Cluster, number, text};
use epoch_tests::command_line::run;
use epoch_tests::json_client::JsonClient;
use epoch_tests::{folder, load, wait};
use serde_json::Value;

/// Takes `count` scopes in a session that outlives the test; scope to epoch.
async fn take(client: &JsonClient, prefix: &str, count: u64) -> Result<BTreeMap<String, u64>> {
    let session = client.open("keeper", "1h").await?;
    let mut held = BTreeMap::new();
    for request_id in 1..=count {
        let scope = format!("{prefix}/{request_id}");
        let grant = client.acquire(&scope, &session, request_id).await?.ok()?;
        held.insert(scope, number(&grant, "epoch")?);
    }
    Ok(held)
}

async fn held(client: &JsonClient, prefix: &str) -> Result<BTreeMap<String, u64>> {
    let rows = client.scopes(prefix, 1_000).await?;
    rows.iter()
        .map(|row| Ok((text(row, "scope")?.to_owned(), number(row, "epoch")?)))
        .collect()
}

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

/// A cluster with a killed follower that needs a snapshot.
struct Lagging {
    cluster: Cluster,
    leader: u64,
    follower: u64,
    /// The index that it has at most.
    behind: u64,
    /// Scope to epoch.
    taken: BTreeMap<String, u64>,
}

async fn lagging() -> Result<Lagging> {
    // So small that some dozens of grants call for a snapshot.
    let mut cluster = Cluster::start_with(&["--snapshot-log-bytes", "4096"]).await?;
    let leader = cluster.leader().await?;
    let follower = cluster
        .ids()
        .into_iter()
        .find(|id| *id != leader)
        .context("no follower")?;
    let client = cluster.client(leader)?.clone();
    let mut taken = take(&client, "before", 20).await?;
    cluster.kill(follower)?;
    let behind = number(&client.cluster().await?, "applied")?;
    // A node keeps two snapshots and purges what the older one covers. Once both have been
    // replaced by later ones, the log has been purged past where the dead node stopped.
    let mut rounds = 0;
    let mut past = behind;
    for _ in 0..2 {
        past = wait::until("the leader has made two snapshots more", async || {
            rounds += 1;
            taken.extend(take(&client, &format!("round-{rounds}"), 20).await?);
            let kept = snapshots(&cluster, leader)?;
            let [older, newer] = kept[..] else {
                bail!("it has {kept:?}")
            };
            ensure!(older > past, "it has {kept:?}, {past} is behind");
            Ok(newer)
        })
        .await?;
    }
    Ok(Lagging {
        cluster,
        leader,
        follower,
        behind,
        taken,
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_whose_snapshot_has_gone_bad_makes_another_for_a_node_that_lags() -> Result<()> {
    let Lagging {
        mut cluster,
        leader,
        follower,
        ..
    } = lagging().await?;
    let newest = folder::files(&cluster.folder(leader).join("snapshots"))?;
    let newest = newest.iter().max().context("no snapshot")?;
    let mut bytes = std::fs::read(newest)?;
    let middle = bytes.len() / 2;
    *bytes.get_mut(middle).context("an empty file")? ^= 1;
    std::fs::write(newest, bytes)?;
    cluster.start_node(follower)?;
    cluster.all_ready().await?;
    cluster.agreed().await?;
    let log = cluster.log(leader)?;
    ensure!(
        log.iter()
            .any(|line| line.message() == "the newest snapshot has gone bad: making another"),
        "it was not found out"
    );
    cluster.unharmed()?;
    cluster.stop_and_compare().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_lags_behind_the_log_is_caught_up_by_a_snapshot() -> Result<()> {
    let Lagging {
        mut cluster,
        follower: lagging,
        behind,
        taken,
        ..
    } = lagging().await?;
    cluster.start_node(lagging)?;
    cluster.all_ready().await?;
    cluster.agreed().await?;
    let installed = cluster.log(lagging)?;
    let mut installed = installed
        .iter()
        .filter(|line| line.message() == "snapshot installed");
    let index = installed.next().and_then(|line| line.number("index"));
    ensure!(
        index.is_some_and(|index| index > behind),
        "no snapshot installed: {index:?}"
    );
    // It has the state, not only the index: make it lead, and ask it.
    for _ in 0..20 {
        if cluster.leader().await? == lagging {
            break;
        }
        cluster.replace_leader().await?;
    }
    ensure!(
        cluster.leader().await? == lagging,
        "the node that was caught up never led"
    );
    let client = cluster.client(lagging)?;
    let found = held(client, "").await?;
    ensure!(
        found == taken,
        "the snapshot has {} grants of {}",
        found.len(),
        taken.len()
    );
    cluster.unharmed()?;
    // All of it, not only what a list tells.
    cluster.stop_and_compare().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_states_are_gone_fetches_one_from_a_peer() -> Result<()> {
    let mut cluster = Cluster::start_with(&["--snapshot-log-bytes", "4096"]).await?;
    let leader = cluster.leader().await?;
    let bare = cluster.ids().into_iter().find(|id| *id != leader);
    let bare = bare.context("no follower")?;
    let client = cluster.client(leader)?.clone();
    let mut rounds = 0;
    let mut first = None;
    // The log is looked at before each next snapshot: with a third, it is purged.
    wait::until("the follower has made three snapshots", async || {
        rounds += 1;
        take(&client, &format!("round-{rounds}"), 20).await?;
        let [older, _] = snapshots(&cluster, bare)?[..] else {
            bail!("not even two yet")
        };
        ensure!(older > *first.get_or_insert(older), "two only");
        Ok(())
    })
    .await?;
    cluster.agreed().await?;
    cluster.terminate(bare).await?;
    let purged = cluster.inspect(bare, &[])?["log"]["purged"].clone();
    ensure!(purged.is_string(), "the log was not purged: {purged}");
    for gone in ["snapshots", "checkpoint"] {
        std::fs::remove_dir_all(cluster.folder(bare).join(gone))?;
    }
    ensure!(
        cluster.inspect(bare, &[]).is_err(),
        "a log without its beginning is no damage"
    );
    cluster.start_node(bare)?;
    cluster.ready(bare).await?;
    let log = cluster.log(bare)?;
    ensure!(
        log.iter().any(|line| line.message() == "snapshot fetched"),
        "it started without a snapshot"
    );
    cluster.unharmed()?;
    cluster.stop_and_compare().await?;
    Ok(())
}

/// A follower, killed.
async fn killed_follower(cluster: &mut Cluster, leader: u64) -> Result<u64> {
    let follower = cluster.ids().into_iter().find(|id| *id != leader);
    let follower = follower.context("no follower")?;
    take(cluster.client(leader)?, "before", 20).await?;
    cluster.agreed().await?;
    cluster.kill(follower)?;
    Ok(follower)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_log_is_gone_does_not_start() -> Result<()> {
    let mut cluster = Cluster::start().await?;
    let leader = cluster.leader().await?;
    let follower = killed_follower(&mut cluster, leader).await?;
    let log = cluster.folder(follower).join("log");
    for file in folder::files(&log)? {
        std::fs::remove_file(file)?;
    }
    for is_there in [true, false] {
        if !is_there {
            std::fs::remove_dir_all(&log)?;
        }
        ensure!(cluster.inspect(follower, &[]).is_err(), "no damage is told");
        cluster.start_node(follower)?;
        let ended = cluster.exited(follower).await?;
        ensure!(ended.code() == Some(1), "it ended with {ended}");
    }
    cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wiped_node_does_not_end_the_leader() -> Result<()> {
    let mut cluster = Cluster::start().await?;
    let leader = cluster.leader().await?;
    let wiped = killed_follower(&mut cluster, leader).await?;
    let folder = cluster.path().join(format!("node{wiped}"));
    let seed = std::fs::read(folder.join("seed.json"))?;
    std::fs::remove_dir_all(&folder)?;
    std::fs::create_dir(&folder)?;
    std::fs::write(folder.join("seed.json"), seed)?;
    cluster.start_node(wiped)?;
    wait::until(
        "the leader says that the node has lost its log",
        async || {
            let log = cluster.log(leader)?;
            let mut lines = log.iter();
            let found = lines.any(|line| {
                line.message().starts_with("a peer has lost") && line.number("peer") == Some(wiped)
            });
            ensure!(found, "not yet");
            Ok(())
        },
    )
    .await?;
    ensure!(cluster.is_running(leader)?, "the leader has ended");
    take(cluster.client(leader)?, "after", 20).await?;
    cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_on_an_older_copy_of_its_folder_has_no_say() -> Result<()> {
    let mut cluster = Cluster::start().await?;
    let leader = cluster.leader().await?;
    let follower = killed_follower(&mut cluster, leader).await?;
    let folder = cluster.folder(follower);
    let copy = folder.with_extension("copy");
    folder::copy(&folder, &copy)?;
    cluster.start_node(follower)?;
    cluster.all_ready().await?;
    let taken = take(cluster.client(leader)?, "since", 20).await?;
    cluster.agreed().await?;
    cluster.kill(follower)?;
    std::fs::remove_dir_all(&folder)?;
    std::fs::rename(&copy, &folder)?;
    cluster.start_node(follower)?;
    wait::until("it says that it has no say", async || {
        let log = cluster.log(follower)?;
        let said = log
            .iter()
            .any(|line| line.message().contains("neither votes nor leads"));
        ensure!(said, "not yet");
        let metrics = cluster.admin(follower)?.get("/metrics", &[]).await?;
        let lost = metrics
            .ok_text()?
            .lines()
            .any(|line| line.starts_with("epochd_disk_lost{") && line.ends_with(" 1"));
        ensure!(lost, "its metrics do not tell");
        Ok(())
    })
    .await?;
    // With the leader gone, the third node must not get a quorum out of the rolled-back one.
    let third = cluster
        .ids()
        .into_iter()
        .find(|id| ![leader, follower].contains(id));
    let third = third.context("no third node")?;
    cluster.kill(leader)?;
    cluster.kill(follower)?;
    cluster.start_node(follower)?;
    // That something does not happen cannot be waited for: twice the longest election.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let ready = cluster
        .client(third)?
        .impatient()
        .get("/readyz", &[])
        .await?;
    ensure!(ready.status == 503, "the rolled-back node made a quorum");
    cluster.start_node(leader)?;
    cluster.ready(leader).await?;
    cluster.ready(third).await?;
    let serving = cluster.leader().await?;
    ensure!(serving != follower, "the rolled-back node leads");
    let client = cluster.client(serving)?;
    ensure!(held(client, "since/").await? == taken, "grants were lost");
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
async fn a_file_beyond_the_limit_is_named() -> Result<()> {
    let mut cluster = Cluster::init_nodes(1, &[])?;
    let mut command = tokio::process::Command::new("sh");
    command
        .args(["-c", "ulimit -f 8 && exec \"$0\" serve --data-dir \"$1\""])
        .arg(binary("epochd")?)
        .arg(cluster.folder(1));
    let ran = run(&mut command).await?;
    ensure!(matches!(ran.code, Some(1 | 70)), "{ran:?}");
    ensure!(ran.stderr.contains("File too large"), "{ran:?}");
    cluster.unharmed()
}

/// The log indexes of the snapshots that a node keeps, in order.
fn snapshots(cluster: &Cluster, id: u64) -> Result<Vec<u64>> {
    let folder = cluster.path().join(format!("node{id}/snapshots"));
    let mut found = Vec::new();
    for file in std::fs::read_dir(folder).into_iter().flatten() {
        let name = file?.file_name().into_string().unwrap_or_default();
        // Others are still being written.
        let index = name
            .strip_prefix("snapshot-")
            .and_then(|rest| rest.split('-').next());
        found.extend(index.and_then(|index| index.parse::<u64>().ok()));
    }
    found.sort_unstable();
    Ok(found)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_a_quorum_answers_unavailable_and_recovers() -> Result<()> {
    let mut cluster = Cluster::start().await?;
    let leader = cluster.leader().await?;
    let client = cluster.client(leader)?.impatient();
    let session = client.open("alone", "1h").await?;
    let others: Vec<u64> = cluster
        .ids()
        .into_iter()
        .filter(|id| *id != leader)
        .collect();
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
    let new = wait::until("another node leads", async || {
        for id in cluster.ids().into_iter().filter(|id| *id != old) {
            let client = cluster.client(id)?.impatient();
            let leads = client.cluster().await?["leader"] == id;
            if leads && client.get("/readyz", &[]).await?.status == 200 {
                return Ok(id);
            }
        }
        bail!("none yet")
    })
    .await?;
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
