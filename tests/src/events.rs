//! A watch over raw gRPC that trusts no node: every event once, in order, over reconnects.

use std::mem;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use epoch_core::{Cursor, Reason};
use epoch_proto::reason_of;
use epoch_proto::v1::epoch_service_client::EpochServiceClient;
use epoch_proto::v1::{Event, WatchRequest, WatchResponse};
use tonic::transport::Channel;
use tonic::{Status, Streaming};

use crate::caller;
use crate::cluster::Cluster;
use crate::wait;

/// A node says something once a second.
const SILENCE_MAX: Duration = Duration::from_secs(5);
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// A watch of the scopes that begin with a text.
#[derive(Debug)]
pub struct Tail {
    nodes: Vec<Channel>,
    /// The node asked, counted round and round.
    at: usize,
    prefix: String,
    /// Everything up to here was received, so that nothing up to here may come again.
    after: Option<Cursor>,
    received: Vec<Event>,
    stream: Option<Streaming<WatchResponse>>,
    reconnects: usize,
}

impl Tail {
    /// Begins a watch from now on, on node `at` (counted from 0) of `nodes`.
    ///
    /// # Errors
    /// No node serves it.
    pub async fn begin(nodes: Vec<Channel>, at: usize, prefix: &str) -> Result<Self> {
        let mut tail = Self {
            nodes,
            at,
            prefix: prefix.to_owned(),
            after: None,
            received: Vec::new(),
            stream: None,
            reconnects: 0,
        };
        // The first answer comes at once, and says from where.
        tail.received = tail.answer().await?;
        Ok(tail)
    }

    /// The same, over connections of its own to all nodes of a cluster.
    ///
    /// # Errors
    /// As for [`begin`](Self::begin).
    pub async fn of(cluster: &Cluster, prefix: &str) -> Result<Self> {
        let nodes = cluster.clients();
        let nodes = nodes.iter().map(|node| caller::channel(node.url()));
        Self::begin(nodes.collect::<Result<_>>()?, 0, prefix).await
    }

    /// The next events, one at least.
    ///
    /// # Errors
    /// An event came twice or out of order, or the cluster has forgotten what follows.
    pub async fn next(&mut self) -> Result<Vec<Event>> {
        while self.received.is_empty() {
            self.received = self.answer().await?;
        }
        Ok(mem::take(&mut self.received))
    }

    /// All events up to one that is waited for.
    ///
    /// # Errors
    /// As for [`next`](Self::next); and when it does not come in time.
    pub async fn until(&mut self, last: impl Fn(&Event) -> bool) -> Result<Vec<Event>> {
        let mut events = Vec::new();
        let reading = async {
            while !events.last().is_some_and(&last) {
                events.append(&mut self.next().await?);
            }
            anyhow::Ok(())
        };
        let read = tokio::time::timeout(wait::BOUND, reading).await;
        read.with_context(|| format!("the last event did not come, but: {events:?}"))??;
        Ok(events)
    }

    /// How often another stream had to be opened.
    #[must_use]
    pub fn reconnects(&self) -> usize {
        self.reconnects
    }

    async fn answer(&mut self) -> Result<Vec<Event>> {
        loop {
            match self.attempt().await {
                Ok(answer) => return self.take(answer),
                Err(status) => {
                    if reason_of(&status) == Some(Reason::WatchCompacted) {
                        bail!("after {:?}: {status}", self.after);
                    }
                    self.stream = None;
                    self.at += 1;
                    self.reconnects += 1;
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
            }
        }
    }

    async fn attempt(&mut self) -> Result<WatchResponse, Status> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            None => {
                let node = self
                    .nodes
                    .iter()
                    .cycle()
                    .nth(self.at % self.nodes.len().max(1));
                let node = node.ok_or_else(|| Status::internal("no nodes"))?;
                let request = WatchRequest {
                    prefix: self.prefix.clone(),
                    after: self.after.map(|cursor| cursor.to_string()),
                    ..WatchRequest::default()
                };
                let opened = EpochServiceClient::new(node.clone()).watch(request).await?;
                self.stream.insert(opened.into_inner())
            }
        };
        match tokio::time::timeout(SILENCE_MAX, stream.message()).await {
            Ok(Ok(Some(answer))) => Ok(answer),
            Ok(Ok(None)) => Err(Status::unavailable("the node ended the watch")),
            Ok(Err(status)) => Err(status),
            Err(_elapsed) => Err(Status::deadline_exceeded("the node has fallen silent")),
        }
    }

    fn take(&mut self, answer: WatchResponse) -> Result<Vec<Event>> {
        for event in &answer.events {
            let cursor: Cursor = event.cursor.parse()?;
            ensure!(
                self.after < Some(cursor),
                "everything up to {:?} was received, and then came {event:?}",
                self.after
            );
            self.after = Some(cursor);
        }
        let said: Cursor = answer.cursor.parse()?;
        ensure!(
            self.after <= Some(said),
            "after {:?} the node said {said}",
            self.after
        );
        self.after = Some(said);
        Ok(answer.events)
    }
}
