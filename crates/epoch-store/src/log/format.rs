//! The bytes of a log folder, and frames, which are how they lie in a segment file.
//!
//! # Sectors
//!
//! A segment is a sequence of sectors of 512 bytes: 511 of data, then an end byte: `A5` in the first
//! sector of a frame, `5A` in its others. A crash leaves a sector old or new, and old means past the
//! file's end or zero, so a zero end byte says that the sector was never written and any other wrong
//! one that it was damaged. That first sectors end differently means that no bytes of an entry can
//! look like the beginning of a frame. The last sector of a frame is filled up with zeros; its end
//! byte is the frame's trailer.
//!
//! After the last frame a segment may go on in zeros, of any number: the file is filled ahead, so
//! that a flush need not make it grow. In an earlier segment too: the next head's frame number and
//! CRC say that no frame is missing.
//!
//! # Frames
//!
//! A frame begins at a sector, so that writing one never rewrites a sector of another. One flush is
//! one frame. Offsets count data bytes; all numbers are little-endian; all CRCs are CRC-32C.
//!
//! | offset | bytes | what |
//! | --- | --- | --- |
//! | 0 | 4 | magic `EPLG` |
//! | 4 | 1 | format version, 1 |
//! | 5 | 1 | kind: 1 head, 2 records |
//! | 6 | 2 | zero |
//! | 8 | 8 | frame number: 1, 2, 3 … through all segments, heads included |
//! | 16 | 4 | payload length, at most 16 MiB |
//! | 20 | 4 | header CRC of the frame before, also over segment borders; 0 for frame 1 |
//! | 24 | 4 | CRC of the payload |
//! | 28 | 4 | header CRC: of the segment's number (8 bytes), then bytes 0 to 27 |
//! | 32 | | payload |
//!
//! # Payloads
//!
//! The head is a segment's first frame and only there: segment number (8), index of the next entry
//! (8), then vote, purge and committed records as far as there are any, so that nothing in older
//! segments but unpurged entries is needed. Records, one after the other without padding:
//!
//! | tag (1) | record | fields |
//! | --- | --- | --- |
//! | 1 | vote | length (4), bytes |
//! | 2 | entries | first index (8), count (4), then for each: length (4), bytes |
//! | 3 | truncate | the first index that goes (8) |
//! | 4 | purge | the last index that goes (8), length (4), bytes of its log id |
//! | 5 | committed | length (4), bytes |
//!
//! # The side file `synced`
//!
//! Two slots of 512 bytes, for even and odd numbers: magic `EPSM` (4), version 1 (1), zero (3),
//! number of the last synced frame (8), CRC of these 16 bytes (4). It is written after each flush
//! and synced on opening and from time to time ([`super::Log::mark_syncer`]); the higher good slot
//! counts. Every log of this version has it.

use bytes::{Bytes, BytesMut};

pub(super) const SECTOR: usize = 512;
/// What a sector carries beside its end byte.
pub(super) const SECTOR_DATA: usize = SECTOR - 1;
/// Never zero, so that a sector that was written differs from one that was not. The two differ in
/// every bit.
const FIRST_END: u8 = 0xA5;
const NEXT_END: u8 = 0x5A;
pub(super) const HEADER_BYTES: usize = 32;
/// Bounds the memory one frame needs. An append that is larger becomes several flushes.
pub(super) const PAYLOAD_BYTES_MAX: usize = 16 << 20;

/// Highest frame and segment number: counting on from one that was read can never overflow.
pub(super) const NUMBER_MAX: u64 = u64::MAX >> 1;

const MAGIC: [u8; 4] = *b"EPLG";
const VERSION: u8 = 1;

/// What a frame's payload holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameKind {
    /// The head of a segment: always its first frame and only there.
    Head,
    /// Records of one flush.
    Records,
}

/// A frame's first 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHeader {
    pub(super) kind: FrameKind,
    pub(super) number: u64,
    pub(super) payload_len: u32,
    pub(super) previous_crc: u32,
    pub(super) payload_crc: u32,
}

