//! What stands before the rows.

use std::io::Read;

use super::error::DamageKind;
use super::{META_BYTES_MAX, SnapshotMeta};

pub(super) const HASH_BYTES: u64 = 32;

const MAGIC: &[u8; 8] = b"EPOCHSNP";
const VERSION: u32 = 1;

/// `None` when the opaque part is too long.
pub(super) fn encode(meta: &SnapshotMeta) -> Option<Vec<u8>> {
    let meta_bytes = u32::try_from(meta.opaque.len())
        .ok()
        .filter(|_| meta.opaque.len() <= META_BYTES_MAX)?;
    let mut bytes = Vec::with_capacity(32 + meta.opaque.len());
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&meta.index.to_le_bytes());
    bytes.extend_from_slice(&meta.term.to_le_bytes());
    bytes.extend_from_slice(&meta_bytes.to_le_bytes());
    bytes.extend_from_slice(&meta.opaque);
    Some(bytes)
}

pub(super) fn read(reader: &mut impl Read) -> Result<SnapshotMeta, DamageKind> {
    if read_array(reader)? != *MAGIC {
        return Err(DamageKind::Magic);
    }
    let version = u32::from_le_bytes(read_array(reader)?);
    if version != VERSION {
        return Err(DamageKind::Version(version));
    }
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

pub(super) fn read_array<const N: usize>(reader: &mut impl Read) -> Result<[u8; N], DamageKind> {
    let mut bytes = [0; N];
    reader.read_exact(&mut bytes)?;
    Ok(bytes)
}
