//! Each thing the simulated disk is said to do, done.

use std::collections::BTreeSet;

use super::*;

const SECTOR: usize = 512;

fn path(name: &str) -> PathBuf {
    Path::new("/data").join(name)
}

fn new() -> SimFs {
    let fs = SimFs::new(1);
    fs.create_folder(Path::new("/data")).unwrap();
    fs
}

/// A durable file.
fn with_file(name: &str, bytes: &[u8]) -> (SimFs, Arc<dyn File>) {
    let fs = new();
    let file = fs.create(&path(name)).unwrap();
    file.write_at(bytes, 0).unwrap();
    file.sync_all().unwrap();
    fs.sync_folder(Path::new("/data")).unwrap();
    (fs, file)
}

/// What `read` finds after a power failure, over many seeds.
fn outcomes<T: Ord>(make: impl Fn() -> SimFs, read: impl Fn(&SimFs) -> T) -> BTreeSet<T> {
    (0..400).map(|seed| read(&make().restart(seed))).collect()
}

#[test]
fn synced_contents_under_a_synced_name_survive() {
    let found = outcomes(|| with_file("a", b"kept").0, |fs| fs.read(&path("a")).ok());
    assert_eq!(found, BTreeSet::from([Some(b"kept".to_vec())]));
}

#[test]
fn each_sector_of_an_unsynced_write_is_kept_or_lost_on_its_own() {
    let old = vec![1; 3 * SECTOR];
    let make = || {
        let (fs, file) = with_file("a", &old);
        file.write_at(&vec![2; 2 * SECTOR], 256).unwrap();
        assert_eq!(
            fs.read(&path("a")).unwrap()[256..256 + 2 * SECTOR],
            vec![2; 2 * SECTOR]
        );
        fs
    };
    let found = outcomes(make, |fs| {
        let bytes = fs.read(&path("a")).unwrap();
        assert_eq!(bytes.len(), 3 * SECTOR);
        // Nothing smaller than a sector is torn.
        let whole = [vec![1; 256], vec![2; 2 * SECTOR], vec![1; 256]].concat();
        let sectors = bytes.chunks(SECTOR).zip(whole.chunks(SECTOR));
        sectors
            .map(|(found, new)| {
                assert!(found == new || found == &old[..SECTOR]);
                found == new
            })
            .collect::<Vec<_>>()
    });
    assert_eq!(found.len(), 8, "{found:?}");
}

#[test]
fn a_later_write_can_survive_an_earlier_one_but_not_without_its_sector_mates() {
    let make = || {
        let (fs, file) = with_file("a", &[0; 2 * SECTOR]);
        file.write_at(&[1], 0).unwrap();
        file.write_at(&[2], 1).unwrap();
        file.write_at(&[3], SECTOR as u64).unwrap();
        fs
    };
    let found = outcomes(make, |fs| {
        let bytes = fs.read(&path("a")).unwrap();
        (bytes[0], bytes[1], bytes[SECTOR])
    });
    let possible = [(0, 0), (1, 0), (1, 2)];
    let possible = possible
        .iter()
        .flat_map(|(a, b)| [(*a, *b, 0), (*a, *b, 3)]);
    assert_eq!(found, possible.collect());
}

#[test]
fn a_file_that_grew_is_short_or_has_zeros_after_a_crash() {
    let make = || {
        let (fs, file) = with_file("a", &[1; 10]);
        file.write_at(&[2; 600], SECTOR as u64).unwrap();
        fs
    };
    let found = outcomes(make, |fs| {
        let bytes = fs.read(&path("a")).unwrap();
        assert!(bytes[..10] == [1; 10] && bytes[10..].iter().all(|byte| [0, 2].contains(byte)));
        let at = |at: usize| bytes.get(at).copied();
        (bytes.len(), at(SECTOR), at(2 * SECTOR))
    });
    let possible = [
        (10, None, None),
        (2 * SECTOR, Some(2), None),
        (SECTOR + 600, Some(0), Some(0)),
        (SECTOR + 600, Some(2), Some(0)),
        (SECTOR + 600, Some(0), Some(2)),
        (SECTOR + 600, Some(2), Some(2)),
    ];
    assert_eq!(found, possible.into());
}

