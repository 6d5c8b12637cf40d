//! The log against a model that is a plain vector.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Model {
    pub(super) entries: Vec<(u64, Bytes)>,
    pub(super) purged: Option<Purged>,
    pub(super) vote: Option<Bytes>,
    pub(super) committed: Option<Bytes>,
    /// What is left on reopening of `committed`.
    committed_on_disk: Option<Bytes>,
}

/// One call. Indices are relative to the log's end, so that most calls have work to do.
#[derive(Clone, Debug)]
pub(super) enum Operation {
    Append(Vec<usize>),
    Vote(u8),
    Truncate {
        back: u64,
    },
    Purge {
        back: u64,
    },
    PurgeBeyond {
        by: u64,
    },
    Committed(u8),
    /// A step of the filler.
    Fill,
    /// Making the side file `synced` durable.
    SyncMark,
    Reopen,
}

impl Model {
    pub(super) fn next(&self) -> u64 {
        let after_purge = self.purged.as_ref().map_or(0, |purged| purged.index + 1);
        self.entries
            .last()
            .map_or(after_purge, |(index, _)| index + 1)
    }

    fn first(&self) -> u64 {
        self.entries
            .first()
            .map_or(self.next(), |(index, _)| *index)
    }

    /// What the log should hold after `operation`; a flush takes the committed mark along.
    pub(super) fn apply(&mut self, operation: &Operation) {
        let next = self.next();
        match operation {
            Operation::Append(lens) => {
                let added = (next..).zip(lens).map(|(index, len)| entry(index, *len));
                self.entries.extend(added);
                self.flushed(!lens.is_empty());
            }
            Operation::Vote(vote) => {
                self.vote = Some(Bytes::from(vec![*vote; usize::from(*vote)]));
                self.flushed(true);
            }
            Operation::Truncate { back } => {
                let from = next.saturating_sub(*back).max(self.first());
                self.entries.retain(|(index, _)| *index < from);
                self.flushed(from < next);
            }
            Operation::Purge { back } => {
                if let Some(index) = next.checked_sub(back + 1) {
                    self.purge(index);
                }
            }
            Operation::PurgeBeyond { by } => self.purge(next + by),
            Operation::Committed(committed) => {
                self.committed = Some(Bytes::from(vec![*committed]));
            }
            Operation::Fill | Operation::SyncMark => {}
            Operation::Reopen => self.committed = self.committed_on_disk.clone(),
        }
    }

    fn purge(&mut self, index: u64) {
        if self
            .purged
            .as_ref()
            .is_none_or(|purged| index > purged.index)
        {
            self.entries.retain(|(at, _)| *at > index);
            self.purged = Some(Purged {
                index,
                log_id: purge_id(index),
            });
            self.flushed(true);
        }
    }

    fn flushed(&mut self, flushed: bool) {
        if flushed {
            self.committed_on_disk = self.committed.clone();
        }
    }

    /// What a crash during `operation` may leave: nothing of it, all of it, or nothing but a new
    /// segment's head, which takes the committed mark along.
    pub(super) fn after_crash_during(&self, operation: &Operation) -> Vec<Self> {
        let mut after = self.clone();
        after.apply(operation);
        let mut rolled = self.clone();
        rolled.flushed(true);
        let mut outcomes = vec![self.clone(), rolled, after];
        for outcome in &mut outcomes {
            outcome.apply(&Operation::Reopen);
        }
        outcomes.dedup();
        outcomes
    }

