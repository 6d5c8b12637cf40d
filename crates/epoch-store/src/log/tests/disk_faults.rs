//! A disk that fails: nothing is acknowledged from then on, and nothing acknowledged is lost.

use super::model::{Model, Operation};
use super::*;

/// Rolls segments, truncates over their borders, and removes some.
fn operations() -> Vec<Operation> {
    vec![
        Operation::Vote(3),
        Operation::Append(vec![600, 600]),
        Operation::Committed(1),
        Operation::Append(vec![1_500]),
        Operation::Append(vec![900, 10]),
        Operation::Truncate { back: 2 },
        Operation::Vote(200),
        Operation::Append(vec![1_100, 1_100]),
        Operation::Purge { back: 1 },
        Operation::Append(vec![1_400]),
        Operation::PurgeBeyond { by: 2 },
        Operation::Append(vec![5]),
        Operation::Stop,
    ]
}

/// What the log may hold after a run in which the `count`-th disk operation failed: what was
/// acknowledged, or that and the whole of the call that was not. `None` if nothing failed.
fn run_until_failure(folder: &Path, count: u64) -> Option<[Model; 2]> {
    let mut model = Model::default();
    let fs = TestFs::new();
    fs.fail_after(count);
    let Ok(mut log) = Log::open(Arc::<TestFs>::clone(&fs), folder, SMALL) else {
        return Some([model.clone(), model]);
    };
    for operation in operations() {
        let reader = log.reader();
        let seen_before = (reader.first_index(), reader.last_index());
        let mut after = model.clone();
        after.apply(&operation);
        match model.run(&operation, &mut log) {
            Ok(()) => model = after,
            Err(WriteError::Io { .. }) => {
                // A purge that failed to give back space is on the disk, and may be seen.
                if !matches!(
                    operation,
                    Operation::Purge { .. } | Operation::PurgeBeyond { .. }
                ) {
                    assert_eq!((reader.first_index(), reader.last_index()), seen_before);
                }
                assert_poisoned(&mut log, model.next());
                return Some([model, after]);
            }
            Err(other) => panic!("{operation:?}: {other}"),
        }
    }
    None
}

fn assert_poisoned(log: &mut Log, next: u64) {
    let results = [
        log.append(&entries(next..next + 1, 5)).map(drop),
        log.save_vote(log_id("later")),
        log.truncate_from(next),
        log.truncate_from(next.saturating_sub(1)),
        log.purge_to(next + 9, log_id("later")),
        log.save_committed(log_id("later")),
        log.sync_committed(),
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

#[test]
fn a_failure_at_any_disk_operation_poisons_the_log_and_loses_nothing_acknowledged() {
    let mut failures = 0;
    loop {
        let folder = tempfile::tempdir().unwrap();
        let Some(allowed) = run_until_failure(folder.path(), failures + 1) else {
            break;
        };
        failures += 1;
        let log = open(folder.path()).unwrap_or_else(|refused| panic!("{failures}: {refused}"));
        // The mark is lazy, so it may be an earlier one.
        let allowed = allowed.map(|mut model| {
            model.committed = log.committed();
            model
        });
        let differences = allowed.each_ref().map(|model| model.difference(&log));
        assert!(
            differences.contains(&None),
            "failure {failures}: {differences:?}"
        );
    }
    assert!(
        failures > 40,
        "only {failures} operations were made to fail"
    );
}

#[test]
fn a_failure_while_opening_can_be_followed_by_a_good_opening() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = open(folder.path()).unwrap();
    log.append(&entries(0..6, 700)).unwrap();
    log.append(&entries(6..9, 700)).unwrap();
    drop(log);
    let torn = segments(folder.path()).pop().unwrap();
    let mut failures = 0;
    loop {
        // Each time with a torn tail to cut off.
        let mut bytes = std::fs::read(&torn).unwrap();
        bytes.extend_from_slice(&[7; 100]);
        std::fs::write(&torn, bytes).unwrap();
        let fs = TestFs::new();
        fs.fail_after(failures + 1);
        match Log::open(fs, folder.path(), SMALL) {
            Ok(_) => break,
            Err(OpenError::Io { .. }) => failures += 1,
            Err(other) => panic!("{other}"),
        }
        assert_eq!(all(&open(folder.path()).unwrap()), entries(0..9, 700));
    }
    assert!(
        failures >= 5,
        "only {failures} operations were made to fail"
    );
}
