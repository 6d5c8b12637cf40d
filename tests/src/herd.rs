//! Many sessions that keep themselves alive, each with a scope: none may ever be lost.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use epoch_client::{Client, Grant, Session};
use epoch_core::{Reason, Scope};
use epoch_proto::v1::{AcquireRequest, KeepAliveRequest, OpenRequest};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::cluster::{Cluster, number, text};
use crate::{clock, wait};

/// Clients, with connections of their own, that share the sessions.
const CLIENTS: usize = 8;

/// The sessions, and a client that takes and gives back one scope after another meanwhile.
#[derive(Debug)]
pub struct Herd {
    clients: Vec<Client>,
    grants: Vec<Grant>,
    ttl: Duration,
    stop: watch::Sender<bool>,
    probing: JoinHandle<Result<Served>>,
}

/// How acquires were served meanwhile.
#[derive(Debug, Clone, Copy, Default)]
pub struct Served {
    /// How many were granted.
    pub count: usize,
    /// How long the slowest took.
    pub slowest: Duration,
}

/// A session that nobody keeps alive, with its scope.
#[derive(Debug)]
pub struct Dead {
    scope: Scope,
    /// When that was asked for, since the machine started: its time counts from a little later.
    pub opened: Duration,
}

impl Herd {
    /// Opens `count` sessions, each of which takes a scope.
    ///
    /// # Errors
    /// One of these is refused.
    pub async fn gather(cluster: &Cluster, count: usize, ttl: Duration) -> Result<Self> {
        let clients = (0..CLIENTS).map(|_| cluster.library_client());
        let clients: Vec<Client> = clients.collect::<Result<_, _>>()?;
        let mut taking = JoinSet::new();
        for (number, client) in (0..count).zip(clients.iter().cycle()) {
            let client = client.clone();
            taking.spawn(async move {
                let session = client.open_session(&"live".parse()?, ttl).await?;
                let scope: Scope = format!("live/{number:05}").parse()?;
                anyhow::Ok(session.acquire(&scope).await?)
            });
        }
        let mut grants = Vec::new();
        while let Some(taken) = taking.join_next().await {
            grants.push(taken??);
        }
        let client = clients.first().context("no client")?;
        let session = client.open_session(&"prober".parse()?, ttl).await?;
        let (stop, stopped) = watch::channel(false);
        let probing = tokio::spawn(probe(session, stopped));
        Ok(Self {
            clients,
            grants,
            ttl,
            stop,
            probing,
        })
    }

    fn client(&self) -> Result<&Client> {
        self.clients.first().context("no client")
    }

    /// Opens a session that dies at once, and takes a scope in it.
    ///
    /// # Errors
    /// One of the two is refused.
    pub async fn dead(&self, scope: &str) -> Result<Dead> {
        let request = OpenRequest {
            holder: "dead".to_owned(),
            ttl: Some(self.ttl.try_into()?),
            ..OpenRequest::default()
        };
        let client = self.client()?;
        let opened = clock::boot();
        let session = client.open(request).await?;
        let request = AcquireRequest {
            scope: scope.to_owned(),
            session_id: session.session_id,
            request_id: 1,
            ..AcquireRequest::default()
        };
        client.acquire(request).await?;
        let scope = scope.parse()?;
        Ok(Dead { scope, opened })
    }

    /// Waits until the scope of a dead session is granted to another; when that was, since the
    /// machine started.
    ///
    /// # Errors
    /// It was not in time, or was refused for another reason than that it is held.
    pub async fn freed(&self, dead: &Dead) -> Result<Duration> {
        let session = self.grants.first().context("no session")?.session();
        let granted = wait::until("a dead session's scope is free", async || {
            match session.acquire(&dead.scope).await {
                Ok(_grant) => Ok(Ok(clock::boot())),
                Err(error) if error.reason() == Some(Reason::ScopeHeld) => Err(error.into()),
                Err(error) => Ok(Err(error)),
            }
        });
        Ok(granted.await??)
    }

    /// Checks that no session was lost, neither here nor in the cluster, and that each has its
    /// scope under the epoch that it was given.
    ///
    /// # Errors
    /// One was.
    pub async fn check(&self, cluster: &Cluster) -> Result<()> {
        let client = cluster.client(cluster.leader().await?)?;
        let mut held = BTreeMap::new();
        for row in client.scopes("live/", 1_000).await? {
            held.insert(text(&row, "scope")?.to_owned(), number(&row, "epoch")?);
        }
        for grant in &self.grants {
            let (scope, epoch) = (grant.scope().as_str(), grant.epoch());
            ensure!(
                held.get(scope) == Some(&epoch.get()),
                "{scope} was granted with {epoch}, and has {:?} now",
                held.get(scope)
            );
        }
        self.each(|client, session| async move {
            let request = KeepAliveRequest {
                session_id: session.id().to_string(),
                ..KeepAliveRequest::default()
            };
            client.keepalive(request).await?;
            let loss = session.loss();
            ensure!(loss.is_none(), "it is lost: {loss:?}");
            Ok(())
        })
        .await
    }

    /// Does something with every session, with all at once.
    async fn each<F>(&self, work: impl Fn(Client, Session) -> F) -> Result<()>
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        let mut working = JoinSet::new();
        for (grant, client) in self.grants.iter().zip(self.clients.iter().cycle()) {
            let scope = grant.scope().clone();
            let work = work(client.clone(), grant.session().clone());
            working.spawn(async move {
                work.await
                    .with_context(|| format!("the session of {scope}"))
            });
        }
        while let Some(done) = working.join_next().await {
            done??;
        }
        Ok(())
    }

    /// Checks once more, and closes all; how acquires were served.
    ///
    /// # Errors
    /// A session was lost, or an acquire failed.
    pub async fn dismiss(self, cluster: &Cluster) -> Result<Served> {
        self.check(cluster).await?;
        self.stop.send_replace(true);
        self.each(|_client, session| async move {
            ensure!(session.close().await?, "the cluster had none to close");
            Ok(())
        })
        .await?;
        self.probing.await?
    }
}

/// Takes and gives back one scope after another.
async fn probe(session: Session, stopped: watch::Receiver<bool>) -> Result<Served> {
    const PAUSE: Duration = Duration::from_millis(50);
    let mut served = Served::default();
    while !*stopped.borrow() {
        let scope: Scope = format!("probe/{}", served.count).parse()?;
        let asked = clock::boot();
        let grant = session.acquire(&scope).await?;
        served.slowest = served.slowest.max(clock::boot().saturating_sub(asked));
        served.count += 1;
        grant.release().await?;
        tokio::time::sleep(PAUSE).await;
    }
    session.close().await?;
    Ok(served)
}
