//! Sessions outlive their leaders: killed, held still for longer than a TTL, or with a disk that
//! has become slow. And who is not kept alive is gone within the stated time all the same.

#![expect(clippy::print_stderr, reason = "how it went has to be seen")]

use std::time::Duration;

use anyhow::{Result, ensure};
use epoch_tests::clock;
use epoch_tests::cluster::Cluster;
use epoch_tests::herd::{Dead, Herd};
use epoch_tests::setting::setting;
use epoch_tests::slow_disk::SlowDisks;

const TTL: Duration = Duration::from_secs(5);
const SESSIONS: usize = 200;
/// What a new leader gives every session on top of its TTL.
const GRACE: Duration = Duration::from_secs(1);
/// For the expiry to be committed, and to be seen here: far more than that takes.
const SEEN_WITHIN: Duration = Duration::from_secs(3);
const SLOW_FLUSH_MS: u64 = 2_000;

/// How often this node has logged `message`, over all its lives.
fn said(cluster: &Cluster, id: u64, message: &str) -> Result<usize> {
    let log = cluster.log(id)?;
    Ok(log.iter().filter(|line| line.message() == message).count())
}

/// When a node has last begun to serve.
struct Services {
    count: usize,
    latest: Option<Duration>,
}

impl Services {
    /// Of those from now on.
    fn begin(cluster: &Cluster) -> Result<Self> {
        let mut services = Self {
            count: 0,
            latest: None,
        };
        services.note(cluster)?;
        services.latest = None;
        Ok(services)
    }

    fn note(&mut self, cluster: &Cluster) -> Result<()> {
        let counts = cluster.ids().into_iter();
        let count = counts
            .map(|id| said(cluster, id, "serving"))
            .sum::<Result<_>>()?;
        if count > self.count {
            self.latest = Some(clock::boot());
        }
        self.count = count;
        Ok(())
    }

    async fn keep_noting(&mut self, cluster: &Cluster) -> Result<()> {
        loop {
            self.note(cluster)?;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Waits until a dead session is gone, and checks that it went neither too early nor later than
/// the docs say: its TTL, and one second more from the moment the last new leader served.
async fn is_freed(
    cluster: &Cluster,
    herd: &Herd,
    dead: &Dead,
    services: &mut Services,
) -> Result<()> {
    let freed = tokio::select! {
        freed = herd.freed(dead) => freed?,
        failed = services.keep_noting(cluster) => return failed,
    };
    let lived = freed.saturating_sub(dead.opened);
    ensure!(lived >= TTL, "it was expired after {lived:?}");
    let served = services.latest.map(|served| served + TTL + GRACE);
    let bound = served.unwrap_or(dead.opened + TTL).max(dead.opened + TTL);
    let late = freed.saturating_sub(bound);
    eprintln!("  a dead session lived {lived:?}, {late:?} over the stated bound");
    ensure!(late < SEEN_WITHIN, "freed {late:?} after the stated bound");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn no_session_is_lost_when_leaders_are_killed() -> Result<()> {
    let mut cluster = Cluster::start().await?;
    let herd = Herd::gather(&cluster, SESSIONS, TTL).await?;
    for round in 1..=setting("EPOCH_ROUNDS", 2)? {
        let old = cluster.leader().await?;
        let dead = herd.dead(&format!("dead/{round}")).await?;
        let mut services = Services::begin(&cluster)?;
        cluster.kill(old)?;
        let killed = clock::boot();
        let new = cluster.leader().await?;
        eprintln!(
            "round {round}: node {old} killed, node {new} serves after {:?}",
            clock::boot().saturating_sub(killed)
        );
        services.note(&cluster)?;
        cluster.start_node(old)?;
        is_freed(&cluster, &herd, &dead, &mut services).await?;
        cluster.all_ready().await?;
        herd.check(&cluster).await?;
    }
    let served = herd.dismiss(&cluster).await?;
    eprintln!("{served:?}");
    cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_session_is_lost_when_a_leader_is_held_still_for_three_ttls() -> Result<()> {
    let mut cluster = Cluster::start().await?;
    let herd = Herd::gather(&cluster, SESSIONS, TTL).await?;
    for round in 1..=setting("EPOCH_ROUNDS", 1)? {
        let old = cluster.leader().await?;
        let dead = herd.dead(&format!("dead/{round}")).await?;
        let mut services = Services::begin(&cluster)?;
        cluster.pause(old)?;
        let paused = clock::boot();
        let new = cluster.leader_among(&cluster.all_but(old)).await?;
        eprintln!(
            "round {round}: node {old} held still, node {new} serves after {:?}",
            clock::boot().saturating_sub(paused)
        );
        is_freed(&cluster, &herd, &dead, &mut services).await?;
        tokio::time::sleep((3 * TTL).saturating_sub(clock::boot().saturating_sub(paused))).await;
        cluster.resume(old)?;
        cluster.all_ready().await?;
        cluster.agreed().await?;
        herd.check(&cluster).await?;
    }
    let served = herd.dismiss(&cluster).await?;
    eprintln!("{served:?}");
    cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_session_is_lost_when_a_leaders_disk_becomes_slow() -> Result<()> {
    let mut cluster = Cluster::init()?;
    let disks = SlowDisks::install(&mut cluster)?;
    for id in cluster.ids() {
        cluster.start_node(id)?;
    }
    cluster.all_ready().await?;
    let herd = Herd::gather(&cluster, SESSIONS, TTL).await?;
    for round in 1..=setting("EPOCH_ROUNDS", 1)? {
        let old = cluster.leader().await?;
        let dead = herd.dead(&format!("dead/{round}")).await?;
        let mut services = Services::begin(&cluster)?;
        disks.slow(old, SLOW_FLUSH_MS)?;
        let slowed = clock::boot();
        let new = cluster.leader_among(&cluster.all_but(old)).await?;
        let led = said(&cluster, old, "leading")?;
        eprintln!(
            "round {round}: the disk of node {old} slow, node {new} serves after {:?}",
            clock::boot().saturating_sub(slowed)
        );
        is_freed(&cluster, &herd, &dead, &mut services).await?;
        eprintln!("  {} services in all", services.count);
        ensure!(
            said(&cluster, old, "leading")? == led,
            "node {old} has led again, with a slow disk"
        );
        disks.heal(old)?;
        cluster.agreed().await?;
        herd.check(&cluster).await?;
    }
    let served = herd.dismiss(&cluster).await?;
    eprintln!("{served:?}");
    cluster.unharmed()
}
