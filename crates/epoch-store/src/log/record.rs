//! Records: what a frame's payload says. The layout is in [`super::format`].

use bytes::{Buf, Bytes};

use super::{ENTRY_BYTES_MAX, OPAQUE_BYTES_MAX, Purged};

const TAG_VOTE: u8 = 1;
const TAG_ENTRIES: u8 = 2;
const TAG_TRUNCATE: u8 = 3;
const TAG_PURGE: u8 = 4;
const TAG_COMMITTED: u8 = 5;

/// The bytes an entries record takes beside its entries.
pub(super) const ENTRIES_HEAD_BYTES: usize = 13;
/// The bytes an entry takes beside its payload.
pub(super) const ENTRY_HEAD_BYTES: usize = 4;

/// One change of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record {
    Vote(Bytes),
    Entries { first: u64, entries: Vec<Placed> },
    Truncate { from: u64 },
    Purge(Purged),
    Committed(Bytes),
}

/// An entry and where in the frame's payload it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Placed {
    pub(super) at: u32,
    pub(super) payload: Bytes,
}

/// What a segment's first frame restates, so that older segments can go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SegmentHead {
    pub(super) segment: u64,
    /// The index of the next entry when the segment was begun.
    pub(super) next_index: u64,
    pub(super) vote: Option<Bytes>,
    pub(super) purged: Option<Purged>,
    pub(super) committed: Option<Bytes>,
}

pub(super) fn put_vote(payload: &mut Vec<u8>, vote: &[u8]) {
    payload.push(TAG_VOTE);
    put_bytes(payload, vote);
}

pub(super) fn put_truncate(payload: &mut Vec<u8>, from: u64) {
    payload.push(TAG_TRUNCATE);
    payload.extend_from_slice(&from.to_le_bytes());
}

pub(super) fn put_purge(payload: &mut Vec<u8>, purged: &Purged) {
    payload.push(TAG_PURGE);
    payload.extend_from_slice(&purged.index.to_le_bytes());
    put_bytes(payload, &purged.log_id);
}

pub(super) fn put_committed(payload: &mut Vec<u8>, committed: &[u8]) {
    payload.push(TAG_COMMITTED);
    put_bytes(payload, committed);
}

/// Returns where in the payload each entry begins.
pub(super) fn put_entries(payload: &mut Vec<u8>, first: u64, entries: &[(u64, Bytes)]) -> Vec<u32> {
    payload.push(TAG_ENTRIES);
    payload.extend_from_slice(&first.to_le_bytes());
    payload.extend_from_slice(&length(entries.len()).to_le_bytes());
    let mut places = Vec::with_capacity(entries.len());
    for (_, entry) in entries {
        places.push(length(payload.len() + ENTRY_HEAD_BYTES));
        put_bytes(payload, entry);
    }
    places
}

fn put_bytes(payload: &mut Vec<u8>, bytes: &[u8]) {
    payload.extend_from_slice(&length(bytes.len()).to_le_bytes());
    payload.extend_from_slice(bytes);
}

/// Lengths are bounded far below `u32::MAX` before anything is encoded.
fn length(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

impl SegmentHead {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut payload = Vec::new();
        payload.extend_from_slice(&self.segment.to_le_bytes());
        payload.extend_from_slice(&self.next_index.to_le_bytes());
        if let Some(vote) = &self.vote {
            put_vote(&mut payload, vote);
        }
        if let Some(purged) = &self.purged {
            put_purge(&mut payload, purged);
        }
        if let Some(committed) = &self.committed {
            put_committed(&mut payload, committed);
        }
        payload
    }

    /// `None` if the bytes are not a head.
    pub(super) fn decode(mut payload: Bytes) -> Option<Self> {
        let segment = payload.try_get_u64_le().ok()?;
        let next_index = payload.try_get_u64_le().ok()?;
        let mut head = Self {
            segment,
            next_index,
            vote: None,
            purged: None,
            committed: None,
        };
        for record in decode_records(payload)? {
            let repeated = match record {
                Record::Vote(vote) => head.vote.replace(vote).is_some(),
                Record::Purge(purged) => head.purged.replace(purged).is_some(),
                Record::Committed(committed) => head.committed.replace(committed).is_some(),
                Record::Entries { .. } | Record::Truncate { .. } => true,
            };
            if repeated {
                return None;
            }
        }
        Some(head)
    }
}

