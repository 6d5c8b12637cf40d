//! Folders and names, and the disk they are on.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::faults::{Faults, Verdict};
use super::file::Contents;
use super::random::SplitMix;

/// A file, for its names and the handles on it. Its lock is taken after the disk's, never before.
#[derive(Clone, Debug)]
pub(super) struct Shared(Arc<Mutex<Contents>>);

impl Shared {
    fn new(contents: Contents) -> Self {
        Self(Arc::new(Mutex::new(contents)))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Contents> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Names = BTreeMap<String, Shared>;

#[derive(Clone, Debug)]
enum NameChange {
    Create(String, Shared),
    Rename(String, String),
    Remove(String),
}

impl NameChange {
    fn apply(&self, names: &mut Names) -> io::Result<()> {
        match self {
            Self::Create(name, file) => {
                names.insert(name.clone(), file.clone());
            }
            Self::Rename(from, to) => {
                let file = names.remove(from).ok_or(io::ErrorKind::NotFound)?;
                names.insert(to.clone(), file);
            }
            Self::Remove(name) => drop(names.remove(name).ok_or(io::ErrorKind::NotFound)?),
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
pub(super) struct Folder {
    live: Names,
    durable: Names,
    /// Leads from `durable` to `live`.
    pending: Vec<NameChange>,
    pub(super) is_held: bool,
}

impl Folder {
    pub(super) fn names(&self) -> Vec<String> {
        self.live.keys().cloned().collect()
    }

    fn change(&mut self, change: NameChange) -> io::Result<()> {
        change.apply(&mut self.live)?;
        self.pending.push(change);
        Ok(())
    }

    pub(super) fn sync(&mut self) {
        self.durable = self.live.clone();
        self.pending.clear();
    }

    fn after_power_failure(&self, random: &mut SplitMix) -> Self {
        let mut names = self.durable.clone();
        for change in self.pending.iter().take(random.up_to(self.pending.len())) {
            // The oldest changes in their order applied to `live` as well.
            drop(change.apply(&mut names));
        }
        for file in names.values_mut() {
            let contents = file.lock().after_power_failure(random);
            *file = Shared::new(contents);
        }
        Self {
            live: names.clone(),
            durable: names,
            ..Self::default()
        }
    }
}

#[derive(Debug)]
pub(super) struct Disk {
    folders: BTreeMap<PathBuf, Folder>,
    pub(super) faults: Faults,
    pub(super) random: SplitMix,
}

impl Disk {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            folders: BTreeMap::new(),
            faults: Faults::default(),
            random: SplitMix::new(seed),
        }
    }

    /// Ends the process that has this disk and hands the disk to the next one.
    pub(super) fn after_process_end(&mut self) -> Self {
        self.faults.is_dead = true;
        let mut folders = std::mem::take(&mut self.folders);
        for folder in folders.values_mut() {
            folder.is_held = false;
        }
        Self {
            folders,
            faults: self.faults.after_restart(),
            random: self.random.clone(),
        }
    }

    /// Ends the process that has this disk; returns what a power failure leaves.
    pub(super) fn after_power_failure(&mut self, seed: u64) -> Self {
        self.faults.is_dead = true;
        let mut random = SplitMix::new(seed);
        let folders = self.folders.iter();
        let folders = folders
            .map(|(path, folder)| (path.clone(), folder.after_power_failure(&mut random)))
            .collect();
        Self {
            folders,
            faults: self.faults.after_restart(),
            random,
        }
    }

    /// An operation that happens whole or not at all.
    pub(super) fn change<T>(
        &mut self,
        change: impl FnOnce(&mut Self) -> io::Result<T>,
    ) -> io::Result<T> {
        match self.faults.next()? {
            Verdict::Go => change(self),
            Verdict::Fail(error) => Err(error),
            Verdict::Die(error) => {
                if self.random.coin() {
                    drop(change(self));
                }
                Err(error)
            }
        }
    }

    pub(super) fn folder(&self, path: &Path) -> io::Result<&Folder> {
        self.folders
            .get(path)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    pub(super) fn folder_mut(&mut self, path: &Path) -> io::Result<&mut Folder> {
        self.folders
            .get_mut(path)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    pub(super) fn create_folder(&mut self, path: &Path) {
        for folder in path.ancestors() {
            self.folders.entry(folder.to_path_buf()).or_default();
        }
    }

    pub(super) fn paths(&self) -> Vec<PathBuf> {
        let in_folder = |(path, folder): (&PathBuf, &Folder)| -> Vec<PathBuf> {
            folder.live.keys().map(|name| path.join(name)).collect()
        };
        self.folders.iter().flat_map(in_folder).collect()
    }

    pub(super) fn find(&self, path: &Path) -> io::Result<Shared> {
        let (folder, name) = split(path)?;
        let file = self.folder(folder)?.live.get(&name).cloned();
        file.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    pub(super) fn create(&mut self, path: &Path) -> io::Result<Shared> {
        let (folder, name) = split(path)?;
        let folder = self.folder_mut(folder)?;
        if folder.live.contains_key(&name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let file = Shared::new(Contents::default());
        folder.change(NameChange::Create(name, file.clone()))?;
        Ok(file)
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let ((folder, from), (to_folder, to)) = (split(from)?, split(to)?);
        if folder != to_folder {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.folder_mut(folder)?
            .change(NameChange::Rename(from, to))
    }

    pub(super) fn remove(&mut self, path: &Path) -> io::Result<()> {
        let (folder, name) = split(path)?;
        self.folder_mut(folder)?.change(NameChange::Remove(name))
    }

    /// Puts a file under a name, durably and behind the process's back.
    pub(super) fn put(&mut self, path: &Path, contents: Contents) -> io::Result<()> {
        let (folder, name) = split(path)?;
        let folder = self.folder_mut(folder)?;
        folder.live.insert(name, Shared::new(contents));
        folder.sync();
        Ok(())
    }

    /// Takes a file away, durably and behind the process's back.
    pub(super) fn lose(&mut self, path: &Path) -> io::Result<()> {
        let (folder, name) = split(path)?;
        let folder = self.folder_mut(folder)?;
        let lost = folder.live.remove(&name);
        folder.sync();
        lost.map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// A file's folder and its name there.
pub(super) fn split(path: &Path) -> io::Result<(&Path, String)> {
    let name = path.file_name().and_then(|name| name.to_str());
    match (path.parent(), name) {
        (Some(folder), Some(name)) => Ok((folder, name.to_string())),
        (_, None) | (None, _) => Err(io::ErrorKind::InvalidInput.into()),
    }
}
