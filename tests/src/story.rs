//! The story that epochd exists for, told on real processes: a late write is refused.

use std::fmt::Display;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use epoch_client::{TrustFollower, TrustSettings};
use epoch_core::{CachedVerifier, Certificate, Reason, RequestId, Scope};
use epoch_guard::sqlite::{SqliteGuard, SqliteSettings, WriteError};
use epoch_machine::promise::AdmissionKind;

use crate::agent::{Agent, EXIT_SUPERSEDED, Task};
use crate::clock;
use crate::cluster::{Cluster, number, text};
use crate::history::{History, Span};
use crate::report::Reports;
use crate::wait;

/// The agents' sessions: the shortest that ride out a failover with room to spare, so that the
/// wait for A's expiry is short.
const TTL: &str = "4s";

/// Prints what happens, when it happens, with the time since its making.
#[derive(Debug, Clone, Copy)]
pub struct Teller {
    began_ns: u64,
}

impl Default for Teller {
    fn default() -> Self {
        Self::new()
    }
}

impl Teller {
    /// Begins now.
    #[must_use]
    pub fn new() -> Self {
        Self {
            began_ns: clock::boot_ns(),
        }
    }

    #[expect(clippy::print_stdout, reason = "the story is the output")]
    fn tell(&self, what: impl Display) {
        let since = Duration::from_nanos(clock::boot_ns().saturating_sub(self.began_ns));
        println!("{:7.3} s  {what}", since.as_secs_f64());
    }
}

/// One scope of one cluster, and the SQLite file that its holders write to.
#[derive(Debug)]
struct Stage {
    teller: Teller,
    scope: Scope,
    database: PathBuf,
    reports: Reports,
    verifier: Arc<CachedVerifier>,
    history: History,
}

/// What an agent got.
#[derive(Debug)]
struct Held {
    token: String,
    certificate: Arc<Certificate>,
}

impl Held {
    fn epoch(&self) -> u64 {
        self.certificate.epoch().get()
    }
}

/// Tells the whole story on a fresh cluster, then the other order, without and with a barrier.
///
/// # Errors
/// A promise was broken, or something did not come up.
pub async fn tell_all() -> Result<()> {
    let teller = Teller::new();
    let mut cluster = Cluster::init()?;
    for id in cluster.ids() {
        cluster.start_node(id)?;
        teller.tell(format!("node {id} started (epochd serve)"));
    }
    cluster.all_ready().await?;
    teller.tell(format!(
        "three nodes are ready; node {} leads",
        cluster.leader().await?
    ));
    late_write_is_refused(&mut cluster, teller).await?;
    other_order_without_barrier(&mut cluster, teller).await?;
    other_order_with_barrier(&mut cluster, teller).await?;
    cluster.unharmed()?;
    teller.tell("every promise held");
    Ok(())
}

/// A stalls, loses its scope to B, and comes back after B's write and a failover: refused.
///
/// # Errors
/// A promise was broken.
pub async fn late_write_is_refused(cluster: &mut Cluster, teller: Teller) -> Result<()> {
    let mut stage = Stage::set(cluster, teller, "reports/research-note").await?;
    stage.tell("-- The late write");
    let mut a = stage.agent(cluster, "agent-a", false)?;
    let held_a = stage.acquired(&mut a).await?;
    stage.stall(&mut a, cluster).await?;

    let mut b = stage.agent(cluster, "agent-b", false)?;
    let held_b = stage.acquired(&mut b).await?;
    ensure!(
        held_b.epoch() > held_a.epoch(),
        "B's epoch is not above A's"
    );
    b.step("computed").await?;
    b.go_on().await?;
    stage.written(&mut b, &held_b).await?;
    stage.done(b).await?;

    let old = cluster.leader().await?;
    cluster.kill(old)?;
    stage.tell(format!("kill -9 of node {old}, the Raft leader"));
    let new = cluster.leader().await?;
    ensure!(new != old, "a dead node leads");
    stage.tell(format!("node {new} leads"));

    stage.refused(a, &held_a).await?;
    let report = stage
        .reports
        .report(&stage.scope)?
        .context("there is no report")?;
    ensure!(
        report.author == "agent-b" && report.epoch == held_b.epoch(),
        "the report is {report:?}, not agent-b's"
    );
    stage.tell("the report is still agent-b's");

    let mut c = stage.agent(cluster, "agent-c", false)?;
    let held_c = stage.acquired(&mut c).await?;
    ensure!(
        held_c.epoch() > held_b.epoch(),
        "C's epoch is not above B's"
    );
    // Not the term alone: two nodes can lead in one term, one after the other.
    let place = |held: &Held| {
        let position = held.certificate.fence().position;
        (position.term, position.leader)
    };
    ensure!(
        place(&held_c) > place(&held_b) && place(&held_c).1 != old,
        "C's grant is not of a later leadership than B's"
    );
    c.step("computed").await?;
    c.go_on().await?;
    stage.written(&mut c, &held_c).await?;
    stage.done(c).await?;

    cluster.start_node(old)?;
    cluster.all_ready().await?;
    cluster.agreed().await?;
    stage.tell(format!("node {old} came back and agrees"));
    stage.judged()
}

