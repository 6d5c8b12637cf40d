//! Many scopes and sessions: held by the million, kept alive, and taken and released from a pool of
//! a million names.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use epoch_client::{Client, Endpoint, Options, Session};
use epoch_core::Holder;
use epoch_proto::v1::{AcquireRequest, OpenRequest, ReleaseRequest};
use futures::{StreamExt as _, TryStreamExt as _};
use hdrhistogram::Histogram;
use rand::RngExt as _;
use tokio::task::JoinSet;

use crate::{clock, seed};

/// Outlives every run: nobody keeps these sessions alive.
const TTL_SECONDS: i64 = 24 * 3_600;
/// A node's restart, an election and a slow disk fit in it.
const DEADLINE: Duration = Duration::from_secs(60);

/// A client of all `endpoints`, given as the command line takes them.
///
/// # Errors
/// One of them is not an endpoint.
pub fn client(endpoints: &str) -> Result<Client> {
    let endpoints: Vec<Endpoint> = endpoints
        .split(',')
        .map(str::parse)
        .collect::<Result<_, _>>()?;
    let options = Options {
        deadline: DEADLINE,
        ..Options::default()
    };
    Ok(Client::connect(endpoints, options)?)
}

/// Opens a session that outlives the run; its id.
///
/// # Errors
/// It is refused.
pub async fn open(client: &Client, holder: &str) -> Result<String> {
    let request = OpenRequest {
        holder: holder.to_owned(),
        ttl: Some(prost_types::Duration {
            seconds: TTL_SECONDS,
            nanos: 0,
        }),
        open_id: None,
        ..OpenRequest::default()
    };
    Ok(client.open(request).await?.session_id)
}

/// Takes a scope; its epoch.
///
/// # Errors
/// It is refused.
pub async fn acquire(client: &Client, scope: &str, session: &str, request_id: u64) -> Result<u64> {
    let request = AcquireRequest {
        scope: scope.to_owned(),
        session_id: session.to_owned(),
        request_id,
        ..AcquireRequest::default()
    };
    Ok(client.acquire(request).await?.epoch)
}

/// Gives a grant back.
///
/// # Errors
/// It is refused.
pub async fn release(client: &Client, scope: &str, session: &str, epoch: u64) -> Result<()> {
    let request = ReleaseRequest {
        scope: scope.to_owned(),
        session_id: session.to_owned(),
        epoch,
    };
    client.release(request).await?;
    Ok(())
}

/// The name of scope `number`, `bytes` long.
#[must_use]
pub fn name(prefix: &str, number: u64, bytes: usize) -> String {
    let width = bytes.saturating_sub(prefix.len() + 1);
    format!("{prefix}/{number:0width$}")
}

/// Takes `scopes` names of `bytes` bytes in `sessions` sessions, `clients` at once, and leaves
/// them held.
///
/// # Errors
/// A grant is refused.
pub async fn hold(
    client: &Client,
    prefix: &str,
    (sessions, scopes): (u64, u64),
    bytes: usize,
    clients: u64,
) -> Result<()> {
    let next = Arc::new(AtomicU64::new(0));
    let mut ids = Vec::new();
    for number in 0..sessions {
        ids.push(open(client, &format!("holder-{number}")).await?);
    }
    let ids = Arc::new(ids);
    let mut tasks = JoinSet::new();
    for _ in 0..clients {
        let (client, ids, next) = (client.clone(), Arc::clone(&ids), Arc::clone(&next));
        let prefix = prefix.to_owned();
        tasks.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= scopes {
                    return anyhow::Ok(());
                }
                let at = usize::try_from(number % sessions)?;
                let session = ids.get(at).context("no session")?;
                let scope = name(&prefix, number, bytes);
                acquire(&client, &scope, session, number / sessions + 1).await?;
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task??;
    }
    Ok(())
}

/// What came of [`keep_alive`].
#[derive(Debug)]
pub struct KeptAlive {
    /// Of each process, the share of one core that it took.
    pub shares: Vec<f64>,
    /// Sessions that were lost.
    pub lost: usize,
    /// What the log grew by.
    pub entries: u64,
}

