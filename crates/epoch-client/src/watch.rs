//! Watching scopes: each event once and in order, over reconnects and failovers.

mod compaction;

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use backon::ExponentialBackoff;
use epoch_core::{Cursor, Reason, Scope};
use epoch_proto::v1;
use epoch_proto::v1::epoch_service_client::EpochServiceClient;
use tokio::time::{Instant, timeout, timeout_at};
use tonic::{Code, Status, Streaming};

use crate::call::{refused, said};
use crate::client::Client;
use crate::error::Error;
use crate::event::Event;
use crate::pool::Node;
use crate::retry::{Verdict, pauses};
use compaction::Compaction;

/// A node says about once a second how far the log has got. One that says nothing for so long is
/// cut off, or stopped: the next one is asked.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// What is watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Watched {
    /// Every scope.
    All,
    /// This scope only.
    Scope(Scope),
    /// Scopes that begin with this text, byte by byte.
    Prefix(String),
}

/// Events from one point of the log on: each once and in the order of the log, whatever happens to
/// nodes and connections meanwhile.
///
/// Nothing is read ahead beyond one answer of the node: who is slow falls behind on the node's
/// side, goes on from there, and gets `WATCH_COMPACTED` once the node has forgotten what follows.
#[derive(Debug)]
pub struct Watch {
    client: Client,
    watched: Watched,
    /// Everything up to here has been received.
    after: Option<Cursor>,
    received: VecDeque<Event>,
    stream: Option<(Arc<Node>, Streaming<v1::WatchResponse>)>,
    opening: Option<(Arc<Node>, Opening)>,
    /// Since when the stream's next answer has been waited for.
    waiting: Option<Instant>,
    compaction: Compaction,
    pub(crate) silence_max: Duration,
}

impl Client {
    /// Watches scopes, right after a cursor: of an event, or of a list. Without one, from now on:
    /// what happens after this has returned is seen.
    ///
    /// # Errors
    /// As for every call.
    pub async fn watch(&self, watched: Watched, after: Option<Cursor>) -> Result<Watch, Error> {
        let mut watch = Watch {
            client: self.clone(),
            watched,
            after,
            received: VecDeque::new(),
            stream: None,
            opening: None,
            waiting: None,
            compaction: Compaction::default(),
            silence_max: SILENCE_MAX,
        };
        if after.is_none() {
            // The first answer says from where: until then, no reconnect could go on there.
            watch.receive().await?;
        }
        Ok(watch)
    }
}

impl Watch {
    /// The next event. It may be dropped while it waits: nothing is lost by it.
    ///
    /// # Errors
    /// `WATCH_COMPACTED` when what follows is not known to the cluster any more, as far as its nodes
    /// can be reached: list the scopes, and watch after that list's cursor. Unavailable when no node
    /// has answered for the time of a call: asking again goes on where this ended. Any other
    /// refusal.
    pub async fn next(&mut self) -> Result<Event, Error> {
        loop {
            if let Some(event) = self.received.pop_front() {
                return Ok(event);
            }
            self.receive().await?;
        }
    }

    /// Everything up to here has been received, whether it was an event of these scopes or not. To
    /// go on in another process, take the cursor of the last event that was dealt with.
    #[must_use]
    pub fn cursor(&self) -> Option<Cursor> {
        self.after
    }

    /// Receives one answer, over a new stream if need be.
    async fn receive(&mut self) -> Result<(), Error> {
        let deadline = Instant::now() + self.client.options().deadline + self.silence_max;
        let mut pauses = pauses();
        loop {
            let (node, status) = match self.attempt().await {
                Ok(answer) => {
                    let taken = self.take(answer);
                    if taken.is_err() {
                        // Its events are not to be passed over: the next attempt asks for them.
                        self.stream = None;
                    }
                    return taken;
                }
                Err(failed) => failed,
            };
            self.stream = None;
            self.failed(&node, status, deadline, &mut pauses).await?;
        }
    }

