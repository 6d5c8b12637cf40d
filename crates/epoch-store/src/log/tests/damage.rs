//! Damage to whole frames and files: refused by name.

use super::super::format::SECTOR;
use super::sample::{
    SAMPLE_LENS, Sample, append_samples, assert_damaged, frame_of, frame_starts, mark,
};
use super::*;

#[test]
fn a_changed_bit_anywhere_is_refused_by_file_and_frame() {
    let sample = Sample::filled();
    for (number, path) in (1_u64..).zip(segments(&sample.fs)) {
        let whole = sample.read(&path);
        let starts = frame_starts(&whole);
        for at in 0..*starts.last().unwrap() {
            // Each bit of an older frame and of the last one; one in each byte of the others.
            let start = frame_of(&starts, at);
            let is_last_frame = start + 1_024 > *starts.last().unwrap() as u64;
            let all_bits = (number == 1 && start == 512) || is_last_frame;
            for bit in (0..8).filter(|bit| all_bits || *bit == at % 8) {
                let mut bytes = whole.clone();
                bytes[at] ^= 1 << bit;
                let refused = sample.open_with(&path, &bytes).unwrap_err();
                assert_damaged(refused, &path, start);
            }
        }
        sample.fs.put(&path, &whole).unwrap();
    }
    open(&sample.fs).unwrap();
}

#[test]
fn a_lost_sector_before_a_good_frame_is_refused() {
    let sample = Sample::new();
    let path = sample.last_segment();
    let whole = sample.read(&path);
    let starts = frame_starts(&whole);
    for sector in 0..starts[starts.len() - 2] / SECTOR {
        sample.forget_mark();
        let mut bytes = whole.clone();
        bytes[sector * SECTOR..(sector + 1) * SECTOR].fill(0);
        let refused = sample.open_with(&path, &bytes).unwrap_err();
        assert_damaged(refused, &path, frame_of(&starts, sector * SECTOR));
    }
}

#[test]
fn a_torn_or_missing_frame_in_an_earlier_segment_is_refused() {
    for sample in [Sample::new(), Sample::filled()] {
        for number in [1, 2] {
            let path = sample.segment(number);
            let whole = sample.read(&path);
            let starts = frame_starts(&whole);
            let last = starts[starts.len() - 2];
            let mut torn = whole.clone();
            torn.truncate(*starts.last().unwrap() - 1);
            assert_damaged(
                sample.open_with(&path, &torn).unwrap_err(),
                &path,
                last as u64,
            );
            // The trace of a write after the last frame: there was none, a segment follows.
            let end = *starts.last().unwrap();
            let trace = [&whole[..end], &[0; 2 * SECTOR - 1], &[0x5A]].concat();
            let refused = sample.open_with(&path, &trace).unwrap_err();
            assert_damaged(refused, &path, end as u64);
            // Cut between two frames, or zero from there, the segment after it tells.
            for frame in &starts[1..starts.len() - 1] {
                let refused = sample.open_with(&path, &whole[..*frame]).unwrap_err();
                assert_damaged(refused, &path, *frame as u64);
                let mut zeroed = whole.clone();
                zeroed[*frame..].fill(0);
                let refused = sample.open_with(&path, &zeroed).unwrap_err();
                assert_damaged(refused, &path, *frame as u64);
            }
            sample.fs.put(&path, &whole).unwrap();
        }
        open(&sample.fs).unwrap();
    }
}

#[test]
fn a_segment_that_is_zero_or_empty_is_refused_by_name() {
    let sample = Sample::filled();
    for path in segments(&sample.fs) {
        let whole = sample.read(&path);
        for bytes in [vec![0; whole.len()], vec![0; 100], Vec::new()] {
            assert_damaged(sample.open_with(&path, &bytes).unwrap_err(), &path, 0);
        }
        sample.fs.put(&path, &whole).unwrap();
    }
    open(&sample.fs).unwrap();
}