/// Opens `sessions` sessions of `ttl`, keeps them alive for two of these to settle, and measures
/// for `time` after that.
///
/// # Errors
/// A session is refused, or a process is gone.
pub async fn keep_alive(
    client: &Client,
    sessions: u64,
    ttl: Duration,
    time: Duration,
    processes: &[u32],
) -> Result<KeptAlive> {
    const AT_ONCE: usize = 64;
    let opened: Vec<Session> = futures::stream::iter(0..sessions)
        .map(|number| async move {
            let holder: Holder = format!("host-{number}").parse()?;
            anyhow::Ok(client.open_session(&holder, ttl).await?)
        })
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await?;
    tokio::time::sleep(2 * ttl).await;
    let applied = || async { anyhow::Ok(client.status().await?.applied) };
    let measure = || -> Result<Vec<Duration>> {
        processes
            .iter()
            .map(|pid| clock::of_process(*pid))
            .collect()
    };
    let (before, entries) = (measure()?, applied().await?);
    let begun = clock::boot();
    tokio::time::sleep(time).await;
    let elapsed = (clock::boot() - begun).as_secs_f64();
    let after = measure()?;
    let entries = applied().await? - entries;
    let share = |(before, after): (Duration, Duration)| (after - before).as_secs_f64() / elapsed;
    Ok(KeptAlive {
        shares: before.into_iter().zip(after).map(share).collect(),
        lost: opened.iter().filter(|one| one.loss().is_some()).count(),
        entries,
    })
}

/// Acquire latency, in microseconds: `clients` at once take and release scopes of their own for
/// `time`.
///
/// # Errors
/// A call fails.
pub async fn latency(client: &Client, clients: u64, time: Duration) -> Result<Histogram<u64>> {
    let until = clock::boot_ns() + u64::try_from(time.as_nanos())?;
    let mut tasks = JoinSet::new();
    for number in 0..clients {
        let client = client.clone();
        tasks.spawn(async move {
            let mut seen = Histogram::<u64>::new(3)?;
            let session = open(&client, &format!("measure-{number}")).await?;
            for request_id in 1.. {
                if clock::boot_ns() >= until {
                    break;
                }
                let scope = format!("measure/{number}/{}", request_id % 100);
                let begun = clock::boot_ns();
                let epoch = acquire(&client, &scope, &session, request_id).await?;
                seen.record((clock::boot_ns() - begun) / 1_000)?;
                release(&client, &scope, &session, epoch).await?;
            }
            anyhow::Ok(seen)
        });
    }
    let mut all = Histogram::<u64>::new(3)?;
    while let Some(task) = tasks.join_next().await {
        all.add(task??)?;
    }
    Ok(all)
}

/// What a [`churn`] did.
#[derive(Debug, Clone, Copy, Default)]
pub struct Churned {
    /// Grants made and released.
    pub grants: u64,
    /// How many of them were of a name that had been granted before.
    pub again: u64,
}

/// `clients` at once take and release names drawn from a pool of `names` for `time`; each grant
/// of a name must have a higher epoch than the one before, however long ago it was forgotten.
///
/// # Errors
/// A call fails, or an epoch went back.
pub async fn churn(
    client: &Client,
    names: u64,
    clients: u64,
    time: Duration,
    draw: u64,
) -> Result<Churned> {
    let until = clock::boot_ns() + u64::try_from(time.as_nanos())?;
    let mut tasks = JoinSet::new();
    for number in 0..clients {
        let client = client.clone();
        // Names of its own: two that want one name at once would only be refused.
        let share = names / clients;
        let first = number * share;
        tasks.spawn(async move {
            let mut random = seed::source(draw, number);
            let mut last = vec![0_u64; usize::try_from(share)?];
            let mut churned = Churned::default();
            let session = open(&client, &format!("churn-{number}")).await?;
            for request_id in 1.. {
                if clock::boot_ns() >= until {
                    break;
                }
                let at = random.random_range(0..last.len());
                let scope = name("churn", first + u64::try_from(at)?, 64);
                let epoch = acquire(&client, &scope, &session, request_id).await?;
                let last = last.get_mut(at).context("drawn from it")?;
                ensure!(
                    epoch > *last,
                    "{scope} had epoch {last}, and now has {epoch}"
                );
                churned.again += u64::from(*last > 0);
                *last = epoch;
                release(&client, &scope, &session, epoch).await?;
                churned.grants += 1;
            }
            anyhow::Ok(churned)
        });
    }
    let mut all = Churned::default();
    while let Some(task) = tasks.join_next().await {
        let churned = task??;
        all.grants += churned.grants;
        all.again += churned.again;
    }
    Ok(all)
}