    /// Passes on to the next node; an error ends it.
    // By `&mut`, since a watch is not `Sync`: one that is awaited has to go from thread to thread.
    async fn failed(
        &mut self,
        node: &Arc<Node>,
        status: Status,
        deadline: Instant,
        pauses: &mut ExponentialBackoff,
    ) -> Result<(), Error> {
        let verdict = self.client.pool().judge(node, &status);
        if epoch_proto::reason_of(&status) == Some(Reason::WatchCompacted) {
            self.compaction.said(node, status.clone());
        } else {
            self.compaction.unserved(node);
            if matches!(verdict, Verdict::Refused | Verdict::Failed) {
                return Err(refused(&status));
            }
        }
        let pause = pauses.next().unwrap_or_default();
        let is_late = Instant::now() + pause >= deadline;
        if let Some(said) = self.compaction.last()
            && (is_late || self.compaction.next(self.client.pool().known()).is_none())
        {
            let error = refused(said);
            self.compaction = Compaction::default();
            return Err(error);
        }
        if is_late {
            let asked = self.client.pool().shown();
            let message = format!("no node of {asked} serves the watch: {}", said(&status));
            return Err(Error::unavailable(epoch_proto::reason_of(&status), message));
        }
        tracing::debug!(node = %node.endpoint, error = status.message(), "watching again");
        tokio::time::sleep(pause).await;
        Ok(())
    }

    /// The next answer of the stream, which is opened when there is none.
    async fn attempt(&mut self) -> Result<v1::WatchResponse, (Arc<Node>, Status)> {
        let (node, stream) = match &mut self.stream {
            Some(open) => open,
            None => {
                // Kept until it is open: a caller that asks for a moment at a time gets there too.
                let (node, opening) = self.opening.get_or_insert_with(|| {
                    let pool = self.client.pool();
                    let next = self.compaction.next(pool.known());
                    let node = next.unwrap_or_else(|| pool.pick());
                    let opening = open(
                        self.client.clone(),
                        self.watched.clone(),
                        self.after,
                        Arc::clone(&node),
                    );
                    (node, Opening(Box::pin(opening)))
                });
                let node = Arc::clone(node);
                let opened = opening.0.as_mut().await;
                self.opening = None;
                match opened {
                    Ok(stream) => self.stream.insert((node, stream)),
                    Err(status) => return Err((node, status)),
                }
            }
        };
        // Counted over calls that were dropped: a caller that asks for a moment at a time leaves a
        // node that says nothing as well.
        let waiting = *self.waiting.get_or_insert_with(Instant::now);
        let answer = timeout_at(waiting + self.silence_max, stream.message()).await;
        self.waiting = None;
        let answer = match answer {
            Ok(Ok(Some(answer))) => return Ok(answer),
            Ok(Ok(None)) => Status::unavailable("the node ended the watch"),
            Ok(Err(status)) => status,
            Err(_elapsed) => Status::deadline_exceeded("the node has fallen silent"),
        };
        Err((Arc::clone(node), answer))
    }

    /// Takes over an answer's events. What has been received before is passed over, and a node
    /// that is behind takes the cursor nowhere.
    fn take(&mut self, answer: v1::WatchResponse) -> Result<(), Error> {
        let malformed = |what: String| {
            let message = format!("the node's answer to Watch is malformed: {what}");
            Error::protocol(Code::Internal, message)
        };
        let events: Result<Vec<_>, _> = answer.events.into_iter().map(Event::read).collect();
        let said: Result<Cursor, _> = answer.cursor.parse();
        let events = events.map_err(malformed)?;
        let said = said.map_err(|error| malformed(error.to_string()))?;
        let before = self.after;
        for event in events {
            if self.after < Some(event.cursor) {
                self.after = Some(event.cursor);
                self.received.push_back(event);
            }
        }
        self.after = self.after.max(Some(said));
        // One that takes the cursor nowhere proves nothing: a node whose log does not come to the
        // cursor says so only after a while of such answers.
        if self.after > before {
            self.compaction = Compaction::default();
        }
        Ok(())
    }
}

async fn open(
    client: Client,
    watched: Watched,
    after: Option<Cursor>,
    node: Arc<Node>,
) -> Result<Streaming<v1::WatchResponse>, Status> {
    let (scope, prefix) = match watched {
        Watched::All => (String::new(), String::new()),
        Watched::Scope(scope) => (scope.as_str().to_owned(), String::new()),
        Watched::Prefix(prefix) => (String::new(), prefix),
    };
    let request = v1::WatchRequest {
        scope,
        prefix,
        after: after.map(|cursor| cursor.to_string()),
    };
    let mut service = EpochServiceClient::new(node.channel.clone());
    let opening = service.watch(request);
    match timeout(client.options().attempt_timeout, opening).await {
        Ok(Ok(response)) => {
            client.pool().answered(&node, response.metadata());
            Ok(response.into_inner())
        }
        Ok(Err(status)) => Err(status),
        Err(_elapsed) => Err(Status::deadline_exceeded("the node did not answer in time")),
    }
}

/// A stream on its way.
struct Opening(Pin<Box<dyn Future<Output = Result<Streaming<v1::WatchResponse>, Status>> + Send>>);

impl fmt::Debug for Opening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Opening")
    }
}
