//! One file: what a process reads, what the disk has, and the changes between them.

use std::io;

use super::random::SplitMix;

const SECTOR: usize = 512;

#[derive(Clone, Debug)]
enum Change {
    /// Whole sectors from `offset` as they were after a write, the last one perhaps cut short by
    /// the file's end. Sectors, because the disk knows nothing smaller.
    Sectors { offset: usize, bytes: Vec<u8> },
    /// A write made the file at least this long.
    Growth(usize),
}

/// A file's contents.
#[derive(Clone, Debug, Default)]
pub(super) struct Contents {
    live: Vec<u8>,
    durable: Vec<u8>,
    /// Leads from `durable` to `live`, unless a sync has failed.
    pending: Vec<Change>,
}

impl Contents {
    /// What a process reads.
    pub(super) fn live(&self) -> &[u8] {
        &self.live
    }

    pub(super) fn read(&self, buffer: &mut [u8], offset: u64) -> usize {
        let rest = usize::try_from(offset)
            .ok()
            .and_then(|offset| self.live.get(offset..))
            .unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        count
    }

    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let offset = in_memory(offset)?;
        let end = offset
            .checked_add(bytes.len())
            .ok_or(io::ErrorKind::FileTooLarge)?;
        if end > self.live.len() {
            self.pending.push(Change::Growth(end));
        }
        put(&mut self.live, offset, bytes);
        let start = offset / SECTOR * SECTOR;
        let end = end.next_multiple_of(SECTOR).min(self.live.len());
        self.pending.push(Change::Sectors {
            offset: start,
            bytes: self.live[start..end].to_vec(),
        });
        Ok(())
    }

    /// Cuts the file or grows it with zeros, durably and behind the process's back.
    pub(super) fn resize(&mut self, length: u64) -> io::Result<()> {
        let length = in_memory(length)?;
        self.sync();
        self.live.resize(length, 0);
        self.durable.resize(length, 0);
        Ok(())
    }

    /// Makes all changes durable.
    pub(super) fn sync(&mut self) {
        self.settle_with(|| true);
    }

    /// Makes some of the changes durable and forgets the others.
    pub(super) fn settle(&mut self, random: &mut SplitMix) {
        // Not always an even chance: otherwise a large write would never survive or go whole.
        let chance = random.below(5);
        self.settle_with(|| random.below(4) < chance);
    }

    fn settle_with(&mut self, mut keeps: impl FnMut() -> bool) {
        for change in self.pending.drain(..) {
            match change {
                Change::Sectors { offset, bytes } => {
                    for (at, sector) in bytes.chunks(SECTOR).enumerate() {
                        if keeps() {
                            put(&mut self.durable, offset + at * SECTOR, sector);
                        }
                    }
                }
                Change::Growth(length) => {
                    if keeps() {
                        self.durable.resize(length.max(self.durable.len()), 0);
                    }
                }
            }
        }
    }

    /// As they are after a power failure.
    pub(super) fn after_power_failure(&self, random: &mut SplitMix) -> Self {
        let mut settled = self.clone();
        settled.settle(random);
        settled.live.clone_from(&settled.durable);
        settled
    }
}

fn put(file: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    if end > file.len() {
        file.resize(end, 0);
    }
    file[offset..end].copy_from_slice(bytes);
}

fn in_memory(length: u64) -> io::Result<usize> {
    const LENGTH_MAX: usize = 1 << 32;
    let length = usize::try_from(length).ok();
    length
        .filter(|length| *length <= LENGTH_MAX)
        .ok_or_else(|| io::ErrorKind::FileTooLarge.into())
}
