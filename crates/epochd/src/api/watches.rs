//! Watch: the events of a node's own ring, as a stream. Any node answers: what it has applied was
//! committed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use epoch_core::Reason;
use epoch_machine::GrantEvent;
use epoch_proto::v1;
use tokio_stream::Stream;

use super::access::{self, About};
use super::failure::Failure;
use super::{Api, Result, parse};
use crate::node::Node;
use crate::watch::{Of, Watch};

/// How often a watch says how far the log has got, when there is nothing else to say.
const SAY_WITHIN: Duration = Duration::from_secs(1);
/// How far answers of one watch are apart at least: what happens meanwhile is told together, so that
/// many watches of a busy prefix do not take the node up.
const PACE: Duration = Duration::from_millis(20);
/// How long a node that hears no leader goes on: it could be cut off from what happens.
const ALONE_MAX: Duration = Duration::from_secs(2);
/// How long a watch may be ahead of this node's log: longer than a node lags that hears a leader.
const AHEAD_MAX: Duration = Duration::from_secs(10);
/// Watches on one node at most.
const WATCHES_MAX: usize = 10_000;

/// A watch that counts among those of its node.
struct Counted {
    node: Arc<Node>,
    /// By the caller.
    api: Api,
    of: Of,
    watch: Watch,
    /// Not before.
    next: tokio::time::Instant,
    /// Since when no leader has been heard from.
    alone_since: Option<tokio::time::Instant>,
    /// Since when the log has not come to where it began.
    ahead_since: Option<tokio::time::Instant>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.node.watching.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Api {
    /// Begins a watch.
    pub(super) async fn watch(
        &self,
        request: v1::WatchRequest,
    ) -> Result<impl Stream<Item = Result<v1::WatchResponse>> + Send + use<>> {
        let of = match (request.scope.as_str(), request.prefix.as_str()) {
            ("", prefix) => Of::Prefix(parse::prefix(prefix)?.to_owned()),
            (scope, "") => Of::Scope(parse::scope(scope)?),
            _ => {
                return Err(Failure::field(
                    "prefix",
                    "it stands beside a scope; give one of the two",
                ));
            }
        };
        let after = request.after.as_deref().map(parse::cursor).transpose()?;
        self.admit_here(access::WATCH, about(&of)).await?;
        if !self.node.is_ready() {
            return Err(Failure::new(Reason::NoLeader, "no leader is known"));
        }
        let counted = count(&self.node.watching).then(|| Counted {
            watch: self.node.watches.watch(of.clone(), after),
            of,
            api: self.clone(),
            node: Arc::clone(&self.node),
            next: tokio::time::Instant::now(),
            alone_since: None,
            ahead_since: None,
        });
        let counted = counted.ok_or_else(|| {
            Failure::new(
                Reason::WatchLimit,
                format_args!("this node serves {WATCHES_MAX} watches already"),
            )
        })?;
        // The first answer comes at once, and says where the watch begins.
        let first = true;
        Ok(futures::stream::unfold(
            Some((counted, first)),
            |state| async move {
                let (mut counted, first) = state?;
                let said = counted.said(first).await;
                let next = said.is_ok().then_some((counted, false));
                Some((said, next))
            },
        ))
    }
}

fn about(of: &Of) -> About<'_> {
    match of {
        Of::Scope(scope) => About::Scope(scope),
        Of::Prefix(prefix) => About::Prefix(prefix),
    }
}

/// False when there are too many.
fn count(watching: &AtomicUsize) -> bool {
    let more = |count: usize| (count < WATCHES_MAX).then_some(count + 1);
    watching
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
        .is_ok()
}

impl Counted {
    async fn said(&mut self, first: bool) -> Result<v1::WatchResponse> {
        let until = tokio::time::Instant::now() + SAY_WITHIN;
        tokio::time::sleep_until(self.next).await;
        loop {
            let said = self
                .watch
                .say()
                .map_err(|compacted| Failure::new(Reason::WatchCompacted, compacted))?;
            // The permission may have been taken away meanwhile, or the token have ended.
            self.api.admit(access::WATCH, about(&self.of))?;
            self.check_alone()?;
            self.check_ahead(said.ahead)?;
            let now = tokio::time::Instant::now();
            if first || !said.events.is_empty() || now >= until {
                self.next = if said.more { now } else { now + PACE };
                return Ok(v1::WatchResponse {
                    events: said.events.iter().map(|event| message(event)).collect(),
                    cursor: said.cursor.to_string(),
                });
            }
            // It is over when the time is, too.
            let _ = tokio::time::timeout_at(until, self.watch.more()).await;
        }
    }

    /// A node that has heard from no leader for a while ends its watches, so that clients look for
    /// one that has.
    fn check_alone(&mut self) -> Result<()> {
        let now = tokio::time::Instant::now();
        if self.node.is_ready() {
            self.alone_since = None;
        } else if now - *self.alone_since.get_or_insert(now) > ALONE_MAX {
            return Err(Failure::new(
                Reason::NoLeader,
                "this node hears from no leader",
            ));
        }
        Ok(())
    }

    /// A place that the log does not come to is of another cluster, or from before a restore.
    fn check_ahead(&mut self, ahead: bool) -> Result<()> {
        let now = tokio::time::Instant::now();
        if !ahead {
            self.ahead_since = None;
        } else if now - *self.ahead_since.get_or_insert(now) > AHEAD_MAX {
            return Err(Failure::new(
                Reason::WatchCompacted,
                "the log does not come to this cursor",
            ));
        }
        Ok(())
    }
}

fn message(event: &GrantEvent) -> v1::Event {
    let who = event.who.as_ref();
    v1::Event {
        kind: event.kind.as_str().to_owned(),
        scope: event.scope.to_string(),
        epoch: event.epoch.get(),
        ended: event.ended.map(u64::from),
        holder: who.map(|(holder, _)| holder.to_string()),
        session: who.map(|(_, session)| session.hash().to_string()),
        cursor: event.cursor.to_string(),
        time_ms: event.time_ms,
    }
}
