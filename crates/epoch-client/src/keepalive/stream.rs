//! Streams of keepalives, one at a time in use.

use std::sync::Arc;

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

/// What has come on a stream.
#[derive(Debug)]
pub(super) enum Event {
    Answer(KeepAliveResponse),
    Ended(Status),
}

/// The stream in use, and the one before it, whose last answers are still awaited.
pub(super) struct Streams {
    pool: Arc<Pool>,
    next_number: u64,
    current: Option<Stream>,
    left: Option<Stream>,
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
    under_way: usize,
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
            left: None,
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
            under_way: 0,
            served_ms: None,
            reader: reader.abort_handle(),
        }
    }

    /// How many keepalives may be sent now, if `probes` may be under way on a stream whose node
    /// has not served any.
    pub(super) fn room(&self, probes: usize) -> usize {
        match &self.current {
            Some(current) if current.served_ms.is_some() => usize::MAX,
            Some(current) => probes.saturating_sub(current.under_way),
            None => probes,
        }
    }

    /// Sends on the stream in use.
    pub(super) fn send(&mut self, request: KeepAliveRequest) {
        if let Some(current) = &mut self.current {
            current.under_way += 1;
            if let Some(requests) = &current.requests {
                // A stream that has ended says so by its event.
                drop(requests.send(request));
            }
        }
    }

    /// A request on that stream is not awaited any more.
    pub(super) fn settled(&mut self, number: u64) {
        if let Some(stream) = self.stream(number) {
            stream.under_way = stream.under_way.saturating_sub(1);
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

    /// Nothing more is asked on that stream; what is under way is awaited. The stream that is
    /// given up for it, if any.
    pub(super) fn leave(&mut self, number: u64) -> Option<u64> {
        let mut stream = self.current.take_if(|stream| stream.number == number)?;
        // The node answers what it has, and ends the stream.
        stream.requests = None;
        self.left.replace(stream).map(|stream| stream.number)
    }

    /// That stream does not serve. Whether it was the one in use.
    pub(super) fn failed(&mut self, number: u64, status: Option<&Status>) -> bool {
        drop(self.left.take_if(|stream| stream.number == number));
        let Some(stream) = self.current.take_if(|stream| stream.number == number) else {
            return false;
        };
        match status {
            Some(status) => {
                let _ = self.pool.judge(&stream.node, status);
            }
            None => self.pool.unanswered(&stream.node),
        }
        true
    }

    /// Nobody needs a stream.
    pub(super) fn close(&mut self) {
        self.current = None;
        self.left = None;
    }

    fn stream(&mut self, number: u64) -> Option<&mut Stream> {
        let streams = [self.current.as_mut(), self.left.as_mut()];
        let mut streams = streams.into_iter().flatten();
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
