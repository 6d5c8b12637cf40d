//! What happened in a run, seen from outside the client and the leases; and the promises over it.

use std::collections::BTreeMap;

use epoch_client::{Loss, Session};
use epoch_core::SessionId;

use super::RUN_MS;
use super::weather::{Kind, Pause};

/// A node's clock may be fast by this many parts in a million.
pub(super) const DRIFT_PPM_MAX: u64 = 500;
/// How long after a suspension the client's timer may be late: it sleeps that long at a time.
const TIMER_MS: u64 = 250;

/// One session. Times are milliseconds of the run.
#[derive(Debug)]
struct Record {
    scope: String,
    ttl_ms: u64,
    /// By the client, once its Open was answered in time.
    held: Option<Held>,
    /// When keepalives left the client, and when their acknowledgements got there.
    acknowledged: Vec<(u64, u64)>,
    /// When it was opened, or the last keepalive that the leader acknowledged had arrived there.
    kept_ms: u64,
    /// When its scope was granted to another.
    handed_on_ms: Option<u64>,
    /// Somebody else closed it.
    closed: bool,
}

#[derive(Debug)]
struct Held {
    /// When it was asked for.
    asked_ms: u64,
    lost: Option<(u64, Loss)>,
}

/// All that happened in a run.
#[derive(Debug, Default)]
pub(super) struct History {
    records: BTreeMap<SessionId, Record>,
    /// The client's handles of those it holds.
    sessions: BTreeMap<SessionId, Session>,
    /// Of the client, so far.
    pub(super) pauses: Vec<Pause>,
    pub(super) elections: u32,
    pub(super) handed_on: u32,
    /// Handed on while the client could not signal: it would have known, had it been asked.
    pub(super) unable: u32,
    broken: Vec<String>,
}

impl History {
    /// The cluster has opened a session, which holds a scope.
    pub(super) fn holds(&mut self, id: SessionId, scope: &str, ttl_ms: u64, now_ms: u64) {
        let record = Record {
            scope: scope.to_owned(),
            ttl_ms,
            held: None,
            acknowledged: Vec::new(),
            kept_ms: now_ms,
            handed_on_ms: None,
            closed: false,
        };
        self.records.insert(id, record);
    }

    /// The client has got a session that it asked for at `asked_ms`.
    pub(super) fn opened(&mut self, session: &Session, asked_ms: u64) {
        let record = self.records.get_mut(&session.id()).unwrap();
        if record.handed_on_ms.is_some() && !record.closed {
            self.broken
                .push(format!("opened after it had ended: {record:?}"));
        }
        record.held = Some(Held {
            asked_ms,
            lost: None,
        });
        self.sessions.insert(session.id(), session.clone());
    }

    /// The client says that a session is lost.
    pub(super) fn lost(&mut self, id: SessionId, now_ms: u64, loss: Loss) {
        let held = self
            .records
            .get_mut(&id)
            .and_then(|record| record.held.as_mut());
        held.unwrap().lost = Some((now_ms, loss));
    }

    /// An acknowledgement got to the client.
    pub(super) fn acknowledged(&mut self, id: SessionId, sent_ms: u64, now_ms: u64) {
        let record = self.records.get_mut(&id).unwrap();
        record.acknowledged.push((sent_ms, now_ms));
    }

    /// The leader acknowledges a keepalive that had arrived at `arrived_ms`.
    pub(super) fn renewed(&mut self, id: SessionId, arrived_ms: u64) {
        let record = self.records.get_mut(&id).unwrap();
        record.kept_ms = record.kept_ms.max(arrived_ms);
    }

    /// A session that is held, if there is one.
    pub(super) fn any(&self) -> Option<SessionId> {
        self.sessions.keys().next().copied()
    }

    /// Somebody else closes a session.
    pub(super) fn closed(&mut self, id: SessionId) {
        self.records.get_mut(&id).unwrap().closed = true;
    }

    /// A scope is granted: if to another session than the one that held it first, that one's
    /// client must know.
    pub(super) fn granted(&mut self, scope: &str, to: SessionId, now_ms: u64) {
        let mut records = self.records.iter_mut();
        let Some((id, record)) = records.find(|(id, record)| record.scope == scope && **id != to)
        else {
            return;
        };
        record.handed_on_ms = Some(now_ms);
        self.handed_on += 1;
        if record.closed {
            return;
        }
        // Where the Open was not answered yet, there is nothing to tell.
        let lost = record.held.as_ref().map(|held| held.lost);
        let is_told = lost.is_none_or(|lost| lost.is_some_and(|(lost_ms, _)| lost_ms < now_ms));
        // A client that does not run cannot signal, but whoever asks it is told the truth.
        let runs = !self
            .pauses
            .iter()
            .any(|pause| now_ms <= pause.runs_again_ms());
        if !is_told && (runs || self.sessions[id].loss().is_none()) {
            self.broken.push(format!(
                "granted at {now_ms} before the loss was told: {record:?}"
            ));
        }
        self.unable += u32::from(!is_told);
        let slack_ms = record.ttl_ms * DRIFT_PPM_MAX / 1_000_000 + 1;
        if now_ms + slack_ms < record.kept_ms + record.ttl_ms {
            self.broken
                .push(format!("acknowledged, yet expired at {now_ms}: {record:?}"));
        }
    }

    /// All of it as text.
    pub(super) fn told(&self) -> String {
        format!("{:?}", self.records)
    }

    /// How many sessions clients have held.
    pub(super) fn held(&self) -> u32 {
        u32::try_from(self.sessions.len()).unwrap()
    }

    /// The promises, at the end of the run; how many sessions were lost.
    pub(super) fn check(&self, kind: Kind) -> Result<usize, String> {
        if let Some(broken) = self.broken.first() {
            return Err(broken.clone());
        }
        let mut losses = 0;
        for record in self.records.values() {
            let Some(held) = &record.held else {
                continue;
            };
            let ends_ms = self.ends_ms(record, held);
            let judged_ms = held.lost.map_or(RUN_MS, |(lost_ms, _)| lost_ms);
            if judged_ms > ends_ms {
                return Err(format!("not lost by {ends_ms}: {record:?}"));
            }
            let Some((_, loss)) = held.lost else {
                continue;
            };
            losses += 1;
            if loss == Loss::Expired && !record.closed {
                return Err(format!("told of an end that was none: {record:?}"));
            }
            if kind.keeps_all() {
                return Err(format!("lost in a healthy network: {record:?}"));
            }
        }
        Ok(losses)
    }

    /// By when the loss must be told: a TTL after the last message was sent that had been
    /// acknowledged by then, or as soon as the client runs again.
    fn ends_ms(&self, record: &Record, held: &Held) -> u64 {
        let judged_ms = held.lost.map_or(RUN_MS, |(lost_ms, _)| lost_ms);
        let known = record
            .acknowledged
            .iter()
            .filter(|(_, got_ms)| *got_ms <= judged_ms);
        let sent_ms = known.fold(held.asked_ms, |last, (sent_ms, _)| last.max(*sent_ms));
        let ends_ms = sent_ms + record.ttl_ms;
        let pauses = self.pauses.iter().filter(|pause| pause.from_ms <= ends_ms);
        pauses.fold(ends_ms, |ends_ms, pause| ends_ms.max(pause.runs_again_ms()))
    }
}

impl Pause {
    /// From here on the client's timers are right again.
    fn runs_again_ms(&self) -> u64 {
        let late_ms = if self.suspended { TIMER_MS } else { 0 };
        self.until_ms + late_ms + 1
    }
}
