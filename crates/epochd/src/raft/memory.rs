//! What this node remembers of its peers' votes and logs, so that a peer whose disk was wiped or
//! rolled back is found out: such a node would vote twice in a term, or acknowledge the opposite
//! of what it has acknowledged before.
//!
//! Architecture invariant: no message of a peer's process reaches the consensus library before
//! that process is verified, and what an acknowledgement says is remembered before it is counted.

mod peer;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use epoch_core::NodeId;
use epoch_store::{RealFs, read_sealed, write_sealed};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use self::peer::{Meeting, Peer, Unfit, Verdict};
use super::types::{LeaderId, LogId, Position, ProcessId};

const FORMAT: u32 = 1;
pub(super) const PEERS_FILE: &str = "peers.json";
/// A peer takes about 300 bytes of it.
const PEERS_BYTES_MAX: usize = 1 << 20;
/// Node ids remembered at most, so that invented ones cannot fill memory and file.
const PEERS_MAX: usize = 1_024;
/// What is remembered is written so often, if it has changed. What a crash forgets of it is
/// missed only if a peer's disk is rolled back within the same second.
const WRITE_INTERVAL: Duration = Duration::from_secs(1);

/// Why what is remembered cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MemoryError {
    #[error("{} cannot be read", .path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error(
        "{} is damaged: put the file back. Removed, this node forgets what the others have \
         acknowledged: do so only if no other node's disk was wiped or rolled back",
        .path.display()
    )]
    Damaged { path: PathBuf },
    #[error("{} was not written by epochd: put the right file back", .path.display())]
    Malformed {
        path: PathBuf,
        source: serde_json::Error,
    },
    #[error("{} has format {found}, this version reads {FORMAT}: use the version that wrote it", .path.display())]
    Format { path: PathBuf, found: u32 },
}

/// Why a peer's message does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("the process of node {0} is not verified yet")]
    Unverified(NodeId),
    #[error("node {0} has lost what it had acknowledged: replace it under a new node id")]
    Lost(NodeId),
}

/// What a process says of itself, as far as it goes in here.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Introduced {
    pub(crate) start: Position,
    pub(crate) mark: u64,
    /// The latest mark that the sender has heard of the receiver, and of which process.
    pub(crate) heard: Option<(ProcessId, u64)>,
}

/// Shared by transport, peer service and contact.
#[derive(Debug, Clone)]
pub(crate) struct Memory(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    me: NodeId,
    process: ProcessId,
    start: Position,
    path: PathBuf,
    inner: Mutex<Inner>,
    /// A verdict is to be written at once.
    urgent: Notify,
}

#[derive(Debug)]
struct Inner {
    marks: u64,
    file: File,
    changed: bool,
    /// Peers reported as running twice.
    twice: BTreeSet<NodeId>,
}

/// `peers.json`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    format: u32,
    /// Why this node itself is lost.
    own_loss: Option<String>,
    peers: BTreeMap<NodeId, Peer>,
}