    /// Which of `outcomes` the log holds.
    pub(super) fn find<'a>(outcomes: &'a [Self], log: &Log) -> Result<&'a Self, String> {
        let found = outcomes
            .iter()
            .find(|model| model.difference(log).is_none());
        found.ok_or_else(|| {
            let differences = outcomes.iter().filter_map(|model| model.difference(log));
            format!("differs in {:?}", differences.collect::<Vec<_>>())
        })
    }

    /// Runs `operation` on the log; `self` is the state before it.
    pub(super) fn run(&self, operation: &Operation, log: &mut Log) -> Result<(), WriteError> {
        let next = self.next();
        match operation {
            Operation::Append(lens) => {
                let added = (next..).zip(lens).map(|(index, len)| entry(index, *len));
                log.append(&added.collect::<Vec<_>>()).map(drop)
            }
            Operation::Vote(vote) => log.save_vote(Bytes::from(vec![*vote; usize::from(*vote)])),
            Operation::Truncate { back } => {
                log.truncate_from(next.saturating_sub(*back).max(self.first()))
            }
            Operation::Purge { back } => match next.checked_sub(back + 1) {
                Some(index) => log.purge_to(index, purge_id(index)),
                None => Ok(()),
            },
            Operation::PurgeBeyond { by } => log.purge_to(next + by, purge_id(next + by)),
            Operation::Committed(committed) => log.save_committed(Bytes::from(vec![*committed])),
            Operation::Fill => log.zero_filler().fill().map(drop).map_err(io_error),
            Operation::SyncMark => log.mark_syncer().sync().map_err(io_error),
            Operation::Reopen => Ok(()),
        }
    }

    /// In what the log differs from the model, if it does.
    pub(super) fn difference(&self, log: &Log) -> Option<&'static str> {
        let first = self.entries.first().map(|(index, _)| *index);
        let last = self.entries.last().map(|(index, _)| *index);
        let bytes_since = |from: u64| {
            let since = self.entries.iter().filter(|(index, _)| *index >= from);
            since.map(|(_, payload)| payload.len() as u64).sum::<u64>()
        };
        if log.read(0..u64::MAX, u64::MAX).ok().as_ref() != Some(&self.entries) {
            Some("entries")
        } else if (log.first_index(), log.last_index()) != (first, last) {
            Some("first or last index")
        } else if log.purged() != self.purged {
            Some("purge point")
        } else if log.vote() != self.vote {
            Some("vote")
        } else if log.committed() != self.committed {
            Some("committed mark")
        } else if [
            0,
            self.first(),
            (self.first() + self.next()) / 2,
            self.next(),
        ]
        .into_iter()
        .any(|from| log.bytes_since(from) != bytes_since(from))
        {
            Some("bytes since an index")
        } else {
            None
        }
    }
}

fn io_error(source: std::io::Error) -> WriteError {
    WriteError::Io {
        step: "sync",
        path: PathBuf::new(),
        source,
    }
}

fn purge_id(index: u64) -> Bytes {
    Bytes::copy_from_slice(&index.to_be_bytes())
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        6 => vec(prop_oneof![0..40_usize, 300..1_500_usize], 0..5).prop_map(Operation::Append),
        1 => any::<u8>().prop_map(Operation::Vote),
        1 => (0..6_u64).prop_map(|back| Operation::Truncate { back }),
        1 => (0..12_u64).prop_map(|back| Operation::Purge { back }),
        1 => (0..3_u64).prop_map(|by| Operation::PurgeBeyond { by }),
        1 => any::<u8>().prop_map(Operation::Committed),
        1 => Just(Operation::Fill),
        1 => Just(Operation::Reopen),
    ]
}

proptest! {
    #[test]
    fn any_sequence_of_calls_leaves_what_the_model_says(operations in vec(operation(), 1..60)) {
        let fs = SimFs::new(1);
        let mut log = open(&fs).unwrap();
        let mut model = Model::default();
        for operation in &operations {
            model.run(operation, &mut log).unwrap();
            model.apply(operation);
            if matches!(operation, Operation::Reopen) {
                drop(log);
                log = open(&fs).unwrap();
            }
            prop_assert_eq!(model.difference(&log), None, "after {:?}", operation);
        }
    }
}

#[test]
fn the_model_finds_each_kind_of_difference() {
    let fs = SimFs::new(1);
    let mut log = open(&fs).unwrap();
    let mut model = Model::default();
    let operations = [
        Operation::Append(vec![5; 4]),
        Operation::Purge { back: 2 },
        Operation::Vote(1),
        Operation::Committed(1),
    ];
    for operation in &operations {
        model.run(operation, &mut log).unwrap();
        model.apply(operation);
    }
    assert_eq!(model.difference(&log), None);
    let plant = |change: fn(&mut Model)| {
        let mut wrong = model.clone();
        change(&mut wrong);
        wrong.difference(&log)
    };
    assert_eq!(plant(|model| drop(model.entries.pop())), Some("entries"));
    assert_eq!(
        plant(|model| model.entries[0].1 = Bytes::new()),
        Some("entries")
    );
    assert_eq!(plant(|model| model.purged = None), Some("purge point"));
    assert_eq!(plant(|model| model.vote = None), Some("vote"));
    assert_eq!(
        plant(|model| model.committed = None),
        Some("committed mark")
    );
}