/// Why bytes are not a whole, good frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameFault {
    /// Part of it was never written: the write was cut off.
    Torn(&'static str),
    /// All of it was written, and it is wrong now.
    Damaged(&'static str),
    /// Good, but in a format this program does not know.
    Version(u8),
}

impl FrameHeader {
    fn encode(&self, segment: u64) -> ([u8; HEADER_BYTES], u32) {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        bytes[5] = match self.kind {
            FrameKind::Head => 1,
            FrameKind::Records => 2,
        };
        bytes[8..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.payload_len.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.previous_crc.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.payload_crc.to_le_bytes());
        let crc = header_crc(segment, &bytes[..28]);
        bytes[28..].copy_from_slice(&crc.to_le_bytes());
        (bytes, crc)
    }

    /// Reads a header and its CRC from the start of a sector.
    pub(super) fn decode(sector: &[u8], segment: u64) -> Result<(Self, u32), FrameFault> {
        let Some(bytes) = sector.first_chunk::<HEADER_BYTES>() else {
            return Err(FrameFault::Torn("the file ends inside a frame header"));
        };
        let crc = u32_at(bytes, 28);
        if bytes[..4] != MAGIC || crc != header_crc(segment, &bytes[..28]) {
            return Err(FrameFault::Damaged("a valid frame header"));
        }
        if bytes[4] != VERSION {
            return Err(FrameFault::Version(bytes[4]));
        }
        let kind = match bytes[5] {
            1 => FrameKind::Head,
            2 => FrameKind::Records,
            _ => return Err(FrameFault::Damaged("a known kind of frame")),
        };
        let number = u64::from(u32_at(bytes, 8)) | u64::from(u32_at(bytes, 12)) << 32;
        let header = Self {
            kind,
            number,
            payload_len: u32_at(bytes, 16),
            previous_crc: u32_at(bytes, 20),
            payload_crc: u32_at(bytes, 24),
        };
        let in_bounds = number <= NUMBER_MAX && header.payload_len as usize <= PAYLOAD_BYTES_MAX;
        if bytes[6..8] != [0, 0] || !in_bounds {
            return Err(FrameFault::Damaged("a frame header within bounds"));
        }
        Ok((header, crc))
    }

    /// The bytes this frame takes in the file: whole sectors.
    pub(super) fn frame_bytes(&self) -> usize {
        frame_bytes(self.payload_len as usize)
    }
}

fn header_crc(segment: u64, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&segment.to_le_bytes()), bytes)
}

fn u32_at(bytes: &[u8; HEADER_BYTES], at: usize) -> u32 {
    let mut four = [0; 4];
    four.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(four)
}

/// The bytes a frame with this payload takes in the file: whole sectors.
pub(super) fn frame_bytes(payload_len: usize) -> usize {
    (HEADER_BYTES + payload_len).div_ceil(SECTOR_DATA) * SECTOR
}

/// A frame as it lies in the file, and its header CRC, which the next frame repeats.
pub(super) fn encode_frame(
    kind: FrameKind,
    segment: u64,
    number: u64,
    previous_crc: u32,
    payload: &[u8],
) -> (Vec<u8>, u32) {
    debug_assert!(
        payload.len() <= PAYLOAD_BYTES_MAX,
        "callers split what is larger"
    );
    let header = FrameHeader {
        kind,
        number,
        payload_len: u32::try_from(payload.len()).unwrap_or(u32::MAX),
        previous_crc,
        payload_crc: crc32c::crc32c(payload),
    };
    let (head, crc) = header.encode(segment);
    let mut sectors = Vec::with_capacity(frame_bytes(payload.len()));
    let (first, rest) = payload.split_at(payload.len().min(SECTOR_DATA - HEADER_BYTES));
    sectors.extend_from_slice(&head);
    push_sector(&mut sectors, first, FIRST_END);
    for chunk in rest.chunks(SECTOR_DATA) {
        push_sector(&mut sectors, chunk, NEXT_END);
    }
    (sectors, crc)
}

/// Completes the sector begun in `sectors` with `chunk`, padding and end byte.
fn push_sector(sectors: &mut Vec<u8>, chunk: &[u8], end: u8) {
    sectors.extend_from_slice(chunk);
    sectors.resize(sectors.len().next_multiple_of(SECTOR) - 1, 0);
    sectors.push(end);
}

/// What a sector's end byte says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SectorEnd {
    /// Never written, or not wholly.
    Unwritten,
    /// A frame begins here.
    First,
    /// A frame goes on here.
    Next,
    /// No write leaves this.
    Wrong,
}

impl SectorEnd {
    /// Of a sector, or of what the file has of its last one.
    pub(super) fn of(sector: &[u8]) -> Self {
        match sector.get(SECTOR - 1) {
            None | Some(0) => Self::Unwritten,
            Some(&FIRST_END) => Self::First,
            Some(&NEXT_END) => Self::Next,
            Some(_) => Self::Wrong,
        }
    }
}

/// Checks the end byte of each sector of a frame, which says whether the sector was written.
pub(super) fn check_sector_ends(sectors: &[u8]) -> Result<(), FrameFault> {
    let (mut unwritten, mut wrong) = (sectors.is_empty(), false);
    for (at, sector) in sectors.chunks(SECTOR).enumerate() {
        match SectorEnd::of(sector) {
            SectorEnd::Unwritten => unwritten = true,
            SectorEnd::First => wrong |= at != 0,
            SectorEnd::Next => wrong |= at == 0,
            SectorEnd::Wrong => wrong = true,
        }
    }
    // No cut-off write leaves a wrong end byte behind, whatever else it left out.
    if wrong {
        Err(FrameFault::Damaged("a sector that ends in its end byte"))
    } else if unwritten {
        Err(FrameFault::Torn("a sector of the frame was never written"))
    } else {
        Ok(())
    }
}