/// A's late write reaches the resource before B's first: not refused, and B's still ends it.
///
/// # Errors
/// A promise was broken.
pub async fn other_order_without_barrier(cluster: &mut Cluster, teller: Teller) -> Result<()> {
    let mut stage = Stage::set(cluster, teller, "reports/no-barrier").await?;
    stage.tell("-- The other order, without a barrier");
    let mut a = stage.agent(cluster, "agent-a", false)?;
    let held_a = stage.acquired(&mut a).await?;
    stage.stall(&mut a, cluster).await?;
    let mut b = stage.agent(cluster, "agent-b", false)?;
    let held_b = stage.acquired(&mut b).await?;
    b.step("computed").await?;

    a.go_on().await?;
    a.resume()?;
    stage.tell("agent-a is resumed (SIGCONT) and tries its write");
    stage.written(&mut a, &held_a).await?;
    let fence = stage
        .reports
        .fence(&stage.scope)?
        .context("there is no fence")?;
    ensure!(
        fence.epoch.get() == held_a.epoch(),
        "the fence is not at A's epoch"
    );
    stage.tell(format!(
        "agent-a's late write was NOT refused: epoch {} has not reached the resource yet",
        held_b.epoch()
    ));
    let lost = a.step("lost").await?;
    ensure!(
        lost["reason"] == "SESSION_EXPIRED",
        "agent-a lost it for another reason: {lost}"
    );
    let ended = a.ended().await?;
    ensure!(
        ended.code() == Some(EXIT_SUPERSEDED),
        "agent-a ended with {ended}"
    );
    stage.tell("the cluster tells agent-a that its session is gone: it stops by itself");

    b.go_on().await?;
    stage.written(&mut b, &held_b).await?;
    stage.tell("from here on A is refused");
    let report = stage.reports.compute("agent-a", held_a.epoch())?;
    let guard = stage.guard();
    match stage
        .reports
        .write(&guard, &stage.scope, &held_a.token, &report)
    {
        Ok(_) => bail!(
            "a write under epoch {} came through after B's",
            held_a.epoch()
        ),
        Err(WriteError::Guard(error)) if error.reason() == Reason::EpochSuperseded => {
            stage.tell(format!("another write under A's certificate is {error}"));
        }
        Err(error) => return Err(error.into()),
    }
    stage.done(b).await?;
    stage.judged()
}

/// As above, but B raises the fence before its first write: A's late write is refused.
///
/// # Errors
/// A promise was broken.
pub async fn other_order_with_barrier(cluster: &mut Cluster, teller: Teller) -> Result<()> {
    let mut stage = Stage::set(cluster, teller, "reports/barrier").await?;
    stage.tell("-- The other order, with a barrier");
    let mut a = stage.agent(cluster, "agent-a", false)?;
    let held_a = stage.acquired(&mut a).await?;
    stage.stall(&mut a, cluster).await?;
    let mut b = stage.agent(cluster, "agent-b", true)?;
    let held_b = stage.acquired(&mut b).await?;
    let barrier = b.step("barrier").await?;
    ensure!(
        barrier["raised"] == true,
        "the barrier raised nothing: {barrier}"
    );
    stage
        .history
        .admitted(&held_b.certificate, AdmissionKind::Barrier);
    stage.tell(format!(
        "agent-b raised the fence to epoch {} before any write",
        held_b.epoch()
    ));
    b.step("computed").await?;

    stage.refused(a, &held_a).await?;
    ensure!(
        stage.reports.report(&stage.scope)?.is_none(),
        "there is a report before B's write"
    );
    b.go_on().await?;
    stage.written(&mut b, &held_b).await?;
    stage.done(b).await?;
    stage.judged()
}

impl Stage {
    async fn set(cluster: &Cluster, teller: Teller, scope: &str) -> Result<Self> {
        let database = cluster
            .path()
            .join(format!("{}.sqlite", scope.replace('/', "-")));
        let reports = Reports::create(&database)?;
        let client = cluster.library_client()?;
        let trust = TrustFollower::start(client, cluster.pin()?, TrustSettings::default()).await?;
        Ok(Self {
            teller,
            scope: Scope::parse(scope)?,
            database,
            reports,
            verifier: Arc::clone(trust.verifier()),
            history: History::default(),
        })
    }

    fn tell(&self, what: impl Display) {
        self.teller.tell(what);
    }

    fn guard(&self) -> SqliteGuard {
        SqliteGuard::new(Arc::clone(&self.verifier), SqliteSettings::default())
    }

    fn agent(&self, cluster: &Cluster, holder: &str, barrier: bool) -> Result<Agent> {
        let agent = Agent::start(&Task {
            holder,
            scope: self.scope.as_str(),
            endpoints: &cluster.endpoints(),
            pin: &cluster.pin()?,
            database: &self.database,
            ttl: TTL,
            barrier,
        })?;
        self.tell(format!("{holder} started, process {}", agent.process_id()?));
        Ok(agent)
    }