#[test]
fn names_survive_from_the_oldest_on_and_a_rename_is_one_step() {
    let make = || {
        let (fs, _) = with_file("a", b"a");
        let temp = fs.create(&path("b.tmp")).unwrap();
        temp.write_at(b"b", 0).unwrap();
        temp.sync_all().unwrap();
        fs.rename(&path("b.tmp"), &path("b")).unwrap();
        fs.remove(&path("a")).unwrap();
        assert_eq!(fs.list(Path::new("/data")).unwrap(), ["b"]);
        fs
    };
    let found = outcomes(make, |fs| fs.list(Path::new("/data")).unwrap());
    let possible = [vec!["a"], vec!["a", "b.tmp"], vec!["a", "b"], vec!["b"]];
    let possible = possible.map(|names| names.into_iter().map(String::from).collect());
    assert_eq!(found, possible.into());
    let synced = || {
        let fs = make();
        fs.sync_folder(Path::new("/data")).unwrap();
        fs
    };
    let found = outcomes(synced, |fs| (fs.files(), fs.read(&path("b")).unwrap()));
    assert_eq!(found, [(vec![path("b")], b"b".to_vec())].into());
}

#[test]
fn a_replaced_file_is_the_old_or_the_new_one() {
    let make = || {
        let (fs, _) = with_file("a", b"old");
        crate::write_durably(&fs, &path("a"), b"new").unwrap();
        fs
    };
    let found = outcomes(make, |fs| fs.read(&path("a")).unwrap());
    assert_eq!(found, [b"new".to_vec()].into());
    for count in 1..=5 {
        let crashed = || {
            let (fs, _) = with_file("a", b"old");
            fs.crash_at(count);
            crate::write_durably(&fs, &path("a"), b"new").unwrap_err();
            fs
        };
        for bytes in outcomes(crashed, |fs| fs.read(&path("a")).unwrap()) {
            assert!(bytes == b"old" || bytes == b"new", "{count}: {bytes:?}");
        }
    }
}

#[test]
fn the_nth_operation_fails_once_or_from_then_on() {
    for (repeat, after) in [(Repeat::Once, true), (Repeat::Forever, false)] {
        for (fault, kind) in [
            (Fault::Full, io::ErrorKind::StorageFull),
            (Fault::Broken, io::Error::from_raw_os_error(5).kind()),
        ] {
            let (fs, file) = with_file("a", b"");
            fs.fail_at(2, fault, repeat);
            fs.create(&path("b")).unwrap();
            assert_eq!(fs.create(&path("c")).unwrap_err().kind(), kind);
            assert_eq!(file.write_at(b"x", 0).is_ok(), after);
            assert_eq!(fs.list(Path::new("/data")).unwrap(), ["a", "b"]);
        }
    }
}

#[test]
fn a_failed_write_has_written_any_part() {
    let found: BTreeSet<_> = (0..200)
        .map(|seed| {
            let fs = SimFs::new(seed);
            fs.create_folder(Path::new("/data")).unwrap();
            let file = fs.create(&path("a")).unwrap();
            fs.fail_at(1, Fault::Full, Repeat::Once);
            file.write_at(&[7; 4], 0).unwrap_err();
            fs.read(&path("a")).unwrap().len()
        })
        .collect();
    assert_eq!(found, (0..=4).collect());
}

#[test]
fn what_a_failed_sync_left_is_readable_and_no_later_sync_helps() {
    let make = || {
        let (fs, file) = with_file("a", b"old");
        file.write_at(b"new", 0).unwrap();
        fs.fail_at(1, Fault::Broken, Repeat::Once);
        file.sync_data().unwrap_err();
        file.sync_data().unwrap();
        assert_eq!(fs.read(&path("a")).unwrap(), b"new");
        // Nor does the next process see it.
        let fs = fs.restart_process();
        fs.open(&path("a")).unwrap().sync_data().unwrap();
        assert_eq!(fs.read(&path("a")).unwrap(), b"new");
        fs
    };
    // The seed of the file system, not of the restart, decides here: the sync has failed already.
    let rewritten = || {
        let fs = make();
        let file = fs.open(&path("a")).unwrap();
        file.write_at(b"new", 0).unwrap();
        file.sync_data().unwrap();
        fs
    };
    let found = outcomes(rewritten, |fs| fs.read(&path("a")).unwrap());
    assert_eq!(found, [b"new".to_vec()].into());
    let found: BTreeSet<_> = (0..100)
        .map(|seed| {
            let fs = SimFs::new(seed);
            fs.create_folder(Path::new("/data")).unwrap();
            fs.put(&path("a"), b"old").unwrap();
            let file = fs.open(&path("a")).unwrap();
            file.write_at(b"new", 0).unwrap();
            fs.fail_at(1, Fault::Broken, Repeat::Once);
            file.sync_data().unwrap_err();
            file.sync_data().unwrap();
            fs.restart(seed).read(&path("a")).unwrap()
        })
        .collect();
    assert_eq!(found, [b"new".to_vec(), b"old".to_vec()].into());
}