/// `None` if the bytes are not a sequence of whole records.
pub(super) fn decode_records(payload: Bytes) -> Option<Vec<Record>> {
    let total = payload.len();
    let mut rest = payload;
    let mut records = Vec::new();
    while rest.has_remaining() {
        records.push(match rest.get_u8() {
            TAG_VOTE => Record::Vote(take_bytes(&mut rest, OPAQUE_BYTES_MAX)?),
            TAG_ENTRIES => {
                let first = rest.try_get_u64_le().ok()?;
                let count = rest.try_get_u32_le().ok()?;
                let mut entries = Vec::new();
                for _ in 0..count {
                    let at = length(total - rest.remaining() + ENTRY_HEAD_BYTES);
                    let payload = take_bytes(&mut rest, ENTRY_BYTES_MAX)?;
                    entries.push(Placed { at, payload });
                }
                Record::Entries { first, entries }
            }
            TAG_TRUNCATE => Record::Truncate {
                from: rest.try_get_u64_le().ok()?,
            },
            TAG_PURGE => {
                let index = rest.try_get_u64_le().ok()?;
                let log_id = take_bytes(&mut rest, OPAQUE_BYTES_MAX)?;
                Record::Purge(Purged { index, log_id })
            }
            TAG_COMMITTED => Record::Committed(take_bytes(&mut rest, OPAQUE_BYTES_MAX)?),
            _ => return None,
        });
    }
    Some(records)
}

fn take_bytes(rest: &mut Bytes, max: usize) -> Option<Bytes> {
    let length = rest.try_get_u32_le().ok()? as usize;
    (length <= max && length <= rest.remaining()).then(|| rest.split_to(length))
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn samples() -> (Vec<u8>, Vec<Record>) {
        let purged = Purged {
            index: 4,
            log_id: Bytes::from_static(b"four"),
        };
        let entries = [(5, Bytes::from_static(b"five")), (6, Bytes::new())];
        let mut payload = Vec::new();
        put_vote(&mut payload, b"vote");
        let places = put_entries(&mut payload, 5, &entries);
        put_truncate(&mut payload, 6);
        put_purge(&mut payload, &purged);
        put_committed(&mut payload, b"");
        let placed = entries.iter().zip(places);
        let placed = placed.map(|((_, payload), at)| Placed {
            at,
            payload: payload.clone(),
        });
        let records = vec![
            Record::Vote(Bytes::from_static(b"vote")),
            Record::Entries {
                first: 5,
                entries: placed.collect(),
            },
            Record::Truncate { from: 6 },
            Record::Purge(purged),
            Record::Committed(Bytes::new()),
        ];
        (payload, records)
    }

    #[test]
    fn records_read_back_with_the_place_of_each_entry() {
        let (payload, records) = samples();
        let read = decode_records(Bytes::from(payload.clone())).unwrap();
        assert_eq!(read, records);
        let Record::Entries { entries, .. } = &read[1] else {
            panic!("no entries")
        };
        let at = entries[0].at as usize;
        assert_eq!(payload[at..at + 4], *b"five");
    }

    #[test]
    fn a_cut_payload_is_refused_unless_cut_between_records() {
        let (payload, records) = samples();
        let mut whole = 0;
        for cut in 0..payload.len() {
            let read = decode_records(Bytes::copy_from_slice(&payload[..cut]));
            if let Some(read) = read {
                assert_eq!(read, records[..whole]);
                whole += 1;
            }
        }
        assert_eq!(whole, records.len());
    }

    #[test]
    fn a_head_holds_only_what_it_restates_and_once() {
        let head = SegmentHead {
            segment: 3,
            next_index: 9,
            vote: Some(Bytes::from_static(b"v")),
            purged: Some(Purged {
                index: 4,
                log_id: Bytes::from_static(b"four"),
            }),
            committed: Some(Bytes::from_static(b"c")),
        };
        let good = head.encode();
        assert_eq!(SegmentHead::decode(Bytes::from(good.clone())), Some(head));
        let mut twice = good.clone();
        put_vote(&mut twice, b"w");
        assert_eq!(SegmentHead::decode(Bytes::from(twice)), None);
        let mut foreign = good;
        put_truncate(&mut foreign, 1);
        assert_eq!(SegmentHead::decode(Bytes::from(foreign)), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_read_without_a_panic(bytes in vec(any::<u8>(), 0..64)) {
            let bytes = Bytes::from(bytes);
            let _records = decode_records(bytes.clone());
            let _head = SegmentHead::decode(bytes);
        }
    }
}