    /// Waits until an agent has the scope; verifies and records what it got.
    async fn acquired(&mut self, agent: &mut Agent) -> Result<Held> {
        let step = agent.step("acquired").await?;
        let token = text(&step, "certificate")?.to_owned();
        let certificate = self.verifier.verify(&token, clock::unix_ms())?;
        let holder = &certificate
            .grant()
            .context("the certificate is holderless")?
            .holder;
        ensure!(
            holder.as_str() == agent.holder(),
            "{holder} is not the agent"
        );
        ensure!(
            certificate.scope() == &self.scope,
            "the certificate is for another scope"
        );
        let (session, request_id) = (text(&step, "session_id")?, number(&step, "request_id")?);
        let (sent_ns, returned_ns) = (number(&step, "sent_ns")?, number(&step, "returned_ns")?);
        let span = Span {
            sent_ns,
            returned_ns,
        };
        self.history.acquired(
            &certificate,
            session.parse()?,
            RequestId::new(request_id)?,
            span,
        );
        self.tell(format!(
            "{holder} holds {} at epoch {}, granted by node {} in term {}",
            self.scope,
            certificate.epoch(),
            certificate.fence().position.leader,
            certificate.fence().position.term
        ));
        Ok(Held { token, certificate })
    }

    /// Stops an agent just before its write, and waits until the cluster has ended its session.
    async fn stall(&self, agent: &mut Agent, cluster: &Cluster) -> Result<()> {
        agent.step("computed").await?;
        self.tell(format!("{} has computed its report", agent.holder()));
        agent.pause().await?;
        self.tell(format!(
            "{} is stopped (SIGSTOP) before its write",
            agent.holder()
        ));
        let client = cluster.client(cluster.leader().await?)?;
        wait::until("the agent's session expires", async || {
            let state = client.scope(self.scope.as_str()).await?;
            ensure!(state["held"] == false, "the scope is still held: {state}");
            Ok(())
        })
        .await?;
        self.tell(format!(
            "{}'s session has expired; the scope is free",
            agent.holder()
        ));
        Ok(())
    }

    /// Resumes a stalled agent: its write has to be refused, the reason kept, and it has to stop.
    async fn refused(&mut self, mut agent: Agent, held: &Held) -> Result<()> {
        let holder = agent.holder().to_owned();
        agent.go_on().await?;
        agent.resume()?;
        self.tell(format!("{holder} is resumed (SIGCONT) and tries its write"));
        let refused = agent.step("refused").await?;
        ensure!(
            refused["reason"] == "EPOCH_SUPERSEDED",
            "another reason: {refused}"
        );
        self.tell(format!("{holder} was {}", text(&refused, "message")?));
        let ended = agent.ended().await?;
        ensure!(
            ended.code() == Some(EXIT_SUPERSEDED),
            "{holder} ended with {ended}"
        );
        self.tell(format!(
            "{holder} stopped by itself, exit code {EXIT_SUPERSEDED}"
        ));
        let kept = self.reports.refusals()?;
        let kept = kept.first().context("the refusal was not kept")?;
        ensure!(
            kept.reason == "EPOCH_SUPERSEDED"
                && kept.holder.as_deref() == Some(holder.as_str())
                && kept.epoch == Some(held.epoch()),
            "another refusal was kept: {kept:?}"
        );
        self.tell(format!(
            "the resource keeps: {holder}, epoch {}, {}",
            held.epoch(),
            kept.reason
        ));
        Ok(())
    }

    /// Waits until an agent's write went through.
    async fn written(&mut self, agent: &mut Agent, held: &Held) -> Result<()> {
        agent.step("written").await?;
        self.history
            .admitted(&held.certificate, AdmissionKind::Write);
        self.tell(format!(
            "{} wrote its report under epoch {}",
            agent.holder(),
            held.epoch()
        ));
        Ok(())
    }

    /// Waits until an agent has given the scope back and ended.
    async fn done(&self, mut agent: Agent) -> Result<()> {
        let holder = agent.holder().to_owned();
        let released = agent.step("released").await?;
        ensure!(
            released["released"] == true,
            "{holder} had nothing to release: {released}"
        );
        let ended = agent.ended().await?;
        ensure!(ended.success(), "{holder} ended with {ended}");
        self.tell(format!("{holder} gave the scope back and ended"));
        Ok(())
    }

    /// Checks the promises over all that was granted here, and what the resource is left with.
    fn judged(&self) -> Result<()> {
        self.history.check()?;
        let fence = self
            .reports
            .fence(&self.scope)?
            .context("there is no fence")?;
        ensure!(
            Some(fence.epoch) == self.history.highest_epoch(),
            "the fence is {fence:?}"
        );
        let report = self
            .reports
            .report(&self.scope)?
            .context("there is no report")?;
        ensure!(
            report.epoch == fence.epoch.get(),
            "the report is {report:?} under {fence:?}"
        );
        if self.reports.bypass(&self.scope).is_ok() {
            bail!("a write without the guard changed the report");
        }
        self.tell("a write around the guard is refused by the table itself");
        self.tell(format!(
            "{} grants: unique and rising; the report is of the last",
            self.history.grants()
        ));
        Ok(())
    }
}
