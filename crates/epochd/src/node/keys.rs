//! The node's own signing keys: made here, readable by nobody else, erased once they sign no more.
//!
//! The state says which of them counts: it holds the trust bundle, which names every node's keys and
//! since when each signs. Time is the replicated one, which never goes back: a key that has begun to
//! sign never stops in favour of the one before it, so that one can be erased.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aws_lc_rs::rand;
use epoch_core::{BundleKey, KeyId, NodeId, SigningKey, SigningKeyError};
use epoch_machine::State;
use epoch_store::{FileSystem as _, RealFs, read_bounded, write_durably};

const FOLDER: &str = "keys";
const EXTENSION: &str = "p8";
const KEY_BYTES_MAX: usize = 1 << 10;
/// A node has the one that signs, the one that will, and perhaps one that did.
const KEYS_MAX: usize = 16;

/// Why the signing keys cannot be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeysError {
    /// A file cannot be read or written.
    #[error("{} cannot be read or written", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file is not a key. It is never replaced by itself: certificates under it are out.
    #[error("{} is not a signing key: restore the file, or move it away to have the node go on \
             without that key", .path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: SigningKeyError,
    },
    /// A file is another key than its name says.
    #[error("{} is the key {found}: name it after that, or restore the file", .path.display())]
    Misnamed {
        /// The file.
        path: PathBuf,
        /// The key in it.
        found: KeyId,
    },
    /// More files than a node ever has.
    #[error("{} has more than {KEYS_MAX} keys: move away those that `epochctl key list` does not \
             name", .0.display())]
    TooMany(PathBuf),
    /// The system has no randomness to give.
    #[error("the system gave no random bytes for a new key")]
    NoRandomness,
}

/// The signing keys of a node.
#[derive(Debug)]
pub(crate) struct Keys {
    folder: PathBuf,
    node: NodeId,
    keys: Mutex<BTreeMap<KeyId, Arc<SigningKey>>>,
}

