//! What the tests of several modules share.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use epoch_core::{ClusterId, Holder, Incarnation, OpenId, RequestId, Scope, SessionId};
use epoch_machine::{Batch, Command, Entry, Leadership, Outcome, State, Ttl, apply};
use uuid::Uuid;

use crate::SplitMix;

/// A place in something of `len` parts.
pub(crate) fn index_below(random: &mut SplitMix, len: usize) -> usize {
    usize::try_from(random.below(len as u64)).unwrap()
}

/// A number from the environment.
pub(crate) fn number_from_env(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap(),
        Err(_) => default,
    }
}

/// A folder of the operating system's in memory where there is one, so that syncs cost nothing.
pub(crate) fn memory_folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

/// All files of a folder, with the folder `blobs`.
pub(crate) fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy_folder(&path, &target);
        } else {
            fs::copy(&path, &target).unwrap();
        }
    }
}

/// Damages one file of a folder, or removes it.
pub(crate) fn damage_folder(folder: &Path, random: &mut SplitMix) {
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    if files.is_empty() {
        return;
    }
    let file = files[index_below(random, files.len())].clone();
    let mut bytes = fs::read(&file).unwrap();
    if bytes.is_empty() {
        return;
    }
    match random.below(10) {
        0 => return fs::remove_file(&file).unwrap(),
        1 => bytes.truncate(index_below(random, bytes.len())),
        2 => {
            // A sector of zeros.
            let from = index_below(random, bytes.len()) / 512 * 512;
            let to = bytes.len().min(from + 512);
            bytes[from..to].fill(0);
        }
        3 => {
            // A sector that was never written.
            let from = index_below(random, bytes.len()) / 512 * 512;
            let other = index_below(random, bytes.len()) / 512 * 512;
            let len = 512.min(bytes.len() - from).min(bytes.len() - other);
            let copied = bytes[other..other + len].to_vec();
            bytes[from..from + len].copy_from_slice(&copied);
        }
        flips => {
            // Most of the file is padding: half of the flips go where the rows begin.
            for _ in 0..flips {
                let within = if random.below(2) == 0 {
                    bytes.len()
                } else {
                    bytes.len().min(64 << 10)
                };
                let at = index_below(random, within);
                bytes[at] ^= 1 << random.below(8);
            }
        }
    }
    fs::write(&file, bytes).unwrap();
}

pub(crate) fn fresh_state() -> State {
    State::new(
        ClusterId(Uuid::from_u128(1)),
        Incarnation(Uuid::from_u128(2)),
        0,
    )
}

/// Random batches for one state: sessions come and go, scopes are taken under several
/// leaderships, released and revoked, time passes, so that there are rows of every kind.
#[derive(Debug, Clone)]
pub(crate) struct Workload {
    random: SplitMix,
    /// Scopes there are; fewer are fought over more.
    scopes: u64,
    commands_max: u64,
    sessions: Vec<SessionId>,
}

impl Workload {
    pub(crate) fn new(seed: u64, scopes: u64, commands_max: u64) -> Self {
        Self {
            random: SplitMix::new(seed),
            scopes,
            commands_max,
            sessions: Vec::new(),
        }
    }

    /// The batch for log index `index`.
    pub(crate) fn batch(&mut self, state: &State, index: u64) -> Batch {
        let random = &mut self.random;
        let leadership = Leadership {
            term: 1 + index / 50,
            node: 1 + random.below(3),
        };
        let mut commands = vec![Command::RegisterKey {
            node: leadership.node,
            public_key: Arc::new([u8::try_from(leadership.node).unwrap(); 32]),
        }];
        for _ in 0..random.below(self.commands_max) {
            let scope = Scope::parse(&format!("scope/{}", random.below(self.scopes))).unwrap();
            commands.push(match random.below(12) {
                0 => Command::Open {
                    open_id: OpenId(Uuid::from_u128(u128::from(random.bits()))),
                    holder: Holder::parse(&format!("agent-{}", random.below(9))).unwrap(),
                    ttl: Ttl::from_ms(1_000 + random.below(9_000)).unwrap(),
                },
                1 => Command::Revoke { scope, epoch: None },
                _ if self.sessions.is_empty() => continue,
                2 => match state.list("", Some(&scope), 1).scopes.first() {
                    Some(held) => Command::Revoke {
                        scope: held.scope.clone(),
                        epoch: Some(held.epoch),
                    },
                    None => continue,
                },
                3 if random.below(4) == 0 => {
                    let at = index_below(random, self.sessions.len());
                    Command::Close {
                        session: self.sessions.swap_remove(at),
                    }
                }
                _ => Command::Acquire {
                    scope,
                    session: self.sessions[index_below(random, self.sessions.len())],
                    request_id: RequestId::new(random.below(10_000) + 1).unwrap(),
                },
            });
        }
        Batch {
            leadership,
            wall_ms: 1_700_000_000_000 + index / 100,
            commands,
        }
    }

    /// Makes the batch for `index` and applies it.
    pub(crate) fn advance(&mut self, state: &mut State, index: u64) -> Batch {
        let batch = self.batch(state, index);
        self.learn(apply_batch(state, index, &batch));
        batch
    }

    /// Goes on with the sessions that were opened.
    pub(crate) fn learn(&mut self, outcomes: Vec<Outcome>) {
        for outcome in outcomes {
            if let Outcome::Opened { session, .. } = outcome {
                self.sessions.push(session);
            }
        }
    }
}

pub(crate) fn apply_batch(state: &mut State, index: u64, batch: &Batch) -> Vec<Outcome> {
    let leadership = batch.leadership;
    apply(state, Entry { leadership, index }, batch).unwrap()
}

/// A state with sessions, held scopes under several leaderships, free rows and spent ids.
pub(crate) fn random_state(seed: u64, batches: u64) -> State {
    let mut workload = Workload::new(seed, 2_000, 20);
    let mut state = fresh_state();
    for index in 1..=batches {
        workload.advance(&mut state, index);
    }
    state
}
