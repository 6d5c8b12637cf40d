//! What is remembered of one peer, and the verdict on each of its processes.

use serde::{Deserialize, Serialize};

use super::super::types::{LeaderId, LogId, Position, ProcessId};

/// A verified process that has been silent while this node introduced itself so often has ended.
/// Two introductions every 100 ms: a ping, and the answer to the next process's.
pub(super) const SILENCE: u32 = 8;

/// One peer.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Peer {
    /// The verified process. It is kept with the position: a process that is met again, after this
    /// node's own restart, must not be judged by what it has said itself since it began.
    pub(super) process: Option<ProcessId>,
    /// The highest that verified processes have acknowledged or sent.
    pub(super) position: Position,
    /// For good: the node is replaced under a new id.
    pub(super) lost: bool,
    /// This node's own mark at the time of the last verdict.
    #[serde(skip)]
    judged_at: u64,
    /// The latest mark heard of it, and of which process; told back to it.
    #[serde(skip)]
    pub(super) heard: Option<(ProcessId, u64)>,
    /// How often this node has introduced itself since the verified process was last heard. Not a
    /// time: this process may have been stopped meanwhile, and the other one not.
    #[serde(skip)]
    unheard: u32,
    /// A process that was not judged, since the verified one lives.
    #[serde(skip)]
    turned_away: Option<ProcessId>,
}

/// What an introduction says, as far as the verdict goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Meeting {
    pub(super) process: ProcessId,
    pub(super) start: Position,
    /// The latest of this process's marks that it has heard.
    pub(super) echo: Option<u64>,
    /// This process's marks so far.
    pub(super) marks: u64,
}

/// What came of an introduction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// As before.
    Unchanged,
    /// A new process, whose disk has all that earlier ones have said.
    Verified,
    /// A new process, whose disk lacks some of it.
    Lost,
    /// The verified one, after another one was turned away: two run under one node id.
    Twice,
}

/// Why a message of a peer does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unfit {
    Unverified,
    Lost,
}

impl Peer {
    /// Judges a process that is not known yet, by what earlier ones have said.
    ///
    /// A late introduction of an earlier process would be judged by what later ones have said. So
    /// a new process has to repeat a mark made after the last verdict: it lived later than the
    /// process that was known till then. And that one must have fallen silent: of two that run
    /// under one node id, on copies of one folder, only one counts.
    pub(super) fn meet(&mut self, meeting: Meeting) -> Verdict {
        let is_later = meeting.echo > Some(self.judged_at);
        if self.lost {
            return Verdict::Unchanged;
        }
        if self.process == Some(meeting.process) {
            self.unheard = 0;
            return match self.turned_away.take() {
                Some(_) => Verdict::Twice,
                None => Verdict::Unchanged,
            };
        }
        if !is_later {
            return Verdict::Unchanged;
        }
        if self.process.is_some() && self.unheard < SILENCE {
            self.turned_away = Some(meeting.process);
            return Verdict::Unchanged;
        }
        self.turned_away = None;
        self.judged_at = meeting.marks;
        if meeting.start < self.position {
            self.lost = true;
            return Verdict::Lost;
        }
        self.process = Some(meeting.process);
        self.unheard = 0;
        Verdict::Verified
    }

    /// This node introduces itself to it.
    pub(super) fn told(&mut self) {
        self.unheard = self.unheard.saturating_add(1);
    }

    /// Whether messages of `process` count. Late ones of an earlier process do not: the verdict
    /// on the present one has not seen them.
    pub(super) fn admit(&self, process: ProcessId) -> Result<(), Unfit> {
        if self.lost {
            Err(Unfit::Lost)
        } else if self.process == Some(process) {
            Ok(())
        } else {
            Err(Unfit::Unverified)
        }
    }

    /// `process` has acknowledged, or sent as a leader, `last` under `vote`. Whether that was new.
    pub(super) fn record(
        &mut self,
        process: ProcessId,
        vote: LeaderId,
        last: Option<LogId>,
    ) -> Result<bool, Unfit> {
        self.admit(process)?;
        let said = Position {
            vote: Some(vote),
            last,
        };
        let is_new = said > self.position;
        self.position = self.position.max(said);
        Ok(is_new)
    }

    /// `process` says, under `vote`, that it lacks the entry at `index`: the verdict is on the
    /// process itself then, for what it had acknowledged under this vote.
    pub(super) fn lacks(
        &mut self,
        process: ProcessId,
        vote: LeaderId,
        index: u64,
    ) -> Result<(), Unfit> {
        self.admit(process)?;
        let acknowledged = self.position.last.map(|last| last.index);
        if self.position.vote == Some(vote) && acknowledged >= Some(index) {
            self.lost = true;
            return Err(Unfit::Lost);
        }
        Ok(())
    }
}
