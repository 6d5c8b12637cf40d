//! A pipe that nobody reads.

use std::io::{ErrorKind, PipeReader, PipeWriter, Read as _, Write as _};
use std::process::Stdio;

use anyhow::{Result, ensure};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::ioctl_fionread;

/// A page: less than that is written in one piece, and room in a pipe is made by pages.
const PAGE: usize = 4096;

/// A pipe that is full from the start, for the stdout or stderr of a command that nobody reads.
#[derive(Debug)]
pub struct FullPipe {
    reader: PipeReader,
    writer: PipeWriter,
    capacity: u64,
}

impl FullPipe {
    /// Makes one.
    ///
    /// # Errors
    /// The system has none.
    pub fn new() -> Result<Self> {
        let (reader, mut writer) = std::io::pipe()?;
        let flags = fcntl_getfl(&writer)?;
        fcntl_setfl(&writer, flags | OFlags::NONBLOCK)?;
        loop {
            match writer.write(&[b'\n'; PAGE]) {
                Ok(_written) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        // The command's own end waits for room.
        fcntl_setfl(&writer, flags)?;
        Ok(Self {
            capacity: ioctl_fionread(&reader)?,
            reader,
            writer,
        })
    }

    /// The end that a command writes to.
    ///
    /// # Errors
    /// There are too many open files.
    pub fn end(&self) -> Result<Stdio> {
        Ok(self.writer.try_clone()?.into())
    }

    /// Makes room for a page.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn take_a_page(&mut self) -> Result<()> {
        Ok(self.reader.read_exact(&mut [0; PAGE])?)
    }

    /// For how many bytes there is room.
    ///
    /// # Errors
    /// The system does not say.
    pub fn room(&self) -> Result<u64> {
        let held = ioctl_fionread(&self.reader)?;
        ensure!(held <= self.capacity, "it holds {held}");
        Ok(self.capacity - held)
    }
}
