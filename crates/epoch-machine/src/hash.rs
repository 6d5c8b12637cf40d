//! A running hash of the state, so that nodes can tell in a moment whether they have the same one.

mod admin;

use std::fmt;
use std::hash::Hasher as _;

use epoch_core::{ClusterId, Incarnation, Principal, RequestId};
use siphasher::sip128::{Hasher128 as _, SipHasher24};

use crate::admin::AdminRow;
use crate::command::{SessionKey, Ttl};
use crate::record::Record;
use crate::rows::{Origin, Place, Row, Spent, SpentUse, Standing, Waiting};
use crate::state::SessionState;
use crate::terms::Terms;

const SESSION: u8 = 1;
const SCOPE: u8 = 2;
const SPENT: u8 = 3;
const WHOLE: u8 = 5;
const WAIT: u8 = 6;
const RECORD: u8 = 7;

/// The hash of a whole state: equal states have equal ones, different states different ones.
///
/// It is the sum, modulo 2^128, of the hashes of all rows: a change costs the hash of the row that
/// goes and of the row that comes, and the order of changes does not matter. Each hash is
/// SipHash-2-4 with 128 bits of output, keyed by the cluster id, over these bytes:
///
/// | what | bytes, in order |
/// | --- | --- |
/// | session | 1, session key, open id (16), holder (text), TTL and stall limit in ms (u64 each; 0 for no limit), highest id forgotten (u64), principal (text; empty for none), 0 or 1 and the holder key (32) |
/// | free scope | 2, name (text), epoch (u64), 0, lock delay in ms (u64) |
/// | held scope | 2, name (text), epoch (u64), 1, session key, request id (u64; 0 when transferred), log index (u64), offset (u32), term (u64), node (u64), terms; then 0, or 1, session key and epoch (u64) of the grant it was before a transfer |
/// | spent request id | 3, session key, request id (u64), scope (text), then 1 for a grant, 2 for an expired wait, 3 for a cancelled one |
/// | wait | 6, scope (text), log index (u64), offset (u32), session key, request id (u64), wait in ms (u64), terms |
/// | record | 7, scope (text), revision (u64), epoch (u64), 0 or 1 and the value (length as u32, bytes); number of intents (u32), of each id (16), payload (16), revision (u64), effect (0 or 1) |
/// | permission | 4, 1, principal (text), prefix (text), verbs (u32) |
/// | token | 4, 2, its hash (32), principal (text), label (text), time in ms when it was added (u64), and from when on it is no good (u64; 0 for never) |
/// | limits | 4, 3, principal (text), sessions, grants, waits and requests a second: of each 0, or 1 and the limit (u32) |
/// | audit record | 4, 4, number (u64), time in ms (u64), log index (u64), principal (text; empty for none), action (u32), target (text), reason of the refusal (text; empty for none) |
/// | trust bundle | 4, 5, payload (text); number of signatures (u32), of each key id (32) and signature (64) |
/// | offered key | 4, 6, node (u64), public key (32), 1 if endorsed, else 0 |
/// | node asked for a key | 4, 7, node (u64) |
/// | retired key | 4, 8, key id (32), time in ms (u64) |
/// | statement | 4, 9, 1 for the clock, 2 for max_future, when it was issued in s (u64), its text |
/// | the whole | 5, sum of the rows (u128), incarnation (16), group (u32), time in ms (u64) |
///
/// Numbers are little-endian; a session key is its log index (u64) and offset (u32); a text is its
/// length in bytes (u32) and its UTF-8; terms are the lock delay in ms (u64) and the metadata (text); a tag is one byte. A hash is written as the low 64 bits,
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
            HashedRow::Spent(key, request_id, spent) => bytes.spent(key, request_id, spent),
            HashedRow::Wait(place, waiting) => bytes.wait(place, waiting),
            HashedRow::Record(scope, record) => bytes.record(scope, record),
            HashedRow::Admin(row) => bytes.admin(row),
        }
        u128::from(bytes.0.finish128())
    }
}

