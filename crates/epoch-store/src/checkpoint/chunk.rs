//! Chunks: changed rows, as many as fit into one value of the table.

use epoch_machine::RowChange;
use prost::Message;

use super::error::{ChunkError, TableError};
use super::key;
use super::{CHUNK_BYTES, CHUNK_BYTES_MAX};
use crate::codec::{SnapshotRow, row_message};

/// How an item with a row begins. One of a row that is gone begins as its key does.
const ROW: u8 = 0;
const LENGTH_BYTES: usize = 2;

/// Gathers items until a chunk is full.
#[derive(Debug, Default)]
pub(super) struct Packer {
    chunk: Vec<u8>,
    item: Vec<u8>,
}

impl Packer {
    /// Adds a row. Returns the chunk before it, if it does not fit in there any more.
    pub(super) fn add(&mut self, change: &RowChange) -> Result<Option<Vec<u8>>, TableError> {
        self.item.clear();
        encode(&mut self.item, change);
        let bytes = LENGTH_BYTES + self.item.len();
        let length = u16::try_from(self.item.len())
            .ok()
            .filter(|_| bytes <= CHUNK_BYTES_MAX)
            .ok_or(TableError::RowTooLarge(bytes))?;
        let full = !self.chunk.is_empty() && self.chunk.len() + bytes > CHUNK_BYTES;
        let chunk = full.then(|| std::mem::take(&mut self.chunk));
        self.chunk.extend_from_slice(&length.to_le_bytes());
        self.chunk.extend_from_slice(&self.item);
        Ok(chunk)
    }

    /// The last chunk.
    pub(super) fn finish(self) -> Option<Vec<u8>> {
        (!self.chunk.is_empty()).then_some(self.chunk)
    }
}

fn encode(item: &mut Vec<u8>, change: &RowChange) {
    let row = match change.clone() {
        RowChange::Session(_, row) => row.map(SnapshotRow::Session),
        RowChange::Scope(_, row) => row.map(SnapshotRow::Scope),
        RowChange::Spent(_, _, row) => row.map(SnapshotRow::Spent),
        RowChange::Wait(_, _, row) => row.map(SnapshotRow::Wait),
        RowChange::Record(_, row) => row.map(SnapshotRow::Record),
        RowChange::Admin(_, row) => row.map(SnapshotRow::Admin),
    };
    match row {
        Some(row) => {
            item.push(ROW);
            item.extend(row_message(&row).encode_to_vec());
        }
        None => key::put_changed_key(item, change),
    }
}

/// One changed row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Item<'a> {
    /// The row.
    Row(&'a [u8]),
    /// The key of a row that is gone.
    Gone(&'a [u8]),
}

/// Reads a chunk. What is within the items is not looked at.
pub(super) fn items(chunk: &[u8]) -> impl Iterator<Item = Result<Item<'_>, ChunkError>> {
    let mut rest = chunk;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let item = take_item(&mut rest);
        if item.is_none() {
            rest = &[];
        }
        Some(item.ok_or(ChunkError::CutOff).and_then(parse))
    })
}

fn take_item<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, after) = rest.split_first_chunk::<LENGTH_BYTES>()?;
    let (item, after) = after.split_at_checked(u16::from_le_bytes(*length).into())?;
    *rest = after;
    Some(item)
}

fn parse(item: &[u8]) -> Result<Item<'_>, ChunkError> {
    match item.split_first() {
        Some((&ROW, row)) => Ok(Item::Row(row)),
        Some(_) if key::is_row_key(item) => Ok(Item::Gone(item)),
        Some(_) | None => Err(ChunkError::Key),
    }
}

#[cfg(test)]
mod tests {
    use epoch_machine::VALUE_BYTES_MAX;

    use super::*;
    use crate::testing::rows::largest_rows;
    use crate::testing::{Workload, fresh_state};

    /// Rows of every kind, there and gone.
    fn changes() -> Vec<RowChange> {
        let mut state = fresh_state();
        state.track_changes();
        let mut workload = Workload::new(1, 300, 60);
        for index in 1..=400 {
            workload.advance(&mut state, index);
        }
        let changes = state.take_changes();
        let rows = state.changed_rows(&changes);
        let gone = rows.map(|change| match change {
            RowChange::Session(key, _) => RowChange::Session(key, None),
            RowChange::Scope(name, _) => RowChange::Scope(name, None),
            RowChange::Spent(key, request_id, _) => RowChange::Spent(key, request_id, None),
            RowChange::Wait(name, place, _) => RowChange::Wait(name, place, None),
            RowChange::Record(name, _) => RowChange::Record(name, None),
            RowChange::Admin(key, _) => RowChange::Admin(key, None),
        });
        state.changed_rows(&changes).chain(gone).collect()
    }

