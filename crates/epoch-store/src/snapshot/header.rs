//! What stands before the rows, here and in the checkpoint.

use std::io::Read;

use super::error::DamageKind;
use super::{META_BYTES_MAX, SnapshotMeta};

pub(super) const HASH_BYTES: u64 = 32;

const SNAPSHOT_MAGIC: [u8; 8] = *b"EPOCHSNP";
const VERSION: u32 = 1;

/// Magic, version and meta; `None` when the opaque part is too long.
pub(super) fn encode(meta: &SnapshotMeta) -> Option<Vec<u8>> {
    let mut bytes = begin(SNAPSHOT_MAGIC);
    put_meta(&mut bytes, meta)?;
    Some(bytes)
}

pub(crate) fn begin(magic: [u8; 8]) -> Vec<u8> {
    let mut bytes = magic.to_vec();
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes
}

/// `None` when the opaque part is too long.
pub(crate) fn put_meta(bytes: &mut Vec<u8>, meta: &SnapshotMeta) -> Option<()> {
    let meta_bytes = u32::try_from(meta.opaque.len())
        .ok()
        .filter(|_| meta.opaque.len() <= META_BYTES_MAX)?;
    bytes.extend_from_slice(&meta.index.to_le_bytes());
    bytes.extend_from_slice(&meta.term.to_le_bytes());
    bytes.extend_from_slice(&meta_bytes.to_le_bytes());
    bytes.extend_from_slice(&meta.opaque);
    Some(())
}

pub(super) fn read(reader: &mut impl Read) -> Result<SnapshotMeta, DamageKind> {
    read_begin(SNAPSHOT_MAGIC, reader)?;
    read_meta(reader)
}

pub(crate) fn read_begin(magic: [u8; 8], reader: &mut impl Read) -> Result<(), DamageKind> {
    if read_array(reader)? != magic {
        return Err(DamageKind::Magic);
    }
    match u32::from_le_bytes(read_array(reader)?) {
        VERSION => Ok(()),
        version => Err(DamageKind::Version(version)),
    }
}

pub(crate) fn read_meta(reader: &mut impl Read) -> Result<SnapshotMeta, DamageKind> {
    let index = u64::from_le_bytes(read_array(reader)?);
    let term = u64::from_le_bytes(read_array(reader)?);
    let meta_bytes = u32::from_le_bytes(read_array(reader)?);
    let length = usize::try_from(meta_bytes)
        .ok()
        .filter(|length| *length <= META_BYTES_MAX)
        .ok_or(DamageKind::MetaTooLarge(meta_bytes.into()))?;
    let mut opaque = vec![0; length];
    reader.read_exact(&mut opaque)?;
    Ok(SnapshotMeta {
        index,
        term,
        opaque: opaque.into(),
    })
}

pub(crate) fn read_array<const N: usize>(reader: &mut impl Read) -> Result<[u8; N], DamageKind> {
    let mut bytes = [0; N];
    reader.read_exact(&mut bytes)?;
    Ok(bytes)
}
