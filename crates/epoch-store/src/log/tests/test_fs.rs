//! Real files without the cost of syncing them, and with operations that fail on demand.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::RealFs;
use crate::fs::{File, FileSystem, FolderHold};

type Hook = Box<dyn FnMut() + Send>;

/// Counts operations that change something, and fails from a given one on.
#[derive(Default)]
struct Switch {
    done: AtomicU64,
    /// The first operation to fail, counted from 1; 0 for none.
    fail_from: AtomicU64,
    on_sync: Mutex<Option<Hook>>,
}

impl Switch {
    fn pass(&self) -> io::Result<()> {
        let number = self.done.fetch_add(1, Ordering::SeqCst) + 1;
        let fail_from = self.fail_from.load(Ordering::SeqCst);
        if fail_from != 0 && number >= fail_from {
            Err(io::Error::other("planned failure"))
        } else {
            Ok(())
        }
    }
}

#[derive(Clone)]
pub(super) struct TestFs(Arc<Switch>);

struct TestFile {
    file: Arc<dyn File>,
    switch: Arc<Switch>,
}

impl TestFs {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(Arc::default()))
    }

    pub(super) fn sound() -> Arc<dyn FileSystem> {
        Self::new()
    }

    /// Fails the `count`-th operation from now and all that follow.
    pub(super) fn fail_after(&self, count: u64) {
        let done = self.0.done.load(Ordering::SeqCst);
        self.0.fail_from.store(done + count, Ordering::SeqCst);
    }

    /// Runs `hook` inside each sync of a file's data.
    pub(super) fn on_sync(&self, hook: impl FnMut() + Send + 'static) {
        *self.0.on_sync.lock().unwrap() = Some(Box::new(hook));
    }

    fn wrap(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(TestFile {
            file,
            switch: Arc::clone(&self.0),
        })
    }
}

impl fmt::Debug for TestFs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TestFs")
    }
}

impl fmt::Debug for TestFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TestFile")
    }
}

impl FileSystem for TestFs {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        Ok(self.wrap(RealFs.open(path)?))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.0.pass()?;
        Ok(self.wrap(RealFs.create(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.pass()?;
        RealFs.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.pass()?;
        RealFs.remove(path)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        RealFs.list(folder)
    }

    fn create_folder(&self, folder: &Path) -> io::Result<()> {
        RealFs.create_folder(folder)
    }

    fn sync_folder(&self, _folder: &Path) -> io::Result<()> {
        self.0.pass()
    }

    fn lock_folder(&self, folder: &Path) -> io::Result<Box<dyn FolderHold>> {
        RealFs.lock_folder(folder)
    }
}

impl File for TestFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    /// A write that fails has written half of its bytes.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let passed = self.switch.pass();
        let written = if passed.is_ok() {
            bytes.len()
        } else {
            bytes.len() / 2
        };
        self.file.write_at(&bytes[..written], offset)?;
        passed
    }

    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.switch.pass()?;
        self.file.set_len(length)
    }

    fn sync_data(&self) -> io::Result<()> {
        if let Some(hook) = self.switch.on_sync.lock().unwrap().as_mut() {
            hook();
        }
        self.switch.pass()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.switch.pass()
    }
}
