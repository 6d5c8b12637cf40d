//! Streams of keepalives, one at a time in use.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use epoch_core::SessionId;
use epoch_proto::v1::session_service_client::SessionServiceClient;
use epoch_proto::v1::{KeepAliveRequest, KeepAliveResponse};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Status;

use super::schedule::Asked;
use crate::client::ended;
use crate::pool::{Node, Pool};

/// For how long a stream is used. Only the beginning of an answer names the leader, so that a
/// leader that has handed on its lead and passes keepalives on is left within this time.
const AGE_MS_MAX: u64 = 30_000;
/// Answers that wait to be handled; more wait in the connection.
const ANSWERS_MAX: usize = 1_024;
/// Streams that are listened to after nothing more is asked on them: an answer may take as long as
/// a few attempts.
const LEFT_MAX: usize = 3;

/// What has come on a stream.
#[derive(Debug)]
pub(super) enum Event {
    Answer(KeepAliveResponse),
    Ended(Status),
}

/// The stream in use, and those before it, whose last answers still count.
pub(super) struct Streams {
    pool: Arc<Pool>,
    next_number: u64,
    current: Option<Stream>,
    /// The oldest first.
    left: VecDeque<Stream>,
    sender: mpsc::Sender<(u64, Event)>,
    /// With the number of the stream.
    pub(super) events: mpsc::Receiver<(u64, Event)>,
}

struct Stream {
    number: u64,
    node: Arc<Node>,
    opened_ms: u64,
    /// Absent once no more is asked on it. Bounded by the sessions: each has one request under way.
    requests: Option<mpsc::UnboundedSender<KeepAliveRequest>>,
    /// The request that each session has sent on it and that has no answer. It is the only one, so
    /// that an answer is to that one: a session that gives a request up asks on another stream.
    asked: BTreeMap<SessionId, Asked>,
    served_ms: Option<u64>,
    reader: AbortHandle,
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// Names the stream in use.
#[derive(Debug, Clone, Copy)]
pub(super) struct Current(u64);

impl Current {
    pub(super) fn asked(self, sent_ms: u64, progress: Option<u64>) -> Asked {
        Asked {
            stream: self.0,
            sent_ms,
            progress,
        }
    }
}

impl Streams {
    pub(super) fn new(pool: Arc<Pool>) -> Self {
        let (sender, events) = mpsc::channel(ANSWERS_MAX);
        Self {
            pool,
            next_number: 0,
            current: None,
            left: VecDeque::new(),
            sender,
            events,
        }
    }

    /// The stream in use; a new one to the node that is to be asked next if there is none.
    pub(super) fn current(&mut self, now_ms: u64) -> Current {
        let number = match &self.current {
            Some(current) => current.number,
            None => {
                let stream = self.open(now_ms);
                self.current.insert(stream).number
            }
        };
        Current(number)
    }

    fn open(&mut self, now_ms: u64) -> Stream {
        self.next_number += 1;
        let node = self.pool.pick();
        let (requests, receiver) = mpsc::unbounded_channel();
        let reader = tokio::spawn(read(
            self.next_number,
            Arc::clone(&self.pool),
            Arc::clone(&node),
            receiver,
            self.sender.clone(),
        ));
        Stream {
            number: self.next_number,
            node,
            opened_ms: now_ms,
            requests: Some(requests),
            asked: BTreeMap::new(),
            served_ms: None,
            reader: reader.abort_handle(),
        }
    }

    /// How many keepalives may be sent now, if `probes` may be under way on a stream whose node
    /// has not served any.
    pub(super) fn room(&self, probes: usize) -> usize {
        match &self.current {
            Some(current) if current.served_ms.is_some() => usize::MAX,
            Some(current) => probes.saturating_sub(current.asked.len()),
            None => probes,
        }
    }

    /// Sends on the stream in use.
    pub(super) fn send(&mut self, id: SessionId, asked: Asked, request: KeepAliveRequest) {
        if let Some(current) = &mut self.current {
            current.asked.insert(id, asked);
            if let Some(requests) = &current.requests {
                // A stream that has ended says so by its event.
                drop(requests.send(request));
            }
        }
    }

