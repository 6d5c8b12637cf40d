//! What a disk lacks, or gives no more: found and named, made good from a peer, or refused.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use epoch_tests::binaries::binary;
use epoch_tests::cluster::{Cluster, number};
use epoch_tests::command_line::run;
use epoch_tests::grants::{held, take};
use epoch_tests::{folder, wait};

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
    let kept = cluster.path().join("kept");
    std::fs::rename(folder.join("tls"), &kept)?;
    std::fs::remove_dir_all(&folder)?;
    std::fs::create_dir(&folder)?;
    std::fs::write(folder.join("seed.json"), seed)?;
    std::fs::rename(kept, folder.join("tls"))?;
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
