//! Random damage to a node's data folder: found and named, or harmless. Never an empty start, and
//! never an end without a word.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use epoch_tests::cluster::{Cluster, number};
use epoch_tests::folder::{copy, files};
use epoch_tests::grants::held;
use epoch_tests::{seed, wait};
use rand::RngExt as _;
use rand::rngs::StdRng;

/// How often, unless `EPOCH_DAMAGES` says otherwise.
const DAMAGES: u64 = 40;
/// So small that the folder has several segments, two snapshots and a checkpoint.
const ARGUMENTS: [&str; 4] = [
    "--snapshot-log-bytes",
    "16384",
    "--log-segment-bytes",
    "16384",
];
const NODE: u64 = 1;

#[tokio::test(flavor = "multi_thread")]
async fn damage_to_a_data_folder_is_named_or_harmless() -> Result<()> {
    let count = match env::var("EPOCH_DAMAGES") {
        Ok(text) => text.parse().context("EPOCH_DAMAGES must be a number")?,
        Err(_unset) => DAMAGES,
    };
    let mut random = seed::source(seed::seed()?, 0);
    let mut cluster = Cluster::init_nodes(1, &ARGUMENTS)?;
    cluster.start_node(NODE)?;
    cluster.ready(NODE).await?;
    let expected = fill(&cluster).await?;
    cluster.terminate(NODE).await?;

    let folder = cluster.folder(NODE);
    let good = folder.with_extension("good");
    copy(&folder, &good)?;
    let kinds = ["log", "snapshots", "checkpoint"];
    for kind in kinds {
        let found = files(&good.join(kind))?;
        ensure!(!found.is_empty(), "the folder has nothing in {kind}");
    }
    let mut named = 0;
    for at in 0..count {
        fs::remove_dir_all(&folder)?;
        copy(&good, &folder)?;
        let damage = damage(&folder, &mut random)?;
        let before = contents(&folder)?;
        let inspected = cluster.inspect(NODE, &[]);
        ensure!(contents(&folder)? == before, "inspecting changed something");
        let outcome = judge(&mut cluster, &expected, &damage.file).await;
        let refused = outcome.with_context(|| format!("damage {at}: {damage:?}"))?;
        // Another address that can be one is no damage to a seed, and yet nothing to listen on.
        let finds = |said: &String| !said.contains("cannot listen");
        if refused.as_ref().is_some_and(finds)
            && let Ok(report) = inspected
        {
            bail!("the node is refused, and inspecting finds nothing: {damage:?}, {report}");
        }
        named += u64::from(refused.is_some());
    }
    eprintln!(
        "{count} damages: {named} refused by name, {} harmless",
        count - named
    );
    cluster.unharmed()
}

/// Takes scopes until there are two snapshots and some entries after them; scope to epoch.
async fn fill(cluster: &Cluster) -> Result<BTreeMap<String, u64>> {
    let client = cluster.client(NODE)?;
    let mut taken = BTreeMap::new();
    let mut round = 0;
    wait::until("there are two snapshots and a checkpoint", async || {
        round += 1;
        let session = client.open("keeper", "10h").await?;
        for request_id in 1..=30 {
            let scope = format!("kept/{round:04}/{request_id}");
            let grant = client.acquire(&scope, &session, request_id).await?.ok()?;
            taken.insert(scope, number(&grant, "epoch")?);
        }
        let snapshots = files(&cluster.folder(NODE).join("snapshots"))?;
        let whole = snapshots
            .iter()
            .filter(|path| path.extension().is_none())
            .count();
        ensure!(whole >= 2, "{snapshots:?}");
        ensure!(
            !files(&cluster.folder(NODE).join("checkpoint"))?.is_empty(),
            "no checkpoint"
        );
        Ok(())
    })
    .await?;
    Ok(taken)
}

#[derive(Debug)]
struct Damage {
    file: PathBuf,
    #[expect(dead_code, reason = "shown when the test fails")]
    what: String,
}

/// Where a seed has the nodes' addresses: another address is as good as that one, to whoever reads it.
fn undetectable(bytes: &[u8]) -> Option<Range<usize>> {
    let text = std::str::from_utf8(bytes).ok()?;
    let start = text.find("\"nodes\"")?;
    let end = text.find("\"bundle\"")?;
    Some(start..end)
}

/// Flips one bit of a file, or cuts it.
fn damage(folder: &Path, random: &mut StdRng) -> Result<Damage> {
    let mut found = files(folder)?;
    found.retain(|path| fs::metadata(path).is_ok_and(|metadata| metadata.len() > 0));
    let file = found.swap_remove(random.random_range(0..found.len()));
    let mut bytes = fs::read(&file)?;
    let at = match undetectable(&bytes) {
        // As likely anywhere else.
        Some(addresses) => match random.random_range(0..bytes.len() - addresses.len()) {
            at if at < addresses.start => at,
            at => at + addresses.len(),
        },
        None => random.random_range(0..bytes.len()),
    };
    let what = if random.random_ratio(1, 4) {
        bytes.truncate(at);
        format!("cut at {at}")
    } else {
        let bit = random.random_range(0..8);
        let byte = bytes.get_mut(at).context("within the file")?;
        *byte ^= 1 << bit;
        format!("bit {bit} of byte {at} flipped")
    };
    fs::write(&file, bytes)?;
    Ok(Damage { file, what })
}

/// Starts the node: what it said if it refused, which names the file. Otherwise it must have
/// everything.
async fn judge(
    cluster: &mut Cluster,
    expected: &BTreeMap<String, u64>,
    file: &Path,
) -> Result<Option<String>> {
    let before = cluster.log(NODE)?.len();
    cluster.start_node(NODE)?;
    let client = cluster.client(NODE)?.impatient();
    let ready = wait::until("the node is ready or has ended", async || {
        if !cluster.is_running(NODE)? {
            return Ok(false);
        }
        client.get("/readyz", &[]).await?.ok_text()?;
        Ok(true)
    })
    .await?;
    if ready {
        let held = held(cluster.client(NODE)?, "kept/").await?;
        ensure!(held == *expected, "grants are lost or changed");
        cluster.terminate(NODE).await?;
        return Ok(None);
    }
    let ended = cluster.exited(NODE).await?;
    ensure!(ended.code() == Some(1), "it ended with {ended}");
    let log = cluster.raw_log(NODE)?;
    let said: String = log.lines().skip(before).collect::<Vec<_>>().join("\n");
    let name = file.file_name().and_then(|name| name.to_str());
    let name = name.context("a name")?;
    if !said.contains(name) {
        bail!("it does not name {name}: {said}");
    }
    Ok(Some(said))
}

fn contents(folder: &Path) -> Result<BTreeMap<PathBuf, Vec<u8>>> {
    let paths = files(folder)?.into_iter();
    paths
        .map(|path| Ok((path.clone(), fs::read(path)?)))
        .collect()
}