#[cfg(test)]
thread_local! {
    /// A planted bug: a frame is good if its header is.
    pub(super) static BELIEVES_TORN_FRAMES: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// The payload of the frame that is exactly `sectors`, checked against its header.
pub(super) fn decode_payload(header: &FrameHeader, sectors: &[u8]) -> Result<Bytes, FrameFault> {
    #[cfg(test)]
    if BELIEVES_TORN_FRAMES.get() {
        let mut data = strip_sector_ends(sectors).freeze();
        return Ok(data
            .split_off(HEADER_BYTES)
            .slice(..header.payload_len as usize));
    }
    check_sector_ends(sectors)?;
    let mut data = strip_sector_ends(sectors);
    let padding = data.split_off((HEADER_BYTES + header.payload_len as usize).min(data.len()));
    if padding.iter().any(|byte| *byte != 0) {
        return Err(FrameFault::Damaged("zeros after the payload"));
    }
    let payload = data.split_off(HEADER_BYTES.min(data.len()));
    if crc32c::crc32c(&payload) != header.payload_crc {
        return Err(FrameFault::Damaged("a payload that matches its checksum"));
    }
    Ok(payload.freeze())
}

/// Where bytes of a frame lie in the file: the sectors to read, and how much of their data comes
/// before the wanted bytes.
pub(super) struct Span {
    pub(super) offset: u64,
    pub(super) bytes: usize,
    pub(super) skip: usize,
}

impl Span {
    /// `from` counts the frame's data bytes, header included, without sector ends.
    pub(super) fn new(frame_offset: u64, from: usize, len: usize) -> Self {
        let first = from / SECTOR_DATA;
        let skip = from % SECTOR_DATA;
        Self {
            offset: frame_offset + (first * SECTOR) as u64,
            bytes: (skip + len).div_ceil(SECTOR_DATA) * SECTOR,
            skip,
        }
    }
}

/// The data of whole sectors, without their end bytes.
pub(super) fn strip_sector_ends(sectors: &[u8]) -> BytesMut {
    let mut data = BytesMut::with_capacity(sectors.len());
    for sector in sectors.chunks(SECTOR) {
        data.extend_from_slice(&sector[..sector.len().min(SECTOR_DATA)]);
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(sectors: &[u8], segment: u64) -> Result<(FrameHeader, Bytes), FrameFault> {
        let (header, _) = FrameHeader::decode(sectors, segment)?;
        Ok((header, decode_payload(&header, sectors)?))
    }

    #[test]
    fn a_frame_of_any_length_reads_back() {
        for len in (0..1_200).chain([511 * 3 - 33, 511 * 3 - 32, 511 * 3 - 31, 100_000]) {
            let payload: Vec<u8> = (0..len).map(|at: usize| at.to_le_bytes()[0]).collect();
            let (sectors, _) = encode_frame(FrameKind::Records, 7, 9, 11, &payload);
            assert_eq!(sectors.len(), frame_bytes(len));
            let (header, read) = decode(&sectors, 7).unwrap();
            assert_eq!(read, payload);
            assert_eq!((header.number, header.previous_crc), (9, 11));
        }
    }

    #[test]
    fn a_frame_of_another_segment_is_not_taken_for_one_of_this() {
        let (sectors, _) = encode_frame(FrameKind::Records, 7, 9, 11, b"payload");
        assert!(matches!(decode(&sectors, 8), Err(FrameFault::Damaged(_))));
    }

    #[test]
    fn any_flipped_bit_is_damage_and_any_missing_sector_is_a_tear() {
        let payload = [3; 1_300];
        let (good, _) = encode_frame(FrameKind::Records, 7, 9, 11, &payload);
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(
                matches!(decode(&bad, 7), Err(FrameFault::Damaged(_))),
                "bit {bit}"
            );
        }
        for sector in 1..good.len() / SECTOR {
            let mut bad = good.clone();
            bad[sector * SECTOR..(sector + 1) * SECTOR].fill(0);
            assert!(
                matches!(decode(&bad, 7), Err(FrameFault::Torn(_))),
                "sector {sector}"
            );
        }
    }

    #[test]
    fn bytes_are_found_across_sector_ends() {
        let payload: Vec<u8> = (0..3_000usize).map(|at| at.to_le_bytes()[0]).collect();
        let (sectors, _) = encode_frame(FrameKind::Records, 1, 1, 0, &payload);
        for (from, len) in [(0, 3_000), (478, 2), (479, 1), (990, 0), (1_000, 1_000)] {
            let span = Span::new(0, HEADER_BYTES + from, len);
            let start = usize::try_from(span.offset).unwrap();
            let data = strip_sector_ends(&sectors[start..start + span.bytes]);
            assert_eq!(data[span.skip..span.skip + len], payload[from..from + len]);
        }
    }
}
