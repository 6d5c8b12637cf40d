//! The corpus: valid inputs of each kind, and what else has been worth keeping.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "tests may panic"
)]

mod seeds;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use epoch_fuzz::{TARGETS, mutate, run};

/// Beginning of the names of files that their own target takes as valid.
const VALID: &str = "valid-";
/// In all. It is copied with every clone.
const CORPUS_BYTES_MAX: usize = 48 << 10;

fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/corpus"))
}

/// All files, by target and name.
fn corpus() -> BTreeMap<(String, String), Vec<u8>> {
    let mut files = BTreeMap::new();
    for target in fs::read_dir(folder()).unwrap() {
        let target = target.unwrap();
        for file in fs::read_dir(target.path()).unwrap() {
            let file = file.unwrap();
            let name = |name: std::ffi::OsString| name.into_string().unwrap();
            let bytes = fs::read(file.path()).unwrap();
            files.insert((name(target.file_name()), name(file.file_name())), bytes);
        }
    }
    files
}

#[test]
fn the_corpus_has_what_this_code_takes_as_valid() {
    let rewrite = std::env::var("EPOCHD_GOLDEN").as_deref() == Ok("rewrite");
    let seeds = seeds::all();
    for (target, name, bytes) in &seeds {
        let folder = folder().join(target);
        if rewrite {
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(name), bytes).unwrap();
        }
        let stored = fs::read(folder.join(name)).unwrap_or_default();
        assert!(
            stored == *bytes,
            "{target}/{name} is another; EPOCHD_GOLDEN=rewrite makes it anew"
        );
    }
    for (name, _) in TARGETS {
        let valid = |(target, file, _): &&(&str, String, Vec<u8>)| {
            *target == name && file.starts_with(VALID)
        };
        assert!(seeds.iter().any(|seed| valid(&seed)), "{name} has none");
    }
}

#[test]
fn every_file_runs_through_every_target_and_its_own_takes_what_is_valid() {
    let corpus = corpus();
    assert!(corpus.values().map(Vec::len).sum::<usize>() <= CORPUS_BYTES_MAX);
    let mut wrong = Vec::new();
    for ((own, file), bytes) in &corpus {
        for (target, run) in TARGETS {
            let taken = run(bytes);
            if target == own && taken != file.starts_with(VALID) {
                wrong.push(format!("{own}/{file}"));
            }
        }
        // Cut short, it has to be refused without panic as well.
        for end in [
            bytes.len() / 3,
            bytes.len() / 2,
            bytes.len().saturating_sub(1),
        ] {
            run(own, &bytes[..end]);
        }
    }
    assert!(wrong.is_empty(), "taken for what they are not: {wrong:?}");
}

#[test]
fn changes_that_know_json_reach_every_member_and_leave_the_rest() {
    let input = b"!9\n{\"a\":\"text\",\"b\":{\"c\":7}}\n\ntail";
    let mut seen = BTreeSet::new();
    for seed in 0..4_000 {
        let Some(changed) = mutate(input, 200, seed) else {
            continue;
        };
        let changed = String::from_utf8(changed).unwrap();
        let document = changed.strip_prefix("!9\n").unwrap();
        let document = document.strip_suffix("\n\ntail").unwrap();
        let document: serde_json::Value = serde_json::from_str(document).unwrap();
        if document["a"].as_str().is_some_and(|text| text.len() < 4) {
            seen.insert("short text");
        }
        if document.get("a").is_none() && document["b"]["c"] == 7 {
            seen.insert("a member less");
        }
        if document["b"]["c"] == u64::MAX {
            seen.insert("a large number");
        }
        if document["b"].is_null() {
            seen.insert("another kind");
        }
    }
    assert_eq!(seen.len(), 4, "{seen:?}");
    assert_eq!(mutate(b"no document { here", 200, 1), None);
}
