//! A client that only takes: what it was given must be there ever after.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::caller::{Caller, Reply};
use crate::cluster::{Cluster, number, text};
use crate::{clock, load};

/// Scope to certificate.
type Kept = BTreeMap<String, String>;

fn lock(kept: &Mutex<Kept>) -> MutexGuard<'_, Kept> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes one scope after another and keeps it; every acknowledged grant is written down.
#[derive(Debug)]
pub struct Keeper {
    stop: watch::Sender<bool>,
    kept: Arc<Mutex<Kept>>,
    task: JoinHandle<Result<()>>,
}

impl Keeper {
    /// Begins, in a session that outlives the test.
    ///
    /// # Errors
    /// No node leads.
    pub async fn start(cluster: &Cluster) -> Result<Self> {
        let client = cluster.client(cluster.leader().await?)?;
        let session = client.open("keeper", "10h").await?;
        let callers = Caller::for_nodes(cluster, true)?;
        let (stop, stopped) = watch::channel(false);
        let kept = Arc::<Mutex<Kept>>::default();
        let noted = Arc::clone(&kept);
        let task = tokio::spawn(async move {
            let mut nodes = callers.iter().cycle();
            for request_id in 1.. {
                let scope = format!("keep/{request_id:08}");
                loop {
                    if *stopped.borrow() {
                        return Ok(());
                    }
                    let caller = nodes.next().context("no node")?;
                    match caller.acquire(&scope, &session, request_id).await {
                        Reply::Done(token) => {
                            lock(&noted).insert(scope, token);
                            break;
                        }
                        Reply::Unknown(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                        Reply::Refused(reason) => bail!("{scope}: {reason}"),
                    }
                }
            }
            Ok(())
        });
        Ok(Self { stop, kept, task })
    }

    /// How many grants were acknowledged.
    #[must_use]
    pub fn count(&self) -> usize {
        lock(&self.kept).len()
    }

    /// Checks that every acknowledged grant is there, with the epoch that was acknowledged; how
    /// many they are.
    ///
    /// # Errors
    /// One is not.
    pub async fn check(&self, cluster: &Cluster) -> Result<usize> {
        let verifier = load::verifier(cluster).await?;
        let acknowledged = lock(&self.kept).clone();
        let client = cluster.client(cluster.leader().await?)?;
        let rows = client.scopes("keep/", 1_000).await?;
        let mut held = BTreeMap::new();
        for row in &rows {
            held.insert(text(row, "scope")?.to_owned(), number(row, "epoch")?);
        }
        for (scope, token) in &acknowledged {
            let certificate = verifier.verify(token, clock::unix_ms())?;
            let found = held.get(scope).copied();
            ensure!(
                found == Some(certificate.epoch().get()),
                "{scope} was granted with epoch {}, and has {found:?} now",
                certificate.epoch()
            );
        }
        Ok(acknowledged.len())
    }

    /// Ends.
    ///
    /// # Errors
    /// A scope that nobody else wants was refused.
    pub async fn stop(self) -> Result<()> {
        self.stop.send_replace(true);
        self.task.await?
    }
}
