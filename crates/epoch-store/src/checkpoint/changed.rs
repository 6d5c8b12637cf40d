//! The rows that have changed since a snapshot, and the state they make with it.

use std::iter::Peekable;

use epoch_machine::State;

use super::chunk::{self, Item};
use super::error::{ChunkError, TableError};
use super::head::Head;
use super::key;
use crate::codec::{RowsError, SnapshotRow, StateLoader, decode_row};
use crate::snapshot::DamageKind;
use crate::snapshot::read::Rows;

/// Changed rows. They are gathered as bytes in two vectors, rather than as values in a map: what
/// is this large goes back to the system at once, while the holes that a map leaves between the
/// rows of the state stay resident for as long as the process lives.
#[derive(Debug, Default)]
pub(super) struct Changed {
    bytes: Vec<u8>,
    places: Vec<Place>,
}

/// Where a changed row is: its key, and the row itself right behind it, if it is not gone.
#[derive(Debug, Clone, Copy)]
struct Place {
    at: usize,
    key_bytes: u16,
    row_bytes: Option<u16>,
}

impl Changed {
    /// Adds the rows of the chunk that comes next: they replace those of chunks before.
    pub(super) fn add(&mut self, chunk: &[u8]) -> Result<(), ChunkError> {
        for item in chunk::items(chunk) {
            let at = self.bytes.len();
            let row = match item? {
                Item::Row(row) => {
                    key::put_row_key(&mut self.bytes, &decode_row(row)?);
                    Some(row)
                }
                Item::Gone(key) => {
                    self.bytes.extend_from_slice(key);
                    None
                }
            };
            let key_bytes = length(self.bytes.len() - at)?;
            let row_bytes = row.map(|row| length(row.len())).transpose()?;
            self.bytes.extend_from_slice(row.unwrap_or_default());
            self.places.push(Place {
                at,
                key_bytes,
                row_bytes,
            });
        }
        Ok(())
    }

    /// Lays them over the rows of `base`, or over none, and checks what comes out against the
    /// head. Rows are handed on as they are read: nothing but the state grows.
    pub(super) fn over(mut self, base: Option<Rows>, head: Head) -> Result<State, TableError> {
        let Self { bytes, places } = &mut self;
        // Stable: of the rows with one key, the last one stays last.
        places.sort_by(|one, other| one.key(bytes).cmp(other.key(bytes)));
        let mut changed = InOrder {
            bytes,
            places: places.iter().peekable(),
        };
        let mut loader = StateLoader::new(&head.state);
        let mut key = Vec::new();
        if let Some(mut base) = base {
            while let Some(row) = base.next().map_err(damaged)? {
                key.clear();
                key::put_row_key(&mut key, &row);
                while let Some(added) = changed.next_if(|changed| changed < key.as_slice())? {
                    added.map_or(Ok(()), |added| loader.add(added))?;
                }
                let row = match changed.next_if(|changed| changed == key.as_slice())? {
                    Some(replaced) => replaced,
                    None => Some(row),
                };
                row.map_or(Ok(()), |row| loader.add(row))?;
            }
            base.finish().map_err(damaged)?;
        }
        while let Some(added) = changed.next_if(|_| true)? {
            added.map_or(Ok(()), |added| loader.add(added))?;
        }
        Ok(loader.finish()?)
    }
}

impl Place {
    fn key<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        let end = self.at + usize::from(self.key_bytes);
        bytes.get(self.at..end).unwrap_or_default()
    }

    fn row<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let from = self.at + usize::from(self.key_bytes);
        bytes.get(from..from + usize::from(self.row_bytes?))
    }
}

/// Each changed row once, as it is last.
struct InOrder<'a> {
    bytes: &'a [u8],
    places: Peekable<std::slice::Iter<'a, Place>>,
}

impl InOrder<'_> {
    /// The next changed row, if `wanted` says so of its key: `None` within is a row that is gone.
    fn next_if(
        &mut self,
        wanted: impl Fn(&[u8]) -> bool,
    ) -> Result<Option<Option<SnapshotRow>>, TableError> {
        let bytes = self.bytes;
        let Some(mut last) = self.places.next_if(|place| wanted(place.key(bytes))) else {
            return Ok(None);
        };
        while let Some(later) = self
            .places
            .next_if(|place| place.key(bytes) == last.key(bytes))
        {
            last = later;
        }
        let row = last.row(bytes).map(decode_row).transpose();
        let row = row.map_err(|source| RowsError::Row { row: 0, source })?;
        Ok(Some(row))
    }
}

fn length(bytes: usize) -> Result<u16, ChunkError> {
    u16::try_from(bytes).map_err(|_too_long| ChunkError::CutOff)
}

fn damaged(kind: DamageKind) -> TableError {
    TableError::DamagedBase(Box::new(kind))
}
