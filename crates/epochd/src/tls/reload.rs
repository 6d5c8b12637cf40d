//! Files that are read again when they change, or on SIGHUP.
//!
//! Their times and sizes are looked at every second. Being told of changes by the system would be
//! no simpler and miss some: folders swapped by a symbolic link, as Kubernetes does, and network
//! file systems.

use std::fmt;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use epoch_core::error_chain;
use tokio::signal::unix::Signal;

use super::error::TlsError;

/// How soon a change is seen.
const INTERVAL: Duration = Duration::from_secs(1);

/// By what a file is known to have changed: when it was modified, its size, and which it is.
type Stamp = Option<(SystemTime, u64, u64)>;

/// What was made of some files, and is made anew when they change.
pub(super) struct Reloading<T> {
    what: &'static str,
    files: Vec<PathBuf>,
    load: Box<dyn Fn() -> Result<T, TlsError> + Send + Sync>,
    current: ArcSwap<T>,
    /// The files as they were just before they were read last.
    seen: Mutex<Vec<Stamp>>,
}

impl<T> fmt::Debug for Reloading<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reloading")
            .field("files", &self.files)
            .finish_non_exhaustive()
    }
}

impl<T> Reloading<T> {
    /// Loads for the first time. `files` are all that `load` reads.
    ///
    /// # Errors
    /// What `load` says.
    pub(super) fn open(
        what: &'static str,
        files: Vec<PathBuf>,
        load: impl Fn() -> Result<T, TlsError> + Send + Sync + 'static,
    ) -> Result<Self, TlsError> {
        let seen = Mutex::new(stamps(&files));
        let current = ArcSwap::from_pointee(load()?);
        Ok(Self {
            what,
            files,
            load: Box::new(load),
            current,
            seen,
        })
    }

    /// What new connections go by.
    pub(super) fn current(&self) -> Arc<T> {
        self.current.load_full()
    }
}

/// See [`Reloading`].
pub(crate) trait Reload: Send + Sync {
    /// Reads the files again if they have changed, or if `asked`. What cannot be used is reported,
    /// and what there was stays.
    fn look(&self, asked: bool);
}

impl<T: Send + Sync> Reload for Reloading<T> {
    fn look(&self, asked: bool) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        // Before they are read: what is written meanwhile is seen the next time.
        let stamps = stamps(&self.files);
        if *seen == stamps && !asked {
            return;
        }
        *seen = stamps;
        match (self.load)() {
            Ok(loaded) => {
                self.current.store(Arc::new(loaded));
                let what = self.what;
                tracing::info!(what, "new certificates: they count for new connections");
            }
            Err(error) => tracing::error!(
                what = self.what,
                why = error_chain(&error),
                "new certificates cannot be used: the old ones stay in use"
            ),
        }
    }
}

fn stamps(files: &[PathBuf]) -> Vec<Stamp> {
    files.iter().map(|file| stamp(file)).collect()
}

fn stamp(file: &Path) -> Stamp {
    let metadata = std::fs::metadata(file).ok()?;
    Some((metadata.modified().ok()?, metadata.len(), metadata.ino()))
}

/// Looks after files. Never ends.
pub(crate) async fn watch(watched: Vec<Arc<dyn Reload>>, mut hangup: Option<Signal>) {
    let watched = Arc::new(watched);
    loop {
        let asked = tokio::select! {
            () = tokio::time::sleep(INTERVAL) => false,
            () = hung_up(&mut hangup) => true,
        };
        let watched = Arc::clone(&watched);
        let looking = tokio::task::spawn_blocking(move || {
            for files in watched.iter() {
                files.look(asked);
            }
        });
        if let Err(error) = looking.await {
            tracing::warn!(%error, "certificates were not looked at");
        }
    }
}

async fn hung_up(hangup: &mut Option<Signal>) {
    if let Some(hangup) = hangup
        && hangup.recv().await.is_some()
    {
        return;
    }
    std::future::pending().await
}
