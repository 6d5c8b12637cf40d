//! A damaged folder is a state that was saved, or none.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::SplitMix;
use crate::testing::{copy_folder, damage_folder, memory_folder, number_from_env};

#[test]
fn a_file_that_sled_left_unfinished_does_not_block_the_start() {
    let (running, checkpoint) = Running::begun(6);
    drop(checkpoint);
    let left_over = running.folder().join("snap.FFFFFFFFFFFFFFF0.generating");
    fs::write(&left_over, "half").unwrap();
    running.assert_loads();
    assert!(!left_over.exists());
}

#[test]
fn a_checkpoint_with_blobs_is_removed() {
    let (running, checkpoint) = Running::begun(7);
    drop(checkpoint);
    fs::write(running.folder().join("blobs/1"), "value").unwrap();
    let why = unusable(&running.folder());
    assert!(matches!(why, Unusable::Table(TableError::Blobs)), "{why:?}");
}

/// A panic hook as a process has it that goes on after the checkpoint's panics; counts those.
fn contain_panics() -> Arc<AtomicU64> {
    let contained = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&contained);
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if contains_panic() {
            counter.fetch_add(1, Ordering::SeqCst);
        } else {
            report(info);
        }
    }));
    contained
}

/// `EPOCH_DAMAGES` damaged folders, from `EPOCH_SEED`.
#[test]
fn a_damaged_folder_loads_a_state_that_was_saved_or_none() {
    let panics = contain_panics();
    let seed = number_from_env("EPOCH_SEED", 1);
    let damages = number_from_env("EPOCH_DAMAGES", 300);
    println!("EPOCH_SEED={seed} EPOCH_DAMAGES={damages}");
    let mut random = SplitMix::new(seed);
    let mut running = Running::in_folder(8, 2_000, memory_folder());
    running.advance(100);
    running.snapshot();
    let saved = running.folder();
    let mut states = Vec::new();
    let mut checkpoint = open(&saved);
    for round in 0..24 {
        // Some saves after a start: then sled has written its snapshot of pages. And two chains.
        if round % 8 == 4 {
            drop(checkpoint);
            checkpoint = running.assert_loads();
        }
        if round == 16 {
            running.snapshot();
        }
        running.save(&mut checkpoint, 20);
        states.push((running.state.clone(), meta(running.index)));
    }
    drop(checkpoint);

    let (mut loaded, mut none, mut stopped) = (0, 0, 0);
    for number in 0..damages {
        let folder = running.root.path().join(format!("{number}"));
        copy_folder(&saved, &folder);
        damage_folder(&folder, &mut random);
        let (mut checkpoint, _) = Checkpoint::open(&folder, &fresh_state()).unwrap();
        match running.load_from(&mut checkpoint) {
            Ok(Some(found)) => {
                assert!(
                    states.contains(&found),
                    "damage {number}: a state never saved"
                );
                loaded += 1;
            }
            Ok(None) | Err(_) => none += 1,
        }
        if checkpoint.off {
            stopped += 1;
        } else {
            assert_goes_on(&running, checkpoint, &folder, number);
        }
        fs::remove_dir_all(&folder).unwrap();
    }
    println!(
        "{loaded} loaded, {none} did not, {} panics, {stopped} without checkpoints from then on",
        panics.load(Ordering::SeqCst)
    );
    assert!(loaded > 0 && none > 0);
}

/// The node goes on, and so does its checkpoint, from the state before or from another.
fn assert_goes_on(running: &Running, mut checkpoint: Checkpoint, folder: &Path, number: u64) {
    let mut after = Running::in_folder(number, 200, memory_folder());
    after.advance(20);
    after.snapshot();
    if number.is_multiple_of(2)
        && let Some(chain) = checkpoint.chain()
    {
        let saved = checkpoint.save(
            &running.state,
            &meta(running.index),
            Some(chain.index),
            &Changes::default(),
            chain.base,
            &mut || (),
        );
        saved.unwrap();
    }
    after.save(&mut checkpoint, 20);
    drop(checkpoint);
    after.assert_loads_from(folder);
}
