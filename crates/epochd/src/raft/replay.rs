//! Reading what is stored without the consensus core: for inspection.

use anyhow::Context as _;
use epoch_machine::State;
use epoch_store::{LogReader, codec};
use openraft::EntryPayload;

use super::types::{Entry, LogId, Vote, leadership};

/// Bytes read from the log at once.
const READ_BYTES: u64 = 4 << 20;

/// A state to which the log is applied.
#[derive(Debug)]
pub(crate) struct Replay {
    state: State,
    index: Option<u64>,
}

impl Replay {
    /// Goes on from `state`, which is of `index`.
    pub(crate) fn new(state: State, index: Option<u64>) -> Self {
        Self { state, index }
    }

    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    /// The last index applied.
    pub(crate) fn index(&self) -> Option<u64> {
        self.index
    }

    /// Applies what the log has, up to and with `last`.
    ///
    /// # Errors
    /// An entry cannot be read, or does not decode.
    pub(crate) fn run(&mut self, reader: &LogReader, last: u64) -> anyhow::Result<()> {
        loop {
            let next = self.index.map_or(0, |index| index.saturating_add(1));
            let entries = reader.read(next..last.saturating_add(1), READ_BYTES)?;
            if entries.is_empty() {
                return Ok(());
            }
            for (index, bytes) in entries {
                self.apply(index, &bytes)
                    .with_context(|| format!("log entry {index} does not decode"))?;
            }
        }
    }

    fn apply(&mut self, index: u64, bytes: &[u8]) -> anyhow::Result<()> {
        let entry: Entry = postcard::from_bytes(bytes)?;
        if let EntryPayload::Normal(proposal) = &entry.payload {
            let batch = codec::decode_batch(&proposal.0)?;
            let place = epoch_machine::Entry {
                leadership: leadership(&entry.log_id.leader_id),
                index,
            };
            // A batch of another leadership changes nothing, here as in the apply loop.
            let _outcomes = epoch_machine::apply(&mut self.state, place, &batch);
        }
        self.index = Some(index);
        Ok(())
    }
}

/// A stored log id as text.
pub(crate) fn describe_log_id(bytes: &[u8]) -> String {
    match postcard::from_bytes::<LogId>(bytes) {
        Ok(id) => format!(
            "{} (term {}, node {})",
            id.index, id.leader_id.term, id.leader_id.node_id
        ),
        Err(error) => format!("does not decode: {error}"),
    }
}

/// A stored vote as text.
pub(crate) fn describe_vote(bytes: &[u8]) -> String {
    match postcard::from_bytes::<Vote>(bytes) {
        Ok(vote) => {
            let id = vote.leader_id();
            let committed = if vote.is_committed() {
                ", committed"
            } else {
                ""
            };
            format!("term {}, node {}{committed}", id.term, id.node_id)
        }
        Err(error) => format!("does not decode: {error}"),
    }
}
