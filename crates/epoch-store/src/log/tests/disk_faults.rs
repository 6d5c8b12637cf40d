//! A disk that fails: nothing is acknowledged from then on, and nothing acknowledged is lost.

use super::model::{Model, Operation};
use super::*;
use crate::{Fault, Repeat};

/// Rolls segments, truncates over their borders, and removes some.
fn operations() -> Vec<Operation> {
    vec![
        Operation::Vote(3),
        Operation::Append(vec![600, 600]),
        Operation::Fill,
        Operation::Committed(1),
        Operation::Append(vec![1_500]),
        Operation::Append(vec![900, 10]),
        Operation::SyncMark,
        Operation::Truncate { back: 2 },
        Operation::Vote(200),
        Operation::Fill,
        Operation::Append(vec![1_100, 1_100]),
        Operation::Purge { back: 1 },
        Operation::Append(vec![1_400]),
        Operation::PurgeBeyond { by: 2 },
        Operation::Append(vec![5]),
    ]
}

/// Runs until an operation fails. Returns what the log may hold then.
fn run(fs: &SimFs) -> Vec<Model> {
    let mut model = Model::default();
    let Ok(mut log) = open(fs) else {
        return vec![model];
    };
    for operation in operations() {
        let reader = log.reader();
        let seen_before = (reader.first_index(), reader.last_index());
        match model.run(&operation, &mut log) {
            Ok(()) => model.apply(&operation),
            // Poisons nothing: the log goes on with a mark that lags more.
            Err(WriteError::Io { .. }) if matches!(operation, Operation::SyncMark) => {
                return model.after_crash_during(&operation);
            }
            Err(WriteError::Io { .. }) => {
                // A purge that failed to give back space is on the disk, and may be seen.
                if !matches!(
                    operation,
                    Operation::Purge { .. } | Operation::PurgeBeyond { .. }
                ) {
                    assert_eq!((reader.first_index(), reader.last_index()), seen_before);
                }
                assert_poisoned(&mut log, model.next());
                return model.after_crash_during(&operation);
            }
            Err(other) => panic!("{operation:?}: {other}"),
        }
    }
    model.after_crash_during(&Operation::Reopen)
}

fn assert_poisoned(log: &mut Log, next: u64) {
    let results = [
        log.append(&entries(next..next + 1, 5)).map(drop),
        log.save_vote(log_id("later")),
        log.truncate_from(next),
        log.truncate_from(next.saturating_sub(1)),
        log.purge_to(next + 9, log_id("later")),
        log.save_committed(log_id("later")),
    ];
    for result in results {
        // An index may be out of order by now; what matters is that nothing is accepted.
        assert!(result.is_err());
    }
    assert!(matches!(
        log.save_vote(log_id("later")),
        Err(WriteError::Poisoned)
    ));
    assert!(matches!(log.read(0..next, 1), Err(ReadError::Poisoned)));
}

/// Opens the log and checks that it holds one of these; returns which.
fn check(fs: &SimFs, allowed: &[Model], case: &str) -> Model {
    let log = open(fs).unwrap_or_else(|refused| panic!("{case}: {refused}"));
    let found = Model::find(allowed, &log).unwrap_or_else(|wrong| panic!("{case}: {wrong}"));
    found.clone()
}

#[test]
fn a_failure_at_any_disk_operation_poisons_the_log_and_loses_nothing_acknowledged() {
    for fault in [Fault::Full, Fault::Broken] {
        for repeat in [Repeat::Once, Repeat::Forever] {
            let mut count = 1;
            loop {
                let case = format!("{fault:?} {repeat:?} at operation {count}");
                let fs = SimFs::new(count);
                fs.fail_at(count, fault, repeat);
                let allowed = run(&fs);
                if fs.operations() < count {
                    break;
                }
                check(&fs.restart(count), &allowed, &case);
                // What the next process has seen is there after a power failure too.
                let fs = fs.restart_process();
                let seen = check(&fs, &allowed, &case);
                check(&fs.restart(count), &[seen], &case);
                count += 1;
            }
            assert!(count > 50, "only {count} operations were made to fail");
        }
    }
}

#[test]
fn a_failure_while_opening_can_be_followed_by_a_good_opening() {
    let fs = SimFs::new(1);
    let mut log = open(&fs).unwrap();
    log.append(&entries(0..6, 700)).unwrap();
    log.append(&entries(6..9, 700)).unwrap();
    drop(log);
    // A torn tail to take back, and a file to remove.
    let torn = segments(&fs).pop().unwrap();
    let mut bytes = fs.read(&torn).unwrap();
    bytes.extend_from_slice(&[7; 100]);
    let mut count = 1;
    loop {
        fs.put(&torn, &bytes).unwrap();
        fs.put(&torn.with_extension("tmp"), b"").unwrap();
        fs.fail_at(count, Fault::Broken, Repeat::Once);
        match open(&fs) {
            Ok(_) => break,
            Err(OpenError::Io { .. }) => count += 1,
            Err(other) => panic!("{other}"),
        }
        assert_eq!(all(&open(&fs).unwrap()), entries(0..9, 700));
    }
    assert!(count > 6, "only {count} operations were made to fail");
}

#[test]
fn a_torn_write_taken_back_without_being_synced_does_not_come_back() {
    for seed in 0..100 {
        let fs = SimFs::new(seed);
        let mut log = open(&fs).unwrap();
        log.append(&entries(0..1, 5)).unwrap();
        // The write is the first operation, its sync the second.
        fs.crash_at(2);
        log.append(&entries(1..2, 2_000)).unwrap_err();
        let fs = fs.restart(seed);
        if inspect(&fs, folder()).unwrap().0.torn_tail.is_none() {
            continue;
        }
        // Rewriting the last frame, taking back the torn one in two writes, and syncing both.
        fs.fail_at(4, Fault::Broken, Repeat::Once);
        open(&fs).unwrap_err();
        // The next process reads zeros there.
        let fs = fs.restart_process();
        assert_eq!(inspect(&fs, folder()).unwrap().0.torn_tail, None);
        let mut log = open(&fs).unwrap();
        log.append(&entries(1..2, 5)).unwrap();
        let log = open(&fs.restart(seed)).unwrap();
        assert_eq!(all(&log), entries(0..2, 5));
    }
}
