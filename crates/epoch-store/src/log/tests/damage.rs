//! What opening repairs (a write that a crash cut off) and what it refuses (everything else).

use super::super::format::SECTOR;
use super::*;

/// A log of several segments, and how its files look.
struct Sample {
    folder: tempfile::TempDir,
}

impl Sample {
    /// Frames of one and of several sectors, in at least three segments.
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut log = open(folder.path()).unwrap();
        log.save_vote(log_id("vote")).unwrap();
        append_samples(&mut log, 0);
        assert!(segments(folder.path()).len() >= 3);
        Self { folder }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn segment(&self, number: u64) -> PathBuf {
        segment::segment_path(self.path(), number)
    }

    fn last_segment(&self) -> PathBuf {
        segments(self.path()).pop().unwrap()
    }

    fn mark(&self) -> PathBuf {
        self.path().join(MARK_NAME)
    }
}

/// Frames of two sectors and of one, by turns.
const SAMPLE_LENS: [usize; 2] = [860, 50];

/// Appends entries from `from` to 13, each in a frame of its own.
fn append_samples(log: &mut Log, from: u64) {
    for index in from..14 {
        let len = SAMPLE_LENS[usize::from(index % 2 == 1)];
        log.append(&entries(index..index + 1, len)).unwrap();
    }
}

fn assert_damaged(refused: OpenError, path: &Path, at: u64) {
    match refused {
        OpenError::Damaged { file, offset, .. } => assert_eq!((file.as_path(), offset), (path, at)),
        other => panic!("not named as damage: {other}"),
    }
}

/// Where the frames of a segment begin, and its end, from the lengths in their headers.
fn frame_starts(bytes: &[u8]) -> Vec<usize> {
    let mut starts = vec![0];
    let mut at = 0;
    while at < bytes.len() {
        let len = u32::from_le_bytes(bytes[at + 16..at + 20].try_into().unwrap());
        at += format::frame_bytes(len.try_into().unwrap());
        starts.push(at);
    }
    starts
}

/// Calls `check` with each way a crash can leave the last frame incomplete. The frame has three
/// sectors and is not acknowledged; `check` gets the folder.
fn for_each_torn_tail(check: impl Fn(&Path, &str)) {
    let sample = Sample::new();
    let mark = std::fs::read(sample.mark()).unwrap();
    let mut log = open(sample.path()).unwrap();
    log.append(&entries(14..15, 1_200)).unwrap();
    drop(log);
    let path = sample.last_segment();
    let whole = std::fs::read(&path).unwrap();
    let starts = frame_starts(&whole);
    let start = starts[starts.len() - 2];
    assert_eq!(whole.len() - start, 3 * SECTOR);
    let try_with = |bytes: &[u8], case: &str| {
        std::fs::write(&path, bytes).unwrap();
        std::fs::write(sample.mark(), &mark).unwrap();
        check(sample.path(), case);
    };
    for cut in start..whole.len() {
        try_with(&whole[..cut], &format!("cut at {cut}"));
        let mut zeroed = whole.clone();
        zeroed[cut..].fill(0);
        try_with(&zeroed, &format!("zero from {cut}"));
    }
    for missing in 1..8_usize {
        let mut bytes = whole.clone();
        for sector in (0..3).filter(|sector| missing & (1 << sector) != 0) {
            bytes[start + sector * SECTOR..start + (sector + 1) * SECTOR].fill(0);
        }
        try_with(&bytes, &format!("sectors {missing:b} missing"));
    }
}

#[test]
fn a_torn_tail_is_cut_off_and_nothing_acknowledged_is_lost() {
    let sample = Sample::new();
    let acknowledged = all(&open(sample.path()).unwrap());
    for_each_torn_tail(|folder, case| {
        let mut log = open(folder).unwrap_or_else(|refused| panic!("{case}: {refused}"));
        assert_eq!(all(&log), acknowledged, "{case}");
        assert_eq!(log.vote(), Some(log_id("vote")), "{case}");
        log.append(&entries(14..15, 60)).unwrap();
        drop(log);
        assert_eq!(open(folder).unwrap().last_index(), Some(14), "{case}");
    });
}

#[test]
fn the_same_tail_is_refused_once_it_was_acknowledged() {
    let sample = Sample::new();
    let path = sample.last_segment();
    let whole = std::fs::read(&path).unwrap();
    let starts = frame_starts(&whole);
    let start = starts[starts.len() - 2];
    for cut in start..whole.len() {
        std::fs::write(&path, &whole[..cut]).unwrap();
        let refused = open(sample.path()).unwrap_err();
        match refused {
            OpenError::Short {
                file,
                offset,
                last,
                synced,
            } => {
                assert_eq!(
                    (file, offset, last + 1),
                    (path.clone(), start as u64, synced)
                );
            }
            other => panic!("cut at {cut}: {other}"),
        }
    }
}