/// A row, borrowed for its hash.
#[derive(Clone, Copy)]
pub(crate) enum HashedRow<'a> {
    Session(SessionKey, &'a SessionState),
    Scope(&'a str, &'a Row),
    Spent(SessionKey, RequestId, &'a Spent),
    Wait(&'a Place, &'a Waiting),
    Record(&'a str, &'a Record),
    Admin(&'a AdminRow),
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
            stall_limit,
            principal,
            holder_key,
            forgotten,
            spent: _,
            grants: _,
            waits: _,
            digest: _,
        } = session;
        self.tag(SESSION);
        self.session_key(key);
        self.raw(open_id.0.as_bytes());
        self.text(holder.as_str());
        self.u64(ttl.ms());
        self.u64(stall_limit.map_or(0, Ttl::ms));
        self.u64(*forgotten);
        self.principal(principal.as_ref());
        self.tag(u8::from(holder_key.is_some()));
        if let Some(holder_key) = holder_key {
            self.raw(holder_key);
        }
    }

    fn scope(&mut self, name: &str, row: &Row) {
        let Row { epoch, standing } = row;
        self.tag(SCOPE);
        self.text(name);
        self.u64(epoch.get());
        let held = match standing {
            Standing::Free(delay) => {
                self.tag(0);
                self.u64(delay.ms());
                return;
            }
            Standing::Held(held) => held,
        };
        let Origin {
            leadership,
            terms,
            before,
        } = &*held.origin;
        self.tag(1);
        self.session_key(held.session());
        self.u64(held.request_id.map_or(0, RequestId::get));
        self.u64(held.index);
        self.u32(held.offset);
        self.u64(leadership.term);
        self.u64(leadership.node);
        self.terms(terms);
        self.tag(u8::from(before.is_some()));
        if let Some((session, epoch)) = before {
            self.session_key(*session);
            self.u64(epoch.get());
        }
    }

    fn spent(&mut self, key: SessionKey, request_id: RequestId, spent: &Spent) {
        let Spent { scope, what } = spent;
        self.tag(SPENT);
        self.session_key(key);
        self.u64(request_id.get());
        self.text(scope);
        self.tag(match what {
            SpentUse::Grant => 1,
            SpentUse::WaitExpired => 2,
            SpentUse::WaitCancelled => 3,
        });
    }

    fn wait(&mut self, place: &Place, waiting: &Waiting) {
        let Place {
            scope,
            index,
            offset,
        } = place;
        let Waiting {
            session,
            request_id,
            wait,
            terms,
        } = waiting;
        self.tag(WAIT);
        self.text(scope);
        self.u64(*index);
        self.u32(*offset);
        self.session_key(*session);
        self.u64(request_id.get());
        self.u64(wait.ms());
        self.terms(terms);
    }

    fn record(&mut self, scope: &str, record: &Record) {
        let Record {
            revision,
            value,
            epoch,
            intents,
        } = record;
        self.tag(RECORD);
        self.text(scope);
        self.u64(*revision);
        self.u64(epoch.get());
        self.tag(u8::from(value.is_some()));
        if let Some(value) = value {
            self.length(value.as_bytes().len());
            self.raw(value.as_bytes());
        }
        self.length(intents.len());
        for done in intents.iter() {
            self.raw(&done.intent.id);
            self.raw(&done.intent.payload);
            self.u64(done.revision);
            self.tag(u8::from(done.had_effect));
        }
    }

    fn principal(&mut self, principal: Option<&Principal>) {
        self.text(principal.map_or("", Principal::as_str));
    }

    fn terms(&mut self, terms: &Terms) {
        let Terms {
            lock_delay,
            metadata,
        } = terms;
        self.u64(lock_delay.ms());
        self.text(metadata.as_str());
    }

    fn session_key(&mut self, key: SessionKey) {
        self.u64(key.index);
        self.u32(key.offset);
    }

    fn text(&mut self, text: &str) {
        self.length(text.len());
        self.raw(text.as_bytes());
    }

    fn length(&mut self, length: usize) {
        // All are bounded far below; a longer one would only share its length with another.
        self.u32(u32::try_from(length).unwrap_or(u32::MAX));
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