impl Memory {
    /// Reads what is remembered in the data folder, if anything, for `process`, which begins with
    /// `start` on its disk.
    ///
    /// # Errors
    /// The file cannot be read, or is not one.
    pub(crate) fn open(
        folder: &Path,
        me: NodeId,
        process: ProcessId,
        start: Position,
    ) -> Result<Self, MemoryError> {
        let path = folder.join(PEERS_FILE);
        let file = match read_sealed(&RealFs, &path, PEERS_BYTES_MAX) {
            Ok(text) => parse(&path, &text)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => File {
                format: FORMAT,
                own_loss: None,
                peers: BTreeMap::new(),
            },
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Err(MemoryError::Damaged { path });
            }
            Err(source) => return Err(MemoryError::Io { path, source }),
        };
        if let Some(why) = &file.own_loss {
            tracing::error!(node = me, why, "this node neither votes nor leads");
        }
        Ok(Self(Arc::new(Shared {
            me,
            process,
            start,
            path,
            inner: Mutex::new(Inner {
                marks: 0,
                file,
                changed: false,
                twice: BTreeSet::new(),
            }),
            urgent: Notify::new(),
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This process.
    #[cfg(test)]
    pub(crate) fn process(&self) -> ProcessId {
        self.0.process
    }

    /// As if `peer` had been silent for long enough.
    #[cfg(test)]
    pub(crate) fn hears_nothing_of(&self, peer: NodeId) {
        for _ in 0..peer::SILENCE {
            self.introduce(peer);
        }
    }

    /// What this process says of itself to `peer`, with a new mark.
    pub(crate) fn introduce(&self, peer: NodeId) -> Introduced {
        let mut inner = self.lock();
        inner.marks += 1;
        let mark = inner.marks;
        let mut known = inner.file.peers.get_mut(&peer);
        if let Some(known) = &mut known {
            known.told();
        }
        Introduced {
            start: self.0.start,
            mark,
            heard: known.and_then(|known| known.heard),
        }
    }

    /// A process of `peer` has introduced itself.
    pub(crate) fn meet(&self, peer: NodeId, process: ProcessId, said: Introduced) {
        let mut inner = self.lock();
        let marks = inner.marks;
        let peers = &mut inner.file.peers;
        if !peers.contains_key(&peer) && peers.len() >= PEERS_MAX {
            return;
        }
        let known = peers.entry(peer).or_default();
        known.heard = Some((process, said.mark));
        let echo = said.heard.filter(|(of, _)| *of == self.0.process);
        let verdict = known.meet(Meeting {
            process,
            start: said.start,
            echo: echo.map(|(_, mark)| mark),
            marks,
        });
        let remembered = known.position;
        match verdict {
            Verdict::Unchanged => return,
            Verdict::Twice => {
                if inner.twice.insert(peer) {
                    tracing::error!(
                        node = self.0.me,
                        peer,
                        "two processes run under this node id: stop the one on the copied folder, \
                         which has no say"
                    );
                }
                return;
            }
            Verdict::Verified => {
                tracing::debug!(node = self.0.me, peer, "peer verified");
            }
            Verdict::Lost => {
                report_loss(self.0.me, peer, &remembered, &said.start.to_string());
            }
        }
        inner.changed = true;
        self.0.urgent.notify_one();
    }

    /// Whether messages of a peer's process count.
    ///
    /// # Errors
    /// It is not verified, or the peer is lost.
    pub(crate) fn admit(&self, peer: NodeId, process: ProcessId) -> Result<(), Refusal> {
        let inner = self.lock();
        let known = inner.file.peers.get(&peer);
        let fit = known.map_or(Err(Unfit::Unverified), |known| known.admit(process));
        fit.map_err(|unfit| refusal(peer, unfit))
    }

    /// A peer's process has acknowledged `last` under `vote`, or has sent it as the leader.
    ///
    /// A vote asked for or granted comes without a log id: the log under a vote that does not lead
    /// yet can still be cut short by that very leader, and its node would be condemned for it.
    ///
    /// # Errors
    /// As [`Memory::admit`]; nothing is remembered then, and the message must not be counted.
    pub(crate) fn record(
        &self,
        peer: NodeId,
        process: ProcessId,
        vote: LeaderId,
        last: Option<LogId>,
    ) -> Result<(), Refusal> {
        let mut inner = self.lock();
        let known = inner.file.peers.get_mut(&peer);
        let recorded = known.map_or(Err(Unfit::Unverified), |known| {
            known.record(process, vote, last)
        });
        match recorded {
            Ok(is_new) => {
                inner.changed |= is_new;
                Ok(())
            }
            Err(unfit) => Err(refusal(peer, unfit)),
        }
    }

    /// A peer's process says, under `vote`, that it lacks the entry at `index`. If it had
    /// acknowledged that entry under this very vote, it is lost: the consensus library would take
    /// it for a broken promise of the log, which it is, and end this leader.
    ///
    /// # Errors
    /// As [`Memory::admit`], with the verdict just given.
    pub(crate) fn lacks(
        &self,
        peer: NodeId,
        process: ProcessId,
        vote: LeaderId,
        index: u64,
    ) -> Result<(), Refusal> {
        let mut inner = self.lock();
        let Some(known) = inner.file.peers.get_mut(&peer) else {
            return Err(Refusal::Unverified(peer));
        };
        let was_lost = known.lost;
        let lacks = known.lacks(process, vote, index);
        if known.lost && !was_lost {
            let lacked = format!("no entry at index {index}");
            report_loss(self.0.me, peer, &known.position, &lacked);
            inner.changed = true;
            self.0.urgent.notify_one();
        }
        lacks.map_err(|unfit| refusal(peer, unfit))
    }

    /// Whether a peer has lost what it had acknowledged.
    pub(crate) fn is_lost(&self, peer: NodeId) -> bool {
        self.remembered_of_lost(peer).is_some()
    }

    /// What a lost peer had acknowledged; `None` for one that is not lost.
    pub(crate) fn remembered_of_lost(&self, peer: NodeId) -> Option<Position> {
        let inner = self.lock();
        let known = inner.file.peers.get(&peer).filter(|known| known.lost);
        known.map(|known| known.position)
    }

    /// `peer` says that this node has lost what it had acknowledged.
    pub(crate) fn found_lost(&self, peer: NodeId, remembered: &Position) {
        let mut inner = self.lock();
        if inner.file.own_loss.is_some() {
            return;
        }
        let why = format!(
            "node {peer} remembers of this node: {remembered}; this process began with: {}. Its \
             disk was wiped or rolled back, or another process ran under its id on a copy of its \
             folder: stop it and replace it under a new node id",
            self.0.start
        );
        tracing::error!(node = self.0.me, why, "this node neither votes nor leads");
        inner.file.own_loss = Some(why);
        inner.changed = true;
        self.0.urgent.notify_one();
    }

    /// Why this node itself is lost, if it is: it neither votes, leads nor acknowledges.
    pub(crate) fn own_loss(&self) -> Option<String> {
        self.lock().file.own_loss.clone()
    }

    /// Whether [`Memory::own_loss`] says anything.
    pub(crate) fn is_own_loss(&self) -> bool {
        self.lock().file.own_loss.is_some()
    }

    /// Keeps the file in step. Never ends.
    pub(crate) async fn keep(&self) {
        loop {
            // What is urgent is written at once, the rest when the interval is over.
            let urgent = tokio::time::timeout(WRITE_INTERVAL, self.0.urgent.notified());
            let _elapsed = urgent.await;
            let memory = self.clone();
            let written = tokio::task::spawn_blocking(move || memory.write_if_changed()).await;
            let written = written.unwrap_or_else(|error| Err(io::Error::other(error)));
            if let Err(error) = written {
                crate::fatal::stop(&format!(
                    "{} cannot be written: {error}",
                    self.0.path.display()
                ));
            }
        }
    }

    /// Blocks.
    fn write_if_changed(&self) -> io::Result<()> {
        let json = {
            let mut inner = self.lock();
            if !std::mem::take(&mut inner.changed) {
                return Ok(());
            }
            serde_json::to_string_pretty(&inner.file)?
        };
        write_sealed(&RealFs, &self.0.path, &json)
    }
}

fn parse(path: &Path, text: &str) -> Result<File, MemoryError> {
    let path = path.to_path_buf();
    let file: File = match serde_json::from_str(text) {
        Ok(file) => file,
        Err(source) => return Err(MemoryError::Malformed { path, source }),
    };
    match file.format {
        FORMAT => Ok(file),
        found => Err(MemoryError::Format { path, found }),
    }
}

fn refusal(peer: NodeId, unfit: Unfit) -> Refusal {
    match unfit {
        Unfit::Unverified => Refusal::Unverified(peer),
        Unfit::Lost => Refusal::Lost(peer),
    }
}

fn report_loss(node: NodeId, peer: NodeId, remembered: &Position, has: &str) {
    tracing::error!(
        node,
        peer,
        %remembered,
        has,
        "a peer has lost what it had acknowledged: its disk was wiped or rolled back, or another \
         process ran under its id on a copy of its folder; stop it and replace it under a new \
         node id"
    );
}
