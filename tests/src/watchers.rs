//! Many watches of the same scopes, half over the client library and half over raw streams spread
//! over the nodes.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use anyhow::{Context as _, Result, ensure};
use epoch_client::{Client, Watch, Watched};
use epoch_proto::v1::Event;
use tokio::task::JoinSet;
use tonic::transport::Channel;

use crate::caller;
use crate::cluster::Cluster;
use crate::events::Tail;
use crate::scale;
use crate::wait;

/// Watches that share connections.
const PER_CONNECTION: usize = 100;

/// Watches that have begun: whatever happens from now on, each has to tell of it.
#[derive(Debug)]
pub struct Watchers {
    watchers: Vec<Watcher>,
}

#[derive(Debug)]
enum Watcher {
    Client(Box<Watch>),
    Raw(Box<Tail>),
}

/// What one watcher was told.
#[derive(Debug, Default)]
struct Seen {
    /// A hash of every event, in order.
    events: Vec<u64>,
    reconnects: usize,
}

impl Watchers {
    /// Begins `count` watches of the scopes that begin with `prefix`.
    ///
    /// # Errors
    /// One is refused.
    pub async fn begin(cluster: &Cluster, count: usize, prefix: &str) -> Result<Self> {
        let mut beginning = JoinSet::new();
        let mut begun = 0;
        while begun < count {
            let client = scale::client(&cluster.endpoints())?;
            let nodes = cluster.clients();
            let nodes = nodes.iter().map(|node| caller::channel(node.url()));
            let nodes: Vec<Channel> = nodes.collect::<Result<_>>()?;
            for number in begun..count.min(begun + PER_CONNECTION) {
                let prefix = prefix.to_owned();
                if number % 2 == 0 {
                    beginning.spawn(through(client.clone(), prefix));
                } else {
                    beginning.spawn(raw(nodes.clone(), number / 2, prefix));
                }
            }
            begun += PER_CONNECTION;
        }
        let mut watchers = Vec::new();
        while let Some(watcher) = beginning.join_next().await {
            watchers.push(watcher??);
        }
        Ok(Self { watchers })
    }

    /// Reads on in the background.
    #[must_use]
    pub fn read(self, last_scope: &str) -> Reading {
        let mut reading = JoinSet::new();
        for watcher in self.watchers {
            reading.spawn(watcher.read(last_scope.to_owned()));
        }
        Reading { reading }
    }
}

async fn through(client: Client, prefix: String) -> Result<Watcher> {
    let watch = client.watch(Watched::Prefix(prefix), None).await?;
    Ok(Watcher::Client(Box::new(watch)))
}

async fn raw(nodes: Vec<Channel>, at: usize, prefix: String) -> Result<Watcher> {
    let tail = Tail::begin(nodes, at, &prefix).await?;
    Ok(Watcher::Raw(Box::new(tail)))
}

impl Watcher {
    /// Everything up to the first event of `last_scope`.
    async fn read(mut self, last_scope: String) -> Result<Seen> {
        let mut seen = Seen::default();
        loop {
            for event in self.next().await? {
                seen.events.push(digest(&event));
                if event.scope == last_scope {
                    if let Self::Raw(tail) = &self {
                        seen.reconnects = tail.reconnects();
                    }
                    return Ok(seen);
                }
            }
        }
    }

    async fn next(&mut self) -> Result<Vec<Event>> {
        match self {
            Self::Client(watch) => Ok(vec![watch.next().await?.into()]),
            Self::Raw(tail) => tail.next().await,
        }
    }
}

fn digest(event: &Event) -> u64 {
    let mut hasher = DefaultHasher::new();
    event.hash(&mut hasher);
    hasher.finish()
}

/// Watches that are being read.
#[derive(Debug)]
pub struct Reading {
    reading: JoinSet<Result<Seen>>,
}

impl Reading {
    /// Waits until all have seen the last event, and checks that each has seen exactly `events`, in
    /// order; how often those over raw streams had to reconnect.
    ///
    /// # Errors
    /// One has seen something else.
    pub async fn saw(mut self, events: &[Event]) -> Result<usize> {
        let expected: Vec<u64> = events.iter().map(digest).collect();
        let mut reconnects = 0;
        let all = async {
            while let Some(seen) = self.reading.join_next().await {
                let seen = seen??;
                let pairs = seen.events.iter().zip(&expected);
                let same = pairs
                    .take_while(|(seen, expected)| seen == expected)
                    .count();
                ensure!(
                    seen.events.len() == expected.len() && same == expected.len(),
                    "one of the watches told of {} events, not {}, and of another one than {:?}",
                    seen.events.len(),
                    expected.len(),
                    events.get(same)
                );
                reconnects += seen.reconnects;
            }
            Ok(())
        };
        let all = tokio::time::timeout(wait::BOUND, all).await;
        all.context("not every watch has come to the last event")??;
        Ok(reconnects)
    }
}
