//! One call: attempts on one node after another, within one deadline.

use std::future::Future;
use std::time::Duration;

use epoch_core::Reason;
use tokio::time::{Instant, sleep_until, timeout_at};
use tonic::{Code, Request, Response, Status};

use crate::client::Client;
use crate::error::Error;
use crate::options::LONGEST;
use crate::pool::Channel;
use crate::retry::{Verdict, pauses};
use crate::tls;

/// What asking twice does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// It changes nothing.
    Read,
    /// It changes something, and the same request again is recognised.
    Repeatable,
    /// It changes something, and would change more when it was repeated.
    Once,
}

impl Client {
    /// Sends `request` until there is a definite answer or the deadline ends.
    pub(crate) async fn call<Req, Res, Fut>(
        &self,
        effect: Effect,
        request: Req,
        send: impl Fn(Channel, Request<Req>) -> Fut,
    ) -> Result<Res, Error>
    where
        Req: Clone,
        Fut: Future<Output = Result<Response<Res>, Status>>,
    {
        self.call_waiting(effect, Duration::ZERO, |_left| request.clone(), send)
            .await
    }

    /// As [`call`](Self::call), for a call that a node may keep for as long as `wait` before it
    /// answers. Each attempt sends the `request` for what is left of the wait; the deadline and
    /// the time of an attempt are counted on top of it.
    pub(crate) async fn call_waiting<Req, Res, Fut>(
        &self,
        effect: Effect,
        wait: Duration,
        request: impl Fn(Duration) -> Req,
        send: impl Fn(Channel, Request<Req>) -> Fut,
    ) -> Result<Res, Error>
    where
        Fut: Future<Output = Result<Response<Res>, Status>>,
    {
        let wait = wait.min(LONGEST);
        let wait_end = Instant::now() + wait;
        let deadline = wait_end + self.options().deadline;
        let mut pauses = pauses();
        let mut attempts = Attempts {
            effect,
            unknown: false,
            last: None,
        };
        loop {
            let node = self.pool().pick();
            let now = Instant::now();
            let left = wait_end.saturating_duration_since(now);
            let attempt_end = (now + left + self.options().attempt_timeout).min(deadline);
            let mut attempt = Request::new(request(left));
            attempt.set_timeout(attempt_end.saturating_duration_since(now));
            match timeout_at(attempt_end, send(node.channel.clone(), attempt)).await {
                Ok(Ok(response)) => {
                    self.pool().answered(&node, response.metadata());
                    return Ok(response.into_inner());
                }
                Ok(Err(status)) => {
                    let verdict = self.pool().judge(&node, &status);
                    attempts.failed(verdict, status)?;
                }
                Err(_elapsed) => {
                    self.pool().unanswered(&node);
                    let status = Status::deadline_exceeded("the node did not answer in time");
                    attempts.failed(Verdict::Unknown, status)?;
                }
            }
            let pause = pauses.next().unwrap_or(Duration::ZERO);
            let next = Instant::now() + pause;
            if next >= deadline {
                return Err(attempts.given_up(self, wait + self.options().deadline));
            }
            tracing::debug!(node = %node.endpoint, ?pause, "asking again");
            sleep_until(next).await;
        }
    }
}

struct Attempts {
    effect: Effect,
    unknown: bool,
    last: Option<Status>,
}

impl Attempts {
    /// Counts a failed attempt; an error ends the call.
    fn failed(&mut self, verdict: Verdict, status: Status) -> Result<(), Error> {
        let unknown = matches!(verdict, Verdict::Unknown | Verdict::Failed);
        self.unknown |= unknown && self.effect != Effect::Read;
        let again = match verdict {
            Verdict::Refused | Verdict::Failed => false,
            Verdict::NotDone => true,
            // Not known to have failed, a second one could take effect beside the first.
            Verdict::Unknown => self.effect != Effect::Once,
        };
        if again {
            self.last = Some(status);
            return Ok(());
        }
        Err(refused(&status).with_outcome_unknown(self.unknown))
    }

    fn given_up(self, client: &Client, within: Duration) -> Error {
        let asked = client.pool().shown();
        let (reason, last) = match &self.last {
            Some(status) => (epoch_proto::reason_of(status), said(status)),
            None => (None, "nothing was sent".to_owned()),
        };
        let message = format!("no node of {asked} served the call within {within:?}: {last}");
        let next_step = self.last.as_ref().and_then(|status| tls::next_step(status));
        Error::unavailable(reason, message)
            .with_outcome_unknown(self.unknown)
            .with_next_step(next_step)
    }
}

pub(crate) fn refused(status: &Status) -> Error {
    match (epoch_proto::reason_of(status), status.code()) {
        (Some(reason), _) => Error::refused(reason, status.message()),
        (None, Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Unknown) => {
            Error::unavailable(None, said(status))
        }
        // A node's transport says so of a message beyond its limit.
        (None, Code::OutOfRange) => Error::refused(Reason::TooLarge, said(status)),
        // Not one of our nodes' answers: another port of a node, say, or another server.
        (None, code) => Error::protocol(code, format!("not a client listener? {}", said(status))),
    }
}

/// A status in words, with what caused it: the transport's own texts say next to nothing.
pub(crate) fn said(status: &Status) -> String {
    let mut text = match status.message() {
        "" => status.code().description().to_owned(),
        message => message.to_owned(),
    };
    let mut source = std::error::Error::source(status);
    while let Some(error) = source {
        let cause = error.to_string();
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
        source = error.source();
    }
    text
}
