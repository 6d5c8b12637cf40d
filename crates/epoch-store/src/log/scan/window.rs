//! A part of a segment file in memory.

use std::io;
use std::path::Path;

use bytes::Bytes;

use crate::fs::File;
use crate::log::format::{FrameFault, FrameHeader, SECTOR, check_sector_ends, decode_payload};
use crate::log::segment::DiskError;

/// What one read from the disk brings in at least.
const WINDOW_BYTES: usize = 1 << 20;

pub(super) struct Window<'a> {
    file: &'a dyn File,
    path: &'a Path,
    start: u64,
    bytes: Vec<u8>,
}

/// A frame that was read and is good in itself.
pub(super) struct Frame {
    pub(super) header: FrameHeader,
    pub(super) crc: u32,
    pub(super) payload: Bytes,
}

impl<'a> Window<'a> {
    pub(super) fn new(file: &'a dyn File, path: &'a Path) -> Self {
        Self {
            file,
            path,
            start: 0,
            bytes: Vec::new(),
        }
    }

    /// `len` bytes from `offset`, or fewer at the file's end.
    pub(super) fn bytes(&mut self, offset: u64, len: usize) -> Result<&[u8], DiskError> {
        let within = |at: &usize| {
            at.checked_add(len)
                .is_some_and(|end| end <= self.bytes.len())
        };
        let at = offset
            .checked_sub(self.start)
            .and_then(|at| usize::try_from(at).ok());
        let at = match at.filter(within) {
            Some(at) => at,
            None => {
                self.load(offset, len.max(WINDOW_BYTES))
                    .map_err(|source| DiskError::new("read", self.path, source))?;
                0
            }
        };
        Ok(&self.bytes[at..self.bytes.len().min(at + len)])
    }

    fn load(&mut self, offset: u64, len: usize) -> io::Result<()> {
        self.bytes.resize(len, 0);
        self.start = offset;
        let mut filled = 0;
        while filled < len {
            let rest = &mut self.bytes[filled..];
            match self.file.read_at(rest, offset + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) => {
                    self.bytes.clear();
                    return Err(error);
                }
            }
        }
        self.bytes.truncate(filled);
        Ok(())
    }

    pub(super) fn frame(
        &mut self,
        offset: u64,
        segment: u64,
    ) -> Result<Result<Frame, FrameFault>, DiskError> {
        let (header, crc) = match self.header(offset, segment)? {
            Ok(decoded) => decoded,
            Err(fault) => return Ok(Err(fault)),
        };
        let len = header.frame_bytes();
        let sectors = self.bytes(offset, len)?;
        if sectors.len() < len {
            let fault = check_sector_ends(sectors).err();
            let torn = FrameFault::Torn("the file ends inside the frame");
            return Ok(Err(fault.unwrap_or(torn)));
        }
        Ok(decode_payload(&header, sectors).map(|payload| Frame {
            header,
            crc,
            payload,
        }))
    }

    /// A header is believed, or blamed, only once its sector is known to have been written.
    pub(super) fn header(
        &mut self,
        offset: u64,
        segment: u64,
    ) -> Result<Result<(FrameHeader, u32), FrameFault>, DiskError> {
        let first = self.bytes(offset, SECTOR)?;
        Ok(check_sector_ends(first).and_then(|()| FrameHeader::decode(first, segment)))
    }
}
