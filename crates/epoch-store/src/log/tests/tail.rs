//! What follows the last good frame: a write that a crash cut off is taken back, anything else is
//! refused.

use super::super::format::SECTOR;
use super::sample::{Sample, assert_damaged, frame_starts, mark};
use super::*;

/// Bytes of the last frame as a crash can leave them, with what was done to them.
fn torn_tails(whole: &[u8], start: usize) -> Vec<(Vec<u8>, String)> {
    let frame_end = *frame_starts(whole).last().unwrap();
    let mut tails = Vec::new();
    for cut in start..frame_end {
        tails.push((whole[..cut].to_vec(), format!("cut at {cut}")));
        let mut zeroed = whole.to_vec();
        zeroed[cut..].fill(0);
        tails.push((zeroed, format!("zero from {cut}")));
    }
    let sectors = (frame_end - start) / SECTOR;
    for missing in 1..1_usize << sectors {
        let mut bytes = whole.to_vec();
        for sector in (0..sectors).filter(|sector| missing & (1 << sector) != 0) {
            bytes[start + sector * SECTOR..start + (sector + 1) * SECTOR].fill(0);
        }
        tails.push((bytes, format!("sectors {missing:b} missing")));
    }
    tails
}

#[test]
fn a_torn_tail_is_made_zero_and_nothing_acknowledged_is_lost() {
    for sample in [Sample::new(), Sample::filled()] {
        let synced = sample.read(&mark());
        let acknowledged = all(&open(&sample.fs).unwrap());
        let mut log = open(&sample.fs).unwrap();
        let start = usize::try_from(log.active.end).unwrap();
        log.append(&entries(14..15, 1_200)).unwrap();
        drop(log);
        let path = sample.last_segment();
        for (bytes, case) in torn_tails(&sample.read(&path), start) {
            sample.fs.put(&mark(), &synced).unwrap();
            sample.fs.put(&path, &bytes).unwrap();
            let is_torn = bytes[start..].iter().any(|byte| *byte != 0);
            let tail = inspect(&sample.fs, folder()).unwrap().0.torn_tail;
            let place = tail.map(|tail| (tail.file, tail.offset));
            assert_eq!(
                place,
                is_torn.then(|| (path.clone(), start as u64)),
                "{case}"
            );
            let mut log = open(&sample.fs).unwrap_or_else(|refused| panic!("{case}: {refused}"));
            assert_eq!(all(&log), acknowledged, "{case}");
            assert_eq!(log.vote(), Some(log_id("vote")), "{case}");
            // A file without a torn tail keeps its length.
            assert_eq!(sample.read(&path).len(), bytes.len(), "{case}");
            log.append(&entries(14..15, 60)).unwrap();
            drop(log);
            assert_eq!(open(&sample.fs).unwrap().last_index(), Some(14), "{case}");
        }
    }
}

#[test]
fn the_same_tail_is_refused_once_it_was_acknowledged() {
    for sample in [Sample::new(), Sample::filled()] {
        let mut log = open(&sample.fs).unwrap();
        let (start, frame) = (log.active.end, log.active.last_frame + 1);
        log.append(&entries(14..15, 1_200)).unwrap();
        drop(log);
        let path = sample.last_segment();
        for (bytes, case) in torn_tails(&sample.read(&path), usize::try_from(start).unwrap()) {
            let expected = OpenError::Short {
                file: path.clone(),
                offset: start,
                last: frame - 1,
                synced: frame,
            };
            let refused = sample.open_with(&path, &bytes).unwrap_err();
            assert_eq!(refused.to_string(), expected.to_string(), "{case}");
            // Refusing changes nothing.
            assert_eq!(sample.read(&path), bytes, "{case}");
        }
    }
}

/// The sample with something after its last frame, and nothing known to be synced.
struct Tail {
    sample: Sample,
    path: PathBuf,
    whole: Vec<u8>,
    /// Where the last frame ends.
    end: usize,
}

const FIRST_END: u8 = 0xA5;
const NEXT_END: u8 = 0x5A;
/// In a sector.
const END_AT: usize = SECTOR - 1;

impl Tail {
    fn new() -> Self {
        let sample = Sample::filled();
        sample.forget_mark();
        let path = sample.last_segment();
        let whole = sample.read(&path);
        let end = *frame_starts(&whole).last().unwrap();
        Self {
            sample,
            path,
            whole,
            end,
        }
    }

