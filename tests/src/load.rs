//! Load: clients that acquire and release, ride out failovers, and record all they see.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use epoch_core::{GrantHash, KeySet, RequestId, Verifier};
use rand::RngExt as _;
use rand::rngs::StdRng;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::caller::{Caller, Reply};
use crate::clock;
use crate::cluster::{Cluster, text};
use crate::history::{History, Span};
use crate::seed;
use crate::wait;

/// How long one request is tried for, over all nodes, before the run fails.
const REQUEST_BOUND: Duration = Duration::from_secs(30);
/// Between two tries of one request: long enough not to storm a cluster without a leader.
const RETRY_PAUSE: Duration = Duration::from_millis(25);
/// Between two keepalives: well within [`TTL`], so that a session is lost only by the cluster's
/// fault.
const KEEPALIVE_PAUSE: Duration = Duration::from_secs(2);
/// The sessions' time to live.
const TTL: &str = "60s";
/// Every second pick is among this share of the scopes, so that some are contended.
const HOT_SHARE: u32 = 50;

/// How much load.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Clients at once: half speak JSON, half gRPC.
    pub clients: u64,
    /// Scopes they pick from.
    pub scopes: u32,
    /// Draws every client's picks.
    pub seed: u64,
}

/// What one client shares with the others.
#[derive(Debug)]
struct Shared {
    load: Load,
    verifier: Verifier,
    stop: watch::Receiver<bool>,
}

/// A load that runs in the background.
#[derive(Debug)]
pub struct Running {
    stop: watch::Sender<bool>,
    clients: JoinSet<Result<History>>,
}

impl Running {
    /// Starts the load on every node of a ready cluster.
    ///
    /// # Errors
    /// The cluster's keys cannot be fetched.
    pub async fn start(cluster: &Cluster, load: Load) -> Result<Self> {
        let (stop, stopped) = watch::channel(false);
        let verifier = verifier(cluster).await?;
        let shared = Arc::new(Shared {
            load,
            verifier,
            stop: stopped,
        });
        let mut clients = JoinSet::new();
        for number in 0..load.clients {
            let callers = Caller::for_nodes(cluster, number % 2 == 0)?;
            clients.spawn(run_client(Arc::clone(&shared), number, callers));
        }
        Ok(Self { stop, clients })
    }

    /// Lets every client finish its request; what they saw.
    ///
    /// # Errors
    /// A client met something that no failover explains.
    pub async fn stop(mut self) -> Result<History> {
        self.stop.send_replace(true);
        let mut history = History::default();
        while let Some(client) = self.clients.join_next().await {
            history.append(client.context("a client panicked")??);
        }
        Ok(history)
    }
}

/// A verifier with the keys of all nodes.
///
/// # Errors
/// They are not served in time.
pub async fn verifier(cluster: &Cluster) -> Result<Verifier> {
    let nodes = cluster.ids().len();
    let client = cluster.client(cluster.leader().await?)?;
    wait::until("the keys of all nodes are served", async || {
        let document = client.get("/.well-known/jwks.json", &[]).await?.ok()?;
        let keys = KeySet::from_jwks(document.to_string().as_bytes())?;
        ensure!(keys.len() == nodes, "{} keys are served", keys.len());
        let status = client.cluster().await?;
        Ok(Verifier::new(text(&status, "cluster_id")?.parse()?, keys))
    })
    .await
}

async fn run_client(shared: Arc<Shared>, number: u64, callers: Vec<Caller>) -> Result<History> {
    let random = seed::source(shared.load.seed, number);
    let mut client = Client {
        callers,
        at: 0,
        random,
        history: History::default(),
    };
    let holder = format!("load-{number}");
    let open_id = uuid::Uuid::new_v4().to_string();
    let (holder, open_id) = (holder.as_str(), open_id.as_str());
    let opening = client.persist(|caller| async move { caller.open(holder, TTL, open_id).await });
    let session = opening.await?;
    let Reply::Done(session) = session else {
        bail!("{holder} got no session: {session:?}")
    };

    let keepalive = keep_alive(Arc::clone(&shared), client.callers.clone(), session.clone());
    let keepalive = tokio::spawn(keepalive);
    let mut request_id = 0;
    while !*shared.stop.borrow() {
        request_id += 1;
        let scope = client.pick(shared.load.scopes);
        let turn = client.turn(&shared.verifier, &scope, &session, request_id);
        turn.await
            .with_context(|| format!("{holder}, request {request_id}, scope {scope}"))?;
    }
    keepalive
        .await
        .context("keepalive panicked")?
        .context(holder.to_owned())?;
    Ok(client.history)
}

