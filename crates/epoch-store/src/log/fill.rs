//! Zeros ahead of the log's end, so that a flush overwrites what the file has and the disk need not
//! write down that the file grew.

use std::io;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::format::SECTOR;
use super::view::Shared;
use crate::fs::File;

/// A step is due when fewer bytes than this are filled ahead: half a second of small flushes.
const AHEAD_BYTES: u64 = 2 << 20;
/// What one step fills. Small, since a flush may have to wait for it, or for its bytes to be synced.
const STEP_BYTES: usize = 1 << 20;

static ZEROS: [u8; STEP_BYTES] = [0; STEP_BYTES];

/// Fills the log's last segment with zeros ahead of its end. To be called from a thread of its own,
/// again at once while it returns true, otherwise every few milliseconds. Without it the log works
/// as well, with slower flushes.
#[derive(Clone, Debug)]
pub struct ZeroFiller {
    pub(super) filling: Arc<Filling>,
    pub(super) shared: Arc<Shared>,
}

impl ZeroFiller {
    /// Fills and syncs the next 1 MiB if less than 2 MiB are filled ahead of the log's end and the
    /// segment is not full; returns whether it did. An append waits for a step only if it comes so
    /// far that it overlaps it. Does nothing once the log is dropped. A full disk is left to the
    /// appends to report.
    ///
    /// # Errors
    /// What the disk reports. The log then takes no more calls, and the process must end.
    pub fn fill(&self) -> io::Result<bool> {
        let Some(step) = self.filling.begin_step() else {
            return Ok(false);
        };
        let result = step.run();
        self.filling.end_step(&step, matches!(result, Ok(true)));
        if result.is_err() {
            // The same pages may hold frames: what is on the disk is not known any more.
            self.shared.poison();
        }
        result
    }
}

/// Which part of the last segment is the log's and which the filler's.
#[derive(Debug)]
pub(super) struct Filling {
    state: Mutex<State>,
    step_ended: Condvar,
    segment_bytes_max: u64,
}

#[derive(Debug)]
struct State {
    /// `None` once the log is dropped.
    target: Option<Target>,
    is_stepping: bool,
}

#[derive(Debug)]
struct Target {
    segment: u64,
    file: Arc<dyn File>,
    /// Where the log's frames end, one that is being written included.
    end: u64,
    /// Zeros are on the disk up to here.
    filled: u64,
    /// What a step is writing zeros to.
    step: Option<Range<u64>>,
}

struct Step {
    segment: u64,
    file: Arc<dyn File>,
    range: Range<u64>,
}

impl Step {
    fn run(&self) -> io::Result<bool> {
        let len = usize::try_from(self.range.end - self.range.start).unwrap_or(STEP_BYTES);
        match self.file.write_at(&ZEROS[..len], self.range.start) {
            Ok(()) => self.file.sync_data().map(|()| true),
            Err(error) if error.kind() == io::ErrorKind::StorageFull => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl Filling {
    /// Begins with the segment `segment`, whose file has `size` bytes, of frames up to `end`.
    ///
    /// `file` must be a handle of its own. The operating system reports a failed write of the
    /// file's pages once to each handle; with one in common, the filler could take the report that
    /// a frame was lost, and the log's sync succeed.
    pub(super) fn new(
        segment_bytes_max: u64,
        segment: u64,
        file: Arc<dyn File>,
        end: u64,
        size: u64,
    ) -> Self {
        let state = State {
            target: Some(Target::new(segment, file, end, size)),
            is_stepping: false,
        };
        Self {
            state: Mutex::new(state),
            step_ended: Condvar::new(),
            segment_bytes_max,
        }
    }

    /// Goes on with a new segment, as [`Self::new`]. A step in the old one may still be under way:
    /// no frame is written there any more.
    pub(super) fn go_on_with(&self, segment: u64, file: Arc<dyn File>, end: u64) {
        self.state().target = Some(Target::new(segment, file, end, end));
    }

    /// Takes `range`, which begins at the log's end, for a frame: no zeros will be written there.
    /// Waits for a step that is doing so.
    pub(super) fn reserve(&self, range: &Range<u64>) {
        let mut state = self.state();
        while let Some(target) = &mut state.target {
            let overlaps = |step: &Range<u64>| step.start < range.end && range.start < step.end;
            if !target.step.as_ref().is_some_and(overlaps) {
                target.end = range.end;
                return;
            }
            state = self
                .step_ended
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends filling and waits for a step under way: the next owner of the folder may write where
    /// that step does.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.target = None;
        while state.is_stepping {
            state = self
                .step_ended
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn begin_step(&self) -> Option<Step> {
        let mut state = self.state();
        if state.is_stepping {
            return None;
        }
        let target = state.target.as_mut()?;
        let start = target.filled.max(target.end);
        let end = self.segment_bytes_max.min(start + STEP_BYTES as u64);
        if start - target.end >= AHEAD_BYTES || start >= end {
            return None;
        }
        target.step = Some(start..end);
        let step = Step {
            segment: target.segment,
            file: Arc::clone(&target.file),
            range: start..end,
        };
        state.is_stepping = true;
        Some(step)
    }

    fn end_step(&self, step: &Step, is_filled: bool) {
        let mut state = self.state();
        state.is_stepping = false;
        if let Some(target) = &mut state.target
            && target.segment == step.segment
        {
            target.step = None;
            if is_filled {
                target.filled = step.range.end;
            }
        }
        drop(state);
        self.step_ended.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Target {
    fn new(segment: u64, file: Arc<dyn File>, end: u64, size: u64) -> Self {
        Self {
            segment,
            file,
            end,
            // A crash can leave a part of a sector.
            filled: size - size % SECTOR as u64,
            step: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::mpsc;
    use std::thread;

    use super::*;
    use crate::{FileSystem, SimFs};

    const MIB: u64 = 1 << 20;

    #[test]
    fn an_append_waits_for_a_step_on_its_own_range_only() {
        let fs = SimFs::new(1);
        fs.create_folder(Path::new("/log")).unwrap();
        let file = fs.create(Path::new("/log/1")).unwrap();
        let filling = Arc::new(Filling::new(8 * MIB, 1, file, 512, MIB));
        let step = filling.begin_step().unwrap();
        assert!(filling.begin_step().is_none());
        filling.reserve(&(512..MIB));
        let (waiting, (done, is_done)) = (Arc::clone(&filling), mpsc::channel());
        let append = thread::spawn(move || {
            waiting.reserve(&(MIB..MIB + 512));
            done.send(()).unwrap();
        });
        assert!(is_done.try_recv().is_err());
        filling.end_step(&step, true);
        is_done.recv().unwrap();
        append.join().unwrap();
        // The next step begins behind what is reserved by now.
        filling.reserve(&(MIB + 512..3 * MIB));
        let step = filling.begin_step().unwrap();
        let file = fs.create(Path::new("/log/2")).unwrap();
        filling.go_on_with(2, file, 512);
        filling.reserve(&(512..4 * MIB));
        filling.end_step(&step, true);
        filling.close();
        assert!(filling.begin_step().is_none());
    }
}
