//! The checkpoint's head: which state its chunks make, of which snapshot.

use std::io::Read;
use std::ops::Range;

use epoch_machine::State;
use prost::Message;

use super::error::TableError;
use super::{Base, HEAD_BYTES_MAX};
use crate::codec::{RowsError, SnapshotHead, decode_head, head_message};
use crate::snapshot::header::{begin, put_meta, read_array, read_begin, read_meta};
use crate::snapshot::{DamageKind, SnapshotMeta};

const MAGIC: [u8; 8] = *b"EPOCHCKP";
/// The length of what stands last: the first chunk, and how many there are.
const CHUNKS_BYTES: usize = 16;

/// What the head says.
#[derive(Clone, Debug)]
pub(super) struct Head {
    pub(super) base: Option<Base>,
    pub(super) meta: SnapshotMeta,
    pub(super) state: SnapshotHead,
    /// The numbers of the chunks.
    pub(super) chunks: Range<u64>,
}

/// A head as stored, but for the chunks: how many there are is known only once they are written.
#[derive(Clone, Debug)]
pub(super) struct HeadBytes(Vec<u8>);

impl HeadBytes {
    /// `None` when it is too long.
    pub(super) fn new(base: Option<Base>, meta: &SnapshotMeta, state: &State) -> Option<Self> {
        let mut bytes = begin(MAGIC);
        bytes.push(u8::from(base.is_some()));
        let Base { index, term } = base.unwrap_or_default();
        bytes.extend_from_slice(&index.to_le_bytes());
        bytes.extend_from_slice(&term.to_le_bytes());
        put_meta(&mut bytes, meta)?;
        bytes.extend(head_message(&state.into()).encode_to_vec());
        (bytes.len() + CHUNKS_BYTES <= HEAD_BYTES_MAX).then_some(Self(bytes))
    }

    pub(super) fn with_chunks(&self, chunks: &Range<u64>) -> Vec<u8> {
        let mut bytes = self.0.clone();
        bytes.extend_from_slice(&chunks.start.to_le_bytes());
        bytes.extend_from_slice(&(chunks.end.saturating_sub(chunks.start)).to_le_bytes());
        bytes
    }
}

impl Head {
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, TableError> {
        let damaged = |kind: DamageKind| TableError::Head(Box::new(kind));
        let chunks_at = bytes.len().saturating_sub(CHUNKS_BYTES);
        let (mut bytes, mut chunks) = bytes.split_at(chunks_at);
        let first = read_u64(&mut chunks).map_err(damaged)?;
        let count = read_u64(&mut chunks).map_err(damaged)?;
        let end = first.checked_add(count).ok_or(TableError::ChunkNumbers)?;

        read_begin(MAGIC, &mut bytes).map_err(damaged)?;
        let [has_base] = read_array(&mut bytes).map_err(damaged)?;
        let base = Base {
            index: read_u64(&mut bytes).map_err(damaged)?,
            term: read_u64(&mut bytes).map_err(damaged)?,
        };
        let base = match has_base {
            0 if base == Base::default() => None,
            1 => Some(base),
            _ => return Err(TableError::MalformedBase),
        };
        let meta = read_meta(&mut bytes).map_err(damaged)?;
        let state = decode_head(bytes).map_err(|source| RowsError::Row { row: 0, source })?;
        Ok(Self {
            base,
            meta,
            state,
            chunks: first..end,
        })
    }
}

fn read_u64(reader: &mut impl Read) -> Result<u64, DamageKind> {
    read_array(reader).map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::testing::random_state;

    fn stored(base: Option<Base>) -> Vec<u8> {
        let meta = SnapshotMeta {
            index: 9,
            term: 2,
            opaque: Bytes::from_static(b"membership"),
        };
        let head = HeadBytes::new(base, &meta, &random_state(1, 50)).unwrap();
        head.with_chunks(&(3..8))
    }

    #[test]
    fn a_head_is_read_back() {
        for base in [None, Some(Base { index: 4, term: 1 })] {
            let head = Head::decode(&stored(base)).unwrap();
            assert_eq!((head.base, head.meta.index, head.meta.term), (base, 9, 2));
            assert_eq!(head.meta.opaque, Bytes::from_static(b"membership"));
            assert_eq!(head.state, SnapshotHead::from(&random_state(1, 50)));
            assert_eq!(head.chunks, 3..8);
        }
    }

    #[test]
    fn a_malformed_head_is_refused() {
        let good = stored(None);
        for end in 0..good.len() {
            Head::decode(&good[..end]).unwrap_err();
        }
        for at in [0, 8, 12, 13, 21] {
            let mut changed = good.clone();
            changed[at] ^= 2;
            Head::decode(&changed).unwrap_err();
        }
        let mut beyond = good.clone();
        let len = beyond.len();
        beyond[len - 8..].fill(0xff);
        let error = Head::decode(&beyond).unwrap_err();
        assert!(matches!(error, TableError::ChunkNumbers), "{error:?}");
        let mut longer = good;
        longer.push(0);
        Head::decode(&longer).unwrap_err();
    }
}
