//! A running hash of the state, so that nodes can tell in a moment whether they have the same one.

use std::fmt;
use std::hash::Hasher as _;

use epoch_core::{ClusterId, Incarnation, NodeId, RequestId};
use siphasher::sip128::{Hasher128 as _, SipHasher24};

use crate::command::{PublicKey, SessionKey};
use crate::rows::Row;
use crate::state::SessionState;

const SESSION: u8 = 1;
const SCOPE: u8 = 2;
const SPENT: u8 = 3;
const KEY: u8 = 4;
const WHOLE: u8 = 5;

/// The hash of a whole state: equal states have equal ones, different states different ones.
///
/// It is the sum, modulo 2^128, of the hashes of all rows: a change costs the hash of the row that
/// goes and of the row that comes, and the order of changes does not matter. Each hash is
/// SipHash-2-4 with 128 bits of output, keyed by the cluster id, over these bytes:
///
/// | what | bytes, in order |
/// | --- | --- |
/// | session | 1, session key, open id (16), holder (text), TTL in ms (u64), highest id forgotten (u64) |
/// | free scope | 2, name (text), epoch (u64), 0 |
/// | held scope | 2, name (text), epoch (u64), 1, session key, request id (u64), log index (u64), offset (u32), term (u64), node (u64) |
/// | spent request id | 3, session key, request id (u64), scope (text) |
/// | signing key | 4, node (u64), public key (32) |
/// | the whole | 5, sum of the rows (u128), incarnation (16), group (u32), time in ms (u64) |
///
/// Numbers are little-endian; a session key is its log index (u64) and offset (u32); a text is its
/// length in bytes (u32) and its UTF-8; a tag is one byte. A hash is written as the low 64 bits,
/// then the high ones, little-endian each, as SipHash's authors write it.
///
/// Nodes of different versions compare these: a change of the table is a change of the format. The
/// key is no secret, and a sum of hashes can be forged by who tries: the hash finds faults, not
/// malice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StateHash([u8; 16]);

impl StateHash {
    /// From its bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 16] {
        self.0
    }
}

impl fmt::Display for StateHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for StateHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StateHash({self})")
    }
}

/// The sum of the hashes of all rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowSum {
    keyed: SipHasher24,
    sum: u128,
}

impl RowSum {
    /// Of no rows.
    pub(crate) fn new(cluster_id: ClusterId) -> Self {
        Self {
            keyed: SipHasher24::new_with_key(cluster_id.0.as_bytes()),
            sum: 0,
        }
    }

    pub(crate) fn add(&mut self, row: HashedRow<'_>) {
        self.sum = self.sum.wrapping_add(self.row(row));
    }

    pub(crate) fn subtract(&mut self, row: HashedRow<'_>) {
        self.sum = self.sum.wrapping_sub(self.row(row));
    }

    pub(crate) fn finish(&self, incarnation: Incarnation, group: u32, now_ms: u64) -> StateHash {
        let mut bytes = Bytes(self.keyed);
        bytes.tag(WHOLE);
        bytes.raw(&self.sum.to_le_bytes());
        bytes.raw(incarnation.0.as_bytes());
        bytes.u32(group);
        bytes.u64(now_ms);
        StateHash(bytes.0.finish128().as_bytes())
    }

    fn row(&self, row: HashedRow<'_>) -> u128 {
        let mut bytes = Bytes(self.keyed);
        match row {
            HashedRow::Session(key, session) => bytes.session(key, session),
            HashedRow::Scope(name, row) => bytes.scope(name, row),
            HashedRow::Spent(key, request_id, scope) => {
                bytes.tag(SPENT);
                bytes.session_key(key);
                bytes.u64(request_id.get());
                bytes.text(scope);
            }
            HashedRow::Key(node, public_key) => {
                bytes.tag(KEY);
                bytes.u64(node);
                bytes.raw(public_key);
            }
        }
        u128::from(bytes.0.finish128())
    }
}

/// A row, borrowed for its hash.
#[derive(Clone, Copy)]
pub(crate) enum HashedRow<'a> {
    Session(SessionKey, &'a SessionState),
    Scope(&'a str, &'a Row),
    Spent(SessionKey, RequestId, &'a str),
    Key(NodeId, &'a PublicKey),
}

/// Takes the canonical bytes in. Straight into the hasher: collecting them first is slower.
struct Bytes(SipHasher24);

impl Bytes {
    fn session(&mut self, key: SessionKey, session: &SessionState) {
        // Taken apart, so that a new field cannot be left out by mistake.
        let SessionState {
            open_id,
            holder,
            ttl,
            forgotten,
            spent: _,
        } = session;
        self.tag(SESSION);
        self.session_key(key);
        self.raw(open_id.0.as_bytes());
        self.text(holder.as_str());
        self.u64(ttl.ms());
        self.u64(*forgotten);
    }

    fn scope(&mut self, name: &str, row: &Row) {
        let Row { epoch, held } = row;
        self.tag(SCOPE);
        self.text(name);
        self.u64(epoch.get());
        let Some(held) = held else {
            self.tag(0);
            return;
        };
        self.tag(1);
        self.session_key(held.session());
        self.u64(held.request_id.get());
        self.u64(held.index);
        self.u32(held.offset);
        self.u64(held.leadership.term);
        self.u64(held.leadership.node);
    }

    fn session_key(&mut self, key: SessionKey) {
        self.u64(key.index);
        self.u32(key.offset);
    }

    fn text(&mut self, text: &str) {
        // Names are bounded far below; a longer one would only share its length with another.
        self.u32(u32::try_from(text.len()).unwrap_or(u32::MAX));
        self.raw(text.as_bytes());
    }

    fn tag(&mut self, tag: u8) {
        self.0.write_u8(tag);
    }

    fn raw(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    // The hasher takes numbers in native order.
    fn u32(&mut self, number: u32) {
        self.0.write_u32(number.to_le());
    }

    fn u64(&mut self, number: u64) {
        self.0.write_u64(number.to_le());
    }
}