/// Renews a session until the load stops. Whoever is renewed in time never expires.
async fn keep_alive(shared: Arc<Shared>, callers: Vec<Caller>, session: String) -> Result<()> {
    let mut stop = shared.stop.clone();
    let random = seed::source(shared.load.seed, u64::MAX);
    let mut client = Client {
        callers,
        at: 0,
        random,
        history: History::default(),
    };
    while !*stop.borrow() {
        let session = session.as_str();
        let keeping = client.persist(|caller| async move { caller.keep_alive(session).await });
        match keeping.await? {
            Reply::Done(()) => {}
            reply => bail!("a keepalive was refused: {reply:?}"),
        }
        // Either way the loop looks again.
        let _elapsed = tokio::time::timeout(KEEPALIVE_PAUSE, stop.changed()).await;
    }
    Ok(())
}

struct Client {
    callers: Vec<Caller>,
    /// The caller that answered last.
    at: usize,
    random: StdRng,
    history: History,
}

impl Client {
    fn pick(&mut self, scopes: u32) -> String {
        let hot = self.random.random_bool(0.5);
        let among = if hot {
            (scopes / HOT_SHARE).max(1)
        } else {
            scopes
        };
        format!("load/{}", self.random.random_range(0..among))
    }

    /// One request, at one node after another until the answer is definite.
    async fn persist<T, F: Future<Output = Reply<T>>>(
        &mut self,
        call: impl Fn(Caller) -> F,
    ) -> Result<Reply<T>> {
        let trying = async {
            loop {
                let caller = self.callers.get(self.at % self.callers.len().max(1));
                let reply = call(caller.context("no node to call")?.clone()).await;
                if !matches!(reply, Reply::Unknown(_)) {
                    return anyhow::Ok(reply);
                }
                self.at = self.at.wrapping_add(1);
                tokio::time::sleep(RETRY_PAUSE).await;
            }
        };
        let tried = tokio::time::timeout(REQUEST_BOUND, trying).await;
        tried.context("no node gave a definite answer in 30 s")?
    }

    /// Takes a scope and gives it back; now and then asks twice.
    async fn turn(
        &mut self,
        verifier: &Verifier,
        scope: &str,
        session: &str,
        request_id: u64,
    ) -> Result<()> {
        let Some(epoch) = self.acquire(verifier, scope, session, request_id).await? else {
            return Ok(());
        };
        if self.random.random_ratio(1, 8) {
            // Elsewhere, as a client would whose first answer was lost.
            self.at = self.at.wrapping_add(1);
            let again = self.acquire(verifier, scope, session, request_id).await?;
            ensure!(
                again == Some(epoch),
                "the same request got {epoch}, then {again:?}"
            );
        }
        let releasing =
            self.persist(|caller| async move { caller.release(scope, session, epoch).await });
        match releasing.await? {
            // False when an earlier try had released it, and its answer was lost.
            Reply::Done(_released) => {}
            // As above, and another client has taken the scope since.
            Reply::Refused(reason) if reason == "EPOCH_SUPERSEDED" => {}
            reply => bail!("release: {reply:?}"),
        }
        if self.random.random_ratio(1, 8) {
            let again = self.acquire(verifier, scope, session, request_id).await?;
            ensure!(
                again.is_none(),
                "a request that was released got {again:?} again"
            );
        }
        Ok(())
    }

    /// One acquire, retried until it is granted or refused; recorded with the try that was
    /// answered.
    async fn acquire(
        &mut self,
        verifier: &Verifier,
        scope: &str,
        session: &str,
        request_id: u64,
    ) -> Result<Option<u64>> {
        let asking = self.persist(|caller| async move {
            let sent_ns = clock::boot_ns();
            let reply = caller.acquire(scope, session, request_id).await;
            let span = Span {
                sent_ns,
                returned_ns: clock::boot_ns(),
            };
            reply.map(|token| Some((token, span)))
        });
        match asking.await? {
            Reply::Done((token, span)) => {
                let certificate = verifier.verify(&token, clock::unix_ms())?;
                ensure!(
                    certificate.scope().as_str() == scope,
                    "it is for another scope"
                );
                let (session, request_id) = (session.parse()?, RequestId::new(request_id)?);
                let hash = certificate.grant().context("it is holderless")?.hash;
                ensure!(
                    hash == GrantHash::of(&session, Some(request_id)),
                    "it is another's grant"
                );
                self.history
                    .acquired(&certificate, session, request_id, span);
                Ok(Some(certificate.epoch().get()))
            }
            Reply::Refused(reason) if is_ordinary(&reason) => {
                self.history.refused();
                Ok(None)
            }
            reply => bail!("acquire: {reply:?}"),
        }
    }
}

fn is_ordinary(reason: &str) -> bool {
    matches!(reason, "SCOPE_HELD" | "EPOCH_SUPERSEDED")
}