impl Keys {
    /// Reads the keys of a node's data folder.
    ///
    /// # Errors
    /// A file cannot be read or is not a key.
    pub(crate) fn open(data_dir: &Path, node: NodeId) -> Result<Self, KeysError> {
        let folder = data_dir.join(FOLDER);
        let mut keys = BTreeMap::new();
        for path in files(&folder)? {
            let key = read(&path)?;
            let found = key.id();
            if path.file_stem() != Some(found.to_string().as_ref()) {
                return Err(KeysError::Misnamed { path, found });
            }
            keys.insert(found, Arc::new(key));
            if keys.len() > KEYS_MAX {
                return Err(KeysError::TooMany(folder));
            }
        }
        Ok(Self {
            folder,
            node,
            keys: Mutex::new(keys),
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<KeyId, Arc<SigningKey>>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes another key, and has it on the disk.
    ///
    /// # Errors
    /// It cannot be written, or there is no randomness.
    pub(crate) fn make(&self) -> Result<Arc<SigningKey>, KeysError> {
        let key = make(&self.folder)?;
        tracing::info!(node = self.node, kid = %key.id(), "signing key made");
        let key = Arc::new(key);
        self.lock().insert(key.id(), Arc::clone(&key));
        Ok(key)
    }

    /// The key that signs certificates now, if one does.
    pub(crate) fn signer(&self, state: &State) -> Option<Arc<SigningKey>> {
        let now_s = state.now_ms() / 1000;
        self.newest(state, |key| key.since_s <= now_s)
    }

    /// The key that signs the next bundle: the newest of the bundle of now.
    pub(crate) fn voter(&self, state: &State) -> Option<Arc<SigningKey>> {
        self.newest(state, |_key| true)
    }

    fn newest(&self, state: &State, fits: impl Fn(&BundleKey) -> bool) -> Option<Arc<SigningKey>> {
        let own = self.lock();
        let bundle = state.bundle()?.bundle();
        let of_node = bundle.keys_of(self.node).filter(|key| fits(key));
        let mut usable: Vec<_> = of_node
            .filter_map(|key| Some((key.since_s, own.get(&key.key.id())?)))
            .filter(|(_, key)| !state.is_retired(key.id()))
            .collect();
        usable.sort_by_key(|(since_s, _)| *since_s);
        usable.last().map(|(_, key)| Arc::clone(key))
    }

    /// A key that is in no bundle yet and was never retired.
    pub(crate) fn pending(&self, state: &State) -> Option<Arc<SigningKey>> {
        let known = |key: &KeyId| {
            let bundle = state.bundle();
            bundle.is_some_and(|bundle| bundle.bundle().find(*key).is_some())
                || state.is_retired(*key)
        };
        let keys = self.lock();
        let mut pending = keys.iter().filter(|(kid, _)| !known(kid));
        pending.next().map(|(_, key)| Arc::clone(key))
    }

    /// Erases what signs no more: retired keys, and those before the one that signs now.
    ///
    /// # Errors
    /// A file cannot be removed.
    pub(crate) fn erase_spent(&self, state: &State) -> Result<(), KeysError> {
        let signer = self.signer(state).map(|key| key.id());
        let since = |kid: KeyId| {
            let bundle = state.bundle()?.bundle();
            let key = bundle.keys_of(self.node).find(|key| key.key.id() == kid)?;
            Some(key.since_s)
        };
        let before_signer = |kid: KeyId| match (since(kid), signer.and_then(since)) {
            (Some(since_s), Some(of_signer_s)) => since_s < of_signer_s,
            _ => false,
        };
        let spent: Vec<_> = self
            .lock()
            .keys()
            .copied()
            .filter(|kid| state.is_retired(*kid) || before_signer(*kid))
            .collect();
        for kid in spent {
            let path = file(&self.folder, kid);
            let removed = RealFs
                .remove(&path)
                .and_then(|()| RealFs.sync_folder(&self.folder));
            match removed {
                Ok(()) => tracing::info!(node = self.node, %kid, "signing key erased"),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(source) => return Err(KeysError::Io { path, source }),
            }
            self.lock().remove(&kid);
        }
        Ok(())
    }
}

/// Makes the first key of a node that is still to start.
///
/// # Errors
/// It cannot be written, or there is no randomness.
pub(crate) fn make_first(data_dir: &Path) -> Result<SigningKey, KeysError> {
    make(&data_dir.join(FOLDER))
}

fn file(folder: &Path, kid: KeyId) -> PathBuf {
    folder.join(format!("{kid}.{EXTENSION}"))
}

/// The key files of a folder that need not exist.
fn files(folder: &Path) -> Result<Vec<PathBuf>, KeysError> {
    let io = |source| KeysError::Io {
        path: folder.to_path_buf(),
        source,
    };
    let listed = match std::fs::read_dir(folder) {
        Ok(listed) => listed,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(io(source)),
    };
    let mut files = Vec::new();
    for entry in listed {
        let path = entry.map_err(io)?.path();
        if path.extension() == Some(EXTENSION.as_ref()) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn read(path: &Path) -> Result<SigningKey, KeysError> {
    let bytes = read_bounded(&RealFs, path, KEY_BYTES_MAX).map_err(|source| KeysError::Io {
        path: path.to_path_buf(),
        source,
    })?;
    SigningKey::from_pkcs8(&bytes).map_err(|source| KeysError::Malformed {
        path: path.to_path_buf(),
        source,
    })
}

fn make(folder: &Path) -> Result<SigningKey, KeysError> {
    let key = draw(folder)?;
    let path = file(folder, key.id());
    let document = key.to_pkcs8().map_err(|source| KeysError::Malformed {
        path: path.clone(),
        source,
    })?;
    std::fs::create_dir_all(folder)
        .and_then(|()| write_durably(&RealFs, &path, &document))
        .map_err(|source| KeysError::Io { path, source })?;
    Ok(key)
}

/// A key of fresh randomness; `path` is for what is said if it cannot be.
pub(crate) fn draw(path: &Path) -> Result<SigningKey, KeysError> {
    let mut seed = [0; 32];
    rand::fill(&mut seed).map_err(|_unspecified| KeysError::NoRandomness)?;
    SigningKey::from_seed(&seed).map_err(|source| KeysError::Malformed {
        path: path.to_path_buf(),
        source,
    })
}