    fn with(&self, at: usize, bytes: &[u8]) -> Vec<u8> {
        let mut changed = self.whole.clone();
        changed.resize(changed.len().max(at + bytes.len()), 0);
        changed[at..at + bytes.len()].copy_from_slice(bytes);
        changed
    }

    /// A frame of three sectors whose number is the last one's plus `added`.
    fn frame(&self, added: u64) -> Vec<u8> {
        let log = self.sample.open_with(&self.path, &self.whole).unwrap();
        let (segment, number) = (log.active.number, log.active.last_frame + added);
        let kind = format::FrameKind::Records;
        format::encode_frame(kind, segment, number, log.active.last_crc, &[1; 1_000]).0
    }
}

#[test]
fn what_no_crash_leaves_after_the_last_frame_is_refused_where_it_is() {
    let tail = Tail::new();
    let (end, later) = (tail.end, tail.end + 2 * SECTOR);
    let beyond = [
        &tail.frame(1)[..2 * SECTOR],
        &[0; SECTOR + END_AT],
        &[NEXT_END],
    ]
    .concat();
    let later_frame = tail.frame(2);
    let cases = [
        ("another frame", later, later_frame.as_slice(), end),
        (
            "a first sector, whatever is in it",
            later + END_AT,
            &[FIRST_END],
            end,
        ),
        ("a wrong sector end", later + END_AT, &[7], later),
        ("a wrong sector end at once", end + END_AT, &[7], end),
        ("a later sector at once", end + END_AT, &[NEXT_END], end),
        (
            "a torn frame, not the next",
            end,
            &later_frame[..SECTOR],
            end,
        ),
        (
            "a sector beyond a torn frame",
            end,
            &beyond,
            end + 3 * SECTOR,
        ),
    ];
    for (case, at, bytes, offset) in cases {
        let bytes = tail.with(at, bytes);
        let refused = tail.sample.open_with(&tail.path, &bytes);
        let refused = refused.expect_err(case);
        assert_damaged(refused, &tail.path, offset as u64);
        assert_eq!(tail.sample.read(&tail.path), bytes, "{case}");
    }
}

#[test]
fn what_a_crash_may_leave_after_the_last_frame_is_made_zero() {
    let tail = Tail::new();
    let later = tail.end + 2 * SECTOR;
    let frame = tail.frame(1);
    let cases: [(&str, usize, &[u8]); 3] = [
        ("a torn frame", tail.end, &frame[..2 * SECTOR]),
        ("the rest of a torn frame", later + END_AT, &[NEXT_END]),
        ("a sector not wholly written", later + 5, &[9]),
    ];
    for (case, at, bytes) in cases {
        let opened = tail.sample.open_with(&tail.path, &tail.with(at, bytes));
        assert_eq!(all(&opened.expect(case)).len(), 14, "{case}");
        assert_eq!(tail.sample.read(&tail.path), tail.whole, "{case}");
    }
}

#[test]
fn an_entry_that_looks_like_a_frame_is_not_taken_for_one() {
    let sample = Sample::new();
    let mut log = open(&sample.fs).unwrap();
    let (segment, frame) = (log.active.number, log.active.last_frame);
    let start = usize::try_from(log.active.end).unwrap();
    let synced = sample.read(&mark());
    let inner = format::encode_frame(format::FrameKind::Records, segment, frame + 2, 0, b"").0;
    // Its header begins the second sector.
    let lead = format::SECTOR_DATA - format::HEADER_BYTES - ENTRIES_HEAD_BYTES - ENTRY_HEAD_BYTES;
    let payload = [vec![0; lead], inner[..400].to_vec()].concat();
    log.append(&[(14, Bytes::from(payload))]).unwrap();
    drop(log);
    let path = sample.last_segment();
    let mut bytes = sample.read(&path);
    assert_eq!(bytes[start + SECTOR..][..400], inner[..400]);
    bytes[start..start + SECTOR].fill(0);
    sample.fs.put(&mark(), &synced).unwrap();
    let log = sample.open_with(&path, &bytes).unwrap();
    assert_eq!(log.last_index(), Some(13));
}