#[test]
fn the_process_ends_at_the_nth_operation_and_all_handles_with_it() {
    let (fs, file) = with_file("a", b"a");
    fs.crash_at(2);
    file.write_at(b"b", 0).unwrap();
    assert!(!fs.is_dead());
    file.write_at(b"c", 0).unwrap_err();
    assert!(fs.is_dead());
    file.read_at(&mut [0], 0).unwrap_err();
    fs.list(Path::new("/data")).unwrap_err();
    let next = fs.restart(3);
    file.write_at(b"d", 0).unwrap_err();
    fs.create(&path("b")).unwrap_err();
    next.create(&path("b")).unwrap();
    assert!(!next.is_dead());
}

#[test]
fn a_process_that_ends_loses_nothing_it_wrote() {
    let (fs, file) = with_file("a", b"a");
    file.write_at(b"b", 0).unwrap();
    let fs = fs.restart_process();
    assert_eq!(fs.read(&path("a")).unwrap(), b"b");
    let found: BTreeSet<_> = (0..50)
        .map(|seed| {
            let (fs, file) = with_file("a", b"a");
            file.write_at(b"b", 0).unwrap();
            fs.restart_process().restart(seed).read(&path("a")).unwrap()
        })
        .collect();
    assert_eq!(found, [b"a".to_vec(), b"b".to_vec()].into());
}

#[test]
fn a_folder_has_one_holder_until_it_is_let_go_or_the_process_ends() {
    let fs = new();
    let folder = Path::new("/data");
    let hold = fs.lock_folder(folder).unwrap();
    let refused = fs.lock_folder(folder).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
    drop(hold);
    let old = fs.lock_folder(folder).unwrap();
    let fs = fs.restart_process();
    let _new = fs.lock_folder(folder).unwrap();
    drop(old);
    fs.lock_folder(folder).unwrap_err();
}

#[test]
fn a_lying_disk_skips_each_nth_sync() {
    let make = || {
        let (fs, file) = with_file("a", b"old");
        fs.skip_syncs(2);
        file.write_at(b"new", 0).unwrap();
        file.sync_data().unwrap();
        file.write_at(b"newer", 0).unwrap();
        file.sync_data().unwrap();
        fs
    };
    let found = outcomes(make, |fs| fs.read(&path("a")).unwrap());
    assert!(found.contains(b"new".as_slice()) && found.contains(b"newer".as_slice()));
    assert!(!found.contains(b"old".as_slice()));
}

#[test]
fn a_removed_file_stays_readable_and_damage_is_durable() {
    let (fs, file) = with_file("a", b"abc");
    fs.remove(&path("a")).unwrap();
    let mut byte = [0];
    assert_eq!(file.read_at(&mut byte, 2).unwrap(), 1);
    assert_eq!(byte, *b"c");
    fs.put(&path("a"), b"abc").unwrap();
    fs.overwrite(&path("a"), 1, b"X").unwrap();
    fs.truncate(&path("a"), 2).unwrap();
    let fs = fs.restart(9);
    assert_eq!(fs.read(&path("a")).unwrap(), b"aX");
    fs.lose(&path("a")).unwrap();
    assert_eq!(fs.restart(9).files(), Vec::<PathBuf>::new());
}

#[test]
fn the_same_seeds_give_the_same_disk() {
    let run = || {
        let (fs, file) = with_file("a", &[0; 20 * SECTOR]);
        file.write_at(&[1; 15 * SECTOR], 100).unwrap();
        fs.crash_at(1);
        file.write_at(&[2; 9 * SECTOR], 3_000).unwrap_err();
        fs.restart(77).read(&path("a")).unwrap()
    };
    assert_eq!(run(), run());
}