#[test]
fn a_changed_bit_anywhere_is_refused_by_file_and_frame() {
    let sample = Sample::new();
    for path in segments(sample.path()) {
        let whole = std::fs::read(&path).unwrap();
        let starts = frame_starts(&whole);
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (at % 8);
            std::fs::write(&path, &bytes).unwrap();
            let start = starts.iter().rev().find(|start| **start <= at).unwrap();
            assert_damaged(open(sample.path()).unwrap_err(), &path, *start as u64);
        }
        std::fs::write(&path, &whole).unwrap();
    }
    open(sample.path()).unwrap();
}

#[test]
fn a_lost_sector_before_a_good_frame_is_refused() {
    let sample = Sample::new();
    let path = sample.last_segment();
    let whole = std::fs::read(&path).unwrap();
    let starts = frame_starts(&whole);
    // As if nothing had been synced, so that only the later frame tells.
    std::fs::remove_file(sample.mark()).unwrap();
    drop(SyncedMark::create(&crate::RealFs, sample.path()).unwrap());
    let mark = std::fs::read(sample.mark()).unwrap();
    for sector in 0..starts[starts.len() - 2] / SECTOR {
        let mut bytes = whole.clone();
        bytes[sector * SECTOR..(sector + 1) * SECTOR].fill(0);
        std::fs::write(&path, &bytes).unwrap();
        std::fs::write(sample.mark(), &mark).unwrap();
        let start = starts
            .iter()
            .rev()
            .find(|start| **start <= sector * SECTOR)
            .unwrap();
        assert_damaged(open(sample.path()).unwrap_err(), &path, *start as u64);
    }
}

#[test]
fn a_torn_frame_in_an_earlier_segment_is_refused() {
    let sample = Sample::new();
    let path = sample.segment(2);
    let whole = std::fs::read(&path).unwrap();
    let starts = frame_starts(&whole);
    let last = starts[starts.len() - 2];
    std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    assert_damaged(open(sample.path()).unwrap_err(), &path, last as u64);
    // Cut between two frames, the segment after it tells.
    std::fs::write(&path, &whole[..last]).unwrap();
    assert_damaged(open(sample.path()).unwrap_err(), &sample.segment(3), 0);
}

#[test]
fn a_missing_file_is_refused_by_name() {
    let sample = Sample::new();
    let refuse_without = |path: &Path| {
        let bytes = std::fs::read(path).unwrap();
        std::fs::remove_file(path).unwrap();
        let refused = open(sample.path()).unwrap_err();
        std::fs::write(path, bytes).unwrap();
        refused
    };
    let middle = sample.segment(2);
    let refused = refuse_without(&middle);
    assert!(
        matches!(&refused, OpenError::Missing { file } if *file == middle),
        "{refused}"
    );
    let refused = refuse_without(&sample.mark());
    assert!(
        matches!(&refused, OpenError::Missing { file } if *file == sample.mark()),
        "{refused}"
    );
    let refused = refuse_without(&sample.segment(1));
    assert!(
        matches!(&refused, OpenError::FirstEntry { file, expected: 0, .. } if *file == middle),
        "{refused}"
    );
    let refused = refuse_without(&sample.last_segment());
    assert!(matches!(&refused, OpenError::Short { .. }), "{refused}");
    open(sample.path()).unwrap();
    for path in segments(sample.path()) {
        std::fs::remove_file(path).unwrap();
    }
    let refused = open(sample.path()).unwrap_err();
    assert!(matches!(&refused, OpenError::Missing { .. }), "{refused}");
}

#[test]
fn a_segment_under_another_name_is_refused() {
    let sample = Sample::new();
    std::fs::copy(sample.segment(1), sample.segment(2)).unwrap();
    assert_damaged(open(sample.path()).unwrap_err(), &sample.segment(2), 0);
}

#[test]
fn frames_of_another_log_are_refused() {
    let sample = Sample::new();
    let other = tempfile::tempdir().unwrap();
    let mut log = open(other.path()).unwrap();
    // The same in all but the bytes of the first entry.
    log.save_vote(log_id("vote")).unwrap();
    log.append(&[(0, Bytes::from(vec![9; SAMPLE_LENS[0]]))])
        .unwrap();
    append_samples(&mut log, 1);
    drop(log);
    let foreign = segment::segment_path(other.path(), 2);
    std::fs::copy(foreign, sample.segment(2)).unwrap();
    assert_damaged(open(sample.path()).unwrap_err(), &sample.segment(2), 0);
}