    fn pack(changes: &[RowChange]) -> Vec<Vec<u8>> {
        let mut packer = Packer::default();
        let full = changes.iter().filter_map(|row| packer.add(row).unwrap());
        let mut chunks: Vec<_> = full.collect();
        chunks.extend(packer.finish());
        chunks
    }

    #[test]
    fn chunks_are_full_and_read_back_in_order() {
        let changes = changes();
        let chunks = pack(&changes);
        assert!(chunks.len() > 3);
        // The first item of the next chunk would not have fitted in.
        for pair in chunks.windows(2) {
            let first = take_item(&mut &*pair[1]).unwrap();
            assert!(pair[0].len() + LENGTH_BYTES + first.len() > CHUNK_BYTES);
            assert!(pair[0].len() <= CHUNK_BYTES || items(&pair[0]).count() == 1);
        }
        assert!(chunks.iter().any(|chunk| chunk.len() > CHUNK_BYTES));
        let mut read = chunks.iter().flat_map(|chunk| items(chunk));
        for change in &changes {
            let mut expected = Vec::new();
            encode(&mut expected, change);
            match read.next().unwrap().unwrap() {
                Item::Row(row) => assert_eq!((ROW, row), (expected[0], &expected[1..])),
                Item::Gone(key) => assert_eq!(key, expected),
            }
        }
        assert!(read.next().is_none());
        assert!(pack(&[]).is_empty());
    }

    #[test]
    fn an_item_larger_than_a_chunk_has_one_to_itself() {
        let long = |bytes| {
            let name = "n".repeat(bytes).into();
            RowChange::Scope(name, None)
        };
        let largest = CHUNK_BYTES_MAX - LENGTH_BYTES - 1;
        let chunks = pack(&[long(10), long(largest), long(10), long(10)]);
        let lengths: Vec<_> = chunks.iter().map(Vec::len).collect();
        assert_eq!(lengths, [13, CHUNK_BYTES_MAX, 26]);
        let refused = Packer::default().add(&long(largest + 1)).unwrap_err();
        assert!(matches!(refused, TableError::RowTooLarge(_)), "{refused}");
    }

    #[test]
    fn the_largest_row_of_each_kind_fits_there_and_gone() {
        let mut largest = 0;
        for row in largest_rows() {
            let [there, gone] = match row {
                SnapshotRow::Session(row) => {
                    [Some(row.clone()), None].map(|is| RowChange::Session(row.key, is))
                }
                SnapshotRow::Scope(row) => {
                    [Some(row.clone()), None].map(|is| RowChange::Scope(row.scope.shared(), is))
                }
                SnapshotRow::Spent(row) => [Some(row.clone()), None]
                    .map(|is| RowChange::Spent(row.session, row.request_id, is)),
                SnapshotRow::Wait(row) => [Some(row.clone()), None]
                    .map(|is| RowChange::Wait(row.scope.shared(), (row.index, row.offset), is)),
                SnapshotRow::Record(row) => {
                    [Some(row.clone()), None].map(|is| RowChange::Record(row.scope.shared(), is))
                }
                SnapshotRow::Admin(row) => {
                    [Some(row.clone()), None].map(|is| RowChange::Admin(row.key(), is))
                }
            };
            for change in [there, gone] {
                let chunks = pack(std::slice::from_ref(&change));
                assert_eq!(chunks.len(), 1);
                assert!(chunks[0].len() <= CHUNK_BYTES_MAX, "{}", chunks[0].len());
                largest = largest.max(chunks[0].len());
            }
        }
        // A record, with all its intents.
        assert!(largest > VALUE_BYTES_MAX + 1_024, "{largest}");
    }

    #[test]
    fn a_chunk_cut_anywhere_but_between_items_is_refused_and_reading_ends() {
        let chunk = pack(&changes()[..3]).remove(0);
        let mut refused = 0;
        for end in 1..chunk.len() {
            let read: Vec<_> = items(&chunk[..end]).collect();
            assert!(read.len() <= 3);
            refused += u64::from(read.iter().any(Result::is_err));
        }
        assert_eq!(refused, chunk.len() as u64 - 3);
    }

    #[test]
    fn malformed_items_are_refused() {
        for item in [&[0, 0][..], &[1, 0, 9], &[2, 0, 1], &[2]] {
            items(item).next().unwrap().unwrap_err();
        }
    }
}