#[test]
fn a_missing_file_is_refused_by_name() {
    let sample = Sample::new();
    let refuse_without = |path: &Path| {
        let bytes = sample.read(path);
        sample.fs.lose(path).unwrap();
        let refused = open(&sample.fs).unwrap_err();
        sample.fs.put(path, &bytes).unwrap();
        refused
    };
    let middle = sample.segment(2);
    let refused = refuse_without(&middle);
    assert!(
        matches!(&refused, OpenError::Missing { file } if *file == middle),
        "{refused}"
    );
    let refused = refuse_without(&mark());
    assert!(
        matches!(&refused, OpenError::Missing { file } if *file == mark()),
        "{refused}"
    );
    let refused = refuse_without(&sample.segment(1));
    assert!(
        matches!(&refused, OpenError::FirstEntry { file, expected: 0, .. } if *file == middle),
        "{refused}"
    );
    let refused = refuse_without(&sample.last_segment());
    assert!(matches!(&refused, OpenError::Short { .. }), "{refused}");
    open(&sample.fs).unwrap();
    for path in segments(&sample.fs) {
        sample.fs.lose(&path).unwrap();
    }
    let refused = open(&sample.fs).unwrap_err();
    assert!(matches!(&refused, OpenError::Missing { .. }), "{refused}");
}

#[test]
fn a_segment_under_another_name_is_refused() {
    let sample = Sample::new();
    let first = sample.read(&sample.segment(1));
    let refused = sample.open_with(&sample.segment(2), &first).unwrap_err();
    assert_damaged(refused, &sample.segment(2), 0);
}

#[test]
fn frames_of_another_log_are_refused() {
    let sample = Sample::new();
    let other = SimFs::new(1);
    let mut log = open(&other).unwrap();
    // The same in all but the bytes of the first entry.
    log.save_vote(log_id("vote")).unwrap();
    log.append(&[(0, Bytes::from(vec![9; SAMPLE_LENS[0]]))])
        .unwrap();
    append_samples(&mut log, 1);
    let foreign = other.read(&sample.segment(2)).unwrap();
    let refused = sample.open_with(&sample.segment(2), &foreign).unwrap_err();
    assert_damaged(refused, &sample.segment(2), 0);
}

/// Appends a good frame behind the log's back and opens it again.
fn reopen_with_frame(write: impl Fn(&mut Vec<u8>)) -> Result<(), OpenError> {
    let sample = Sample::new();
    let mut log = open(&sample.fs).unwrap();
    log.purge_to(3, log_id("three")).unwrap();
    let end = log.active.end;
    let mut payload = Vec::new();
    write(&mut payload);
    log.active.append(&payload).unwrap();
    drop(log);
    let result = open(&sample.fs);
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
        let log = open(&sample.fs).unwrap();
        head.segment = log.active.number + 1;
        let (frame, crc) = (log.active.last_frame, log.active.last_crc);
        drop(log);
        let added = ActiveSegment::create(&sample.fs, folder(), &head, frame, crc).unwrap();
        match open(&sample.fs) {
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
    let mut bytes = sample.read(&path);
    bytes[4] = 2;
    let seed = crc32c::crc32c(&1_u64.to_le_bytes());
    let crc = crc32c::crc32c_append(seed, &bytes[..28]);
    bytes[28..32].copy_from_slice(&crc.to_le_bytes());
    let refused = sample.open_with(&path, &bytes).unwrap_err();
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
    let log = open(&sample.fs).unwrap();
    let path = sample.segment(1);
    let mut bytes = sample.read(&path);
    let first_entry = frame_starts(&bytes)[2];
    bytes[first_entry + 100] ^= 4;
    sample.fs.overwrite(&path, 0, &bytes).unwrap();
    let refused = log.read(0..1, u64::MAX).unwrap_err();
    assert!(
        matches!(&refused, ReadError::Damaged { file, index: 0, .. } if *file == path),
        "{refused}"
    );
    assert_eq!(log.read(1..3, u64::MAX).unwrap().len(), 2);
}