/// Appends a good frame behind the log's back and opens it again.
fn reopen_with_frame(write: impl Fn(&mut Vec<u8>)) -> Result<(), OpenError> {
    let sample = Sample::new();
    let mut log = open(sample.path()).unwrap();
    log.purge_to(3, log_id("three")).unwrap();
    let end = log.active.end;
    let mut payload = Vec::new();
    write(&mut payload);
    log.active.append(&payload).unwrap();
    drop(log);
    let result = open(sample.path());
    if let Err(OpenError::Damaged { file, offset, .. }) = &result {
        assert_eq!((file, *offset), (&sample.last_segment(), end));
    }
    result.map(drop)
}

#[test]
fn good_frames_that_do_not_fit_the_log_are_refused() {
    let purge = |index| Purged {
        index,
        log_id: log_id("later"),
    };
    let add = |payload: &mut Vec<u8>, first| drop(put_entries(payload, first, &entries(0..1, 3)));
    for good in [13, 14] {
        reopen_with_frame(|payload| put_truncate(payload, good)).unwrap();
        reopen_with_frame(|payload| put_purge(payload, &purge(good))).unwrap();
    }
    reopen_with_frame(|payload| add(payload, 14)).unwrap();
    let refused = [
        reopen_with_frame(|payload| add(payload, 13)),
        reopen_with_frame(|payload| add(payload, 15)),
        reopen_with_frame(|payload| put_truncate(payload, 3)),
        reopen_with_frame(|payload| put_truncate(payload, 15)),
        reopen_with_frame(|payload| put_purge(payload, &purge(3))),
        reopen_with_frame(|payload| put_purge(payload, &purge(u64::MAX))),
        reopen_with_frame(|payload| payload.push(9)),
    ];
    for result in refused {
        assert!(
            matches!(result, Err(OpenError::Damaged { .. })),
            "{result:?}"
        );
    }
}

#[test]
fn a_head_that_does_not_restate_the_log_is_refused() {
    let good = SegmentHead {
        segment: 0,
        next_index: 14,
        vote: Some(log_id("vote")),
        purged: None,
        committed: None,
    };
    let purged = Some(Purged {
        index: 3,
        log_id: log_id("three"),
    });
    let heads = [
        (good.clone(), true),
        (
            SegmentHead {
                next_index: 13,
                ..good.clone()
            },
            false,
        ),
        (
            SegmentHead {
                next_index: 15,
                ..good.clone()
            },
            false,
        ),
        (
            SegmentHead {
                vote: None,
                ..good.clone()
            },
            false,
        ),
        (SegmentHead { purged, ..good }, false),
    ];
    for (mut head, accepted) in heads {
        let sample = Sample::new();
        let log = open(sample.path()).unwrap();
        head.segment = log.active.number + 1;
        let fs = TestFs::sound();
        let (frame, crc) = (log.active.last_frame, log.active.last_crc);
        drop(log);
        let added = ActiveSegment::create(fs.as_ref(), sample.path(), &head, frame, crc).unwrap();
        match open(sample.path()) {
            Ok(_) => assert!(accepted, "{head:?}"),
            Err(refused) => {
                assert!(!accepted, "{refused}");
                assert_damaged(refused, &added.path, 0);
            }
        }
    }
}

#[test]
fn a_newer_format_is_refused_as_such() {
    let sample = Sample::new();
    let path = sample.segment(1);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[4] = 2;
    let seed = crc32c::crc32c(&1_u64.to_le_bytes());
    let crc = crc32c::crc32c_append(seed, &bytes[..28]);
    bytes[28..32].copy_from_slice(&crc.to_le_bytes());
    std::fs::write(&path, &bytes).unwrap();
    let refused = open(sample.path()).unwrap_err();
    assert!(
        matches!(
            refused,
            OpenError::Version {
                version: 2,
                offset: 0,
                ..
            }
        ),
        "{refused}"
    );
}

#[test]
fn an_entry_damaged_while_the_log_is_open_is_not_returned() {
    let sample = Sample::new();
    let log = open(sample.path()).unwrap();
    let path = sample.segment(1);
    let mut bytes = std::fs::read(&path).unwrap();
    let first_entry = frame_starts(&bytes)[2];
    bytes[first_entry + 100] ^= 4;
    std::fs::write(&path, &bytes).unwrap();
    let refused = log.read(0..1, u64::MAX).unwrap_err();
    assert!(
        matches!(&refused, ReadError::Damaged { file, index: 0, .. } if *file == path),
        "{refused}"
    );
    assert_eq!(log.read(1..3, u64::MAX).unwrap().len(), 2);
}