    /// What the session asked on that stream, now that there is an answer; also when it was given
    /// up meanwhile.
    pub(super) fn answered(&mut self, number: u64, id: SessionId) -> Option<Asked> {
        self.stream(number)?.asked.remove(&id)
    }

    /// No answer counts for that session any more.
    pub(super) fn forget(&mut self, id: SessionId) {
        for stream in self.current.iter_mut().chain(&mut self.left) {
            stream.asked.remove(&id);
        }
    }

    /// The node of that stream has served a request.
    pub(super) fn served(&mut self, number: u64, now_ms: u64) {
        if let Some(stream) = self.stream(number) {
            stream.served_ms = Some(now_ms);
        }
    }

    /// Whether the node of that stream has served a request since `sent_ms`.
    pub(super) fn served_since(&mut self, number: u64, sent_ms: u64) -> bool {
        let served_ms = self.stream(number).and_then(|stream| stream.served_ms);
        served_ms.is_some_and(|served_ms| served_ms > sent_ms)
    }

    /// The stream in use, if another is to be opened instead.
    pub(super) fn outdated(&self, now_ms: u64) -> Option<u64> {
        let current = self.current.as_ref()?;
        let aged = now_ms.saturating_sub(current.opened_ms) > AGE_MS_MAX;
        // A forwarded keepalive costs one more hop.
        let elsewhere = || self.pool.pick().endpoint != current.node.endpoint;
        (aged || elsewhere()).then_some(current.number)
    }

    /// Nothing more is asked on that stream; what is under way is awaited. The stream that is not
    /// listened to any more for it, if any.
    pub(super) fn leave(&mut self, number: u64) -> Option<u64> {
        let mut stream = self.current.take_if(|stream| stream.number == number)?;
        // The node answers what it has, and ends the stream.
        stream.requests = None;
        self.left.push_back(stream);
        if self.left.len() <= LEFT_MAX {
            return None;
        }
        self.left.pop_front().map(|stream| stream.number)
    }

    /// That stream has ended, or its node does not serve. Whether it was the one in use.
    pub(super) fn failed(&mut self, number: u64, status: &Status) -> bool {
        self.left.retain(|stream| stream.number != number);
        let failed = self.current.take_if(|stream| stream.number == number);
        if let Some(stream) = &failed {
            let _ = self.pool.judge(&stream.node, status);
        }
        failed.is_some()
    }

    /// The node of that stream has not answered in time. Whether it is the one in use; then it is
    /// to be left.
    pub(super) fn unanswered(&self, number: u64) -> bool {
        let current = self.current.as_ref();
        let current = current.filter(|stream| stream.number == number);
        if let Some(stream) = current {
            self.pool.unanswered(&stream.node);
        }
        current.is_some()
    }

    /// Nobody needs a stream.
    pub(super) fn close(&mut self) {
        self.current = None;
        self.left.clear();
    }

    fn stream(&mut self, number: u64) -> Option<&mut Stream> {
        let mut streams = self.current.iter_mut().chain(&mut self.left);
        streams.find(|stream| stream.number == number)
    }
}

async fn read(
    number: u64,
    pool: Arc<Pool>,
    node: Arc<Node>,
    requests: mpsc::UnboundedReceiver<KeepAliveRequest>,
    events: mpsc::Sender<(u64, Event)>,
) {
    let status = match read_answers(number, &pool, &node, requests, &events).await {
        Ok(()) => ended(),
        Err(status) => status,
    };
    // Nobody is left to be told otherwise.
    drop(events.send((number, Event::Ended(status))).await);
}

async fn read_answers(
    number: u64,
    pool: &Pool,
    node: &Node,
    requests: mpsc::UnboundedReceiver<KeepAliveRequest>,
    events: &mpsc::Sender<(u64, Event)>,
) -> Result<(), Status> {
    let requests = UnboundedReceiverStream::new(requests);
    let response = SessionServiceClient::new(node.channel.clone())
        .keep_alive(requests)
        .await?;
    pool.answered(node, response.metadata());
    let mut answers = response.into_inner();
    while let Some(answer) = answers.message().await? {
        if events.send((number, Event::Answer(answer))).await.is_err() {
            return Ok(());
        }
    }
    Ok(())
}
