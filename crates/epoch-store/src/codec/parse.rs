//! Parts that batches and rows share.

use bytes::Bytes;
use epoch_core::{OpenId, SessionId};
use epoch_machine::{IntentDigest, LockDelay, Metadata, SessionKey, Terms, Value};
use epoch_proto::raft;
use uuid::Uuid;

use super::DecodeError;

/// Decodes a whole message.
///
/// Fields that prost does not know, a field given twice, a default written out and a number in
/// more bytes than needed are all dropped on decoding, and each makes the message longer than the
/// one this version writes: comparing lengths finds them without encoding again.
pub(super) fn message<M: prost::Message + Default>(bytes: &[u8]) -> Result<M, DecodeError> {
    let message = M::decode(bytes)?;
    let known = message.encoded_len();
    if known == bytes.len() {
        Ok(message)
    } else {
        Err(DecodeError::UnknownBytes {
            len: bytes.len(),
            known,
        })
    }
}

pub(super) fn present<T>(what: &'static str, part: Option<T>) -> Result<T, DecodeError> {
    part.ok_or(DecodeError::Missing(what))
}

pub(super) fn uuid(what: &'static str, bytes: &[u8]) -> Result<Uuid, DecodeError> {
    fixed(what, bytes).map(Uuid::from_bytes)
}

pub(super) fn uuid_bytes(uuid: Uuid) -> Bytes {
    Bytes::copy_from_slice(uuid.as_bytes())
}

pub(super) fn fixed<const N: usize>(
    what: &'static str,
    bytes: &[u8],
) -> Result<[u8; N], DecodeError> {
    bytes
        .try_into()
        .map_err(|_wrong_length| DecodeError::Length {
            what,
            len: bytes.len(),
            expected: N,
        })
}

pub(super) fn session_key(key: Option<raft::SessionKey>) -> Result<SessionKey, DecodeError> {
    let raft::SessionKey { index, offset } = present("session key", key)?;
    Ok(SessionKey { index, offset })
}

pub(super) fn session_key_message(key: SessionKey) -> raft::SessionKey {
    raft::SessionKey {
        index: key.index,
        offset: key.offset,
    }
}

pub(super) fn session_id(session: Option<raft::SessionRef>) -> Result<SessionId, DecodeError> {
    let raft::SessionRef { open_id, key } = present("session", session)?;
    let SessionKey { index, offset } = session_key(key)?;
    Ok(SessionId {
        open_id: OpenId(uuid("open_id", &open_id)?),
        index,
        offset,
    })
}

pub(super) fn session_ref(session: &SessionId) -> raft::SessionRef {
    raft::SessionRef {
        open_id: uuid_bytes(session.open_id.0),
        key: Some(session_key_message(session.into())),
    }
}

/// Terms that are all default are absent: they have one spelling.
pub(super) fn terms(message: Option<raft::Terms>) -> Result<Terms, DecodeError> {
    let Some(message) = message else {
        return Ok(Terms::default());
    };
    let terms = Terms {
        lock_delay: LockDelay::from_ms(message.lock_delay_ms)?,
        metadata: Metadata::new(&message.metadata)?,
    };
    if terms == Terms::default() {
        return Err(DecodeError::Spelling("default terms"));
    }
    Ok(terms)
}

pub(super) fn terms_message(terms: &Terms) -> Option<raft::Terms> {
    (*terms != Terms::default()).then(|| raft::Terms {
        lock_delay_ms: terms.lock_delay.ms(),
        metadata: terms.metadata.as_str().to_owned(),
    })
}

pub(super) fn intent(message: &raft::Intent) -> Result<IntentDigest, DecodeError> {
    Ok(IntentDigest {
        id: fixed("intent id", &message.id)?,
        payload: fixed("intent payload", &message.payload)?,
    })
}

pub(super) fn intent_message(intent: &IntentDigest) -> raft::Intent {
    raft::Intent {
        id: Bytes::copy_from_slice(&intent.id),
        payload: Bytes::copy_from_slice(&intent.payload),
    }
}

pub(super) fn value(bytes: Option<&Bytes>) -> Result<Option<Value>, DecodeError> {
    Ok(bytes.map(|bytes| Value::new(bytes)).transpose()?)
}

pub(super) fn value_bytes(value: Option<&Value>) -> Option<Bytes> {
    value.map(|value| Bytes::copy_from_slice(value.as_bytes()))
}
