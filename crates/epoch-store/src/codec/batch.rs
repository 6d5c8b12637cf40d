//! Batches: the value of one log entry.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use epoch_core::{Epoch, Holder, OpenId, RequestId, Scope};
use epoch_machine::{Batch, Command, Leadership, Ttl};
use epoch_proto::raft;
use prost::Message as _;

use super::DecodeError;
use super::parse::{
    message, present, public_key, session_id, session_key, session_key_message, session_ref, uuid,
    uuid_bytes,
};
use crate::ENTRY_BYTES_MAX;

/// Largest batch that a leader should make, in bytes as encoded. One entry is one message to each
/// follower and one flush: beyond this, more commands only make the ones before them wait.
pub const BATCH_BYTES_MAX: usize = 256 << 10;
/// Most bytes that a batch has besides its commands: magic, version, leadership and time.
pub const BATCH_HEAD_BYTES_MAX: usize = MAGIC.len() + 1 + 3 * (1 + VARINT_BYTES_MAX);

const MAGIC: &[u8] = b"EPB";
const VERSION: u8 = 1;
const VARINT_BYTES_MAX: usize = 10;

/// The bytes that `command` adds to an encoded batch, exactly.
#[must_use]
pub fn command_bytes(command: &Command) -> usize {
    let len = command_message(command).encoded_len();
    1 + prost::length_delimiter_len(len) + len
}

/// The batch as stored: magic, format version, message.
#[must_use]
pub fn encode_batch(batch: &Batch) -> Bytes {
    let message = raft::Batch {
        leader_term: batch.leadership.term,
        leader_node: batch.leadership.node,
        wall_ms: batch.wall_ms,
        commands: batch.commands.iter().map(command_message).collect(),
    };
    let mut bytes = BytesMut::with_capacity(MAGIC.len() + 1 + message.encoded_len());
    bytes.put_slice(MAGIC);
    bytes.put_u8(VERSION);
    bytes.put_slice(&message.encode_to_vec());
    bytes.freeze()
}

/// Reads what [`encode_batch`] wrote.
///
/// # Errors
/// Larger than a log entry can be, of another kind or version, malformed, with bytes that this
/// version would not have written, or with any value out of its bounds.
pub fn decode_batch(bytes: &[u8]) -> Result<Batch, DecodeError> {
    if bytes.len() > ENTRY_BYTES_MAX {
        return Err(DecodeError::TooLarge {
            len: bytes.len(),
            max: ENTRY_BYTES_MAX,
        });
    }
    let (version, body) = bytes
        .strip_prefix(MAGIC)
        .and_then(<[u8]>::split_first)
        .ok_or(DecodeError::Magic("a batch"))?;
    if *version != VERSION {
        return Err(DecodeError::Version { found: *version });
    }
    let batch: raft::Batch = message(body)?;
    Ok(Batch {
        leadership: Leadership {
            term: batch.leader_term,
            node: batch.leader_node,
        },
        wall_ms: batch.wall_ms,
        commands: batch
            .commands
            .into_iter()
            .map(command)
            .collect::<Result<_, _>>()?,
    })
}

fn command_message(command: &Command) -> raft::Command {
    use raft::command::Command as Message;
    let message = match command {
        Command::Open {
            open_id,
            holder,
            ttl,
        } => Message::Open(raft::Open {
            open_id: uuid_bytes(open_id.0),
            holder: holder.as_str().to_owned(),
            ttl_ms: ttl.ms(),
        }),
        Command::Close { session } => Message::Close(raft::Close {
            session: Some(session_ref(session)),
        }),
        Command::Expire { session } => Message::Expire(raft::Expire {
            session: Some(session_key_message(*session)),
        }),
        Command::Acquire {
            scope,
            session,
            request_id,
        } => Message::Acquire(raft::Acquire {
            scope: scope.as_str().to_owned(),
            session: Some(session_ref(session)),
            request_id: request_id.get(),
        }),
        Command::Release {
            scope,
            session,
            epoch,
        } => Message::Release(raft::Release {
            scope: scope.as_str().to_owned(),
            session: Some(session_ref(session)),
            epoch: epoch.get(),
        }),
        Command::Revoke { scope, epoch } => Message::Revoke(raft::Revoke {
            scope: scope.as_str().to_owned(),
            epoch: epoch.map(Epoch::get),
        }),
        Command::RegisterKey { node, public_key } => Message::RegisterKey(raft::RegisterKey {
            node: *node,
            public_key: Bytes::copy_from_slice(&**public_key),
        }),
    };
    raft::Command {
        command: Some(message),
    }
}

fn command(message: raft::Command) -> Result<Command, DecodeError> {
    use raft::command::Command as Message;
    Ok(match present("command", message.command)? {
        Message::Open(open) => Command::Open {
            open_id: OpenId(uuid("open_id", &open.open_id)?),
            holder: Holder::parse(&open.holder)?,
            ttl: Ttl::from_ms(open.ttl_ms)?,
        },
        Message::Close(close) => Command::Close {
            session: session_id(close.session)?,
        },
        Message::Expire(expire) => Command::Expire {
            session: session_key(expire.session)?,
        },
        Message::Acquire(acquire) => Command::Acquire {
            scope: Scope::parse(&acquire.scope)?,
            session: session_id(acquire.session)?,
            request_id: RequestId::new(acquire.request_id)?,
        },
        Message::Release(release) => Command::Release {
            scope: Scope::parse(&release.scope)?,
            session: session_id(release.session)?,
            epoch: Epoch::new(release.epoch)?,
        },
        Message::Revoke(revoke) => Command::Revoke {
            scope: Scope::parse(&revoke.scope)?,
            epoch: revoke.epoch.map(Epoch::new).transpose()?,
        },
        Message::RegisterKey(key) => Command::RegisterKey {
            node: key.node,
            public_key: Arc::new(public_key(&key.public_key)?),
        },
    })
}

#[cfg(test)]
mod tests {
    use epoch_core::SessionId;
    use epoch_machine::SessionKey;
    use uuid::Uuid;

    use super::*;

    fn session() -> SessionId {
        SessionId {
            open_id: OpenId(Uuid::from_u128(7)),
            index: 300,
            offset: 2,
        }
    }

    fn every_command() -> Vec<Command> {
        let scope = Scope::parse("reports/research-note").unwrap();
        let epoch = Epoch::new(1 << 50).unwrap();
        vec![
            Command::Open {
                open_id: OpenId(Uuid::from_u128(7)),
                holder: Holder::parse("agent-a").unwrap(),
                ttl: Ttl::from_ms(10_000).unwrap(),
            },
            Command::Close { session: session() },
            Command::Expire {
                session: SessionKey {
                    index: 0,
                    offset: 0,
                },
            },
            Command::Acquire {
                scope: scope.clone(),
                session: session(),
                request_id: RequestId::new(9).unwrap(),
            },
            Command::Release {
                scope: scope.clone(),
                session: session(),
                epoch,
            },
            Command::Revoke {
                scope: scope.clone(),
                epoch: None,
            },
            Command::Revoke {
                scope,
                epoch: Some(epoch),
            },
            Command::RegisterKey {
                node: 3,
                public_key: Arc::new([9; 32]),
            },
        ]
    }

    fn batch(commands: Vec<Command>) -> Batch {
        Batch {
            leadership: Leadership { term: 4, node: 2 },
            wall_ms: 1_800_000_000_000,
            commands,
        }
    }

    #[test]
    fn every_command_survives() {
        let batch = batch(every_command());
        assert_eq!(decode_batch(&encode_batch(&batch)).unwrap(), batch);
    }

    #[test]
    fn the_stated_sizes_bound_the_batch() {
        let empty = encode_batch(&batch(Vec::new())).len();
        let mut largest = batch(Vec::new());
        largest.wall_ms = u64::MAX;
        largest.leadership = Leadership {
            term: u64::MAX,
            node: u64::MAX,
        };
        assert_eq!(encode_batch(&largest).len(), BATCH_HEAD_BYTES_MAX);
        for command in every_command() {
            let bytes = command_bytes(&command);
            let commands = vec![command; 3];
            assert_eq!(encode_batch(&batch(commands)).len(), empty + 3 * bytes);
        }
    }

    #[test]
    fn a_batch_cut_anywhere_or_followed_by_anything_is_refused_or_shorter() {
        let whole = encode_batch(&batch(every_command()));
        for end in 0..whole.len() {
            // A cut between two commands is a shorter batch: lengths are the log's matter.
            if let Ok(shorter) = decode_batch(&whole[..end]) {
                assert_eq!(encode_batch(&shorter), whole[..end]);
            }
        }
        for extra in 0..=u8::MAX {
            let mut longer = whole.to_vec();
            longer.push(extra);
            assert!(decode_batch(&longer).is_err(), "{extra}");
        }
    }

    #[test]
    fn what_this_version_would_not_write_is_refused() {
        let whole = encode_batch(&batch(every_command()));
        let refused = |bytes: &[u8]| decode_batch(bytes).unwrap_err();
        assert!(matches!(refused(b""), DecodeError::Magic(_)));
        assert!(matches!(refused(b"EPB"), DecodeError::Magic(_)));
        assert!(matches!(refused(&whole[1..]), DecodeError::Magic(_)));
        let mut newer = whole.to_vec();
        newer[3] = 2;
        assert!(matches!(refused(&newer), DecodeError::Version { found: 2 }));
        let mut unknown_field = whole.to_vec();
        unknown_field.extend([15 << 3, 1]);
        assert!(matches!(
            refused(&unknown_field),
            DecodeError::UnknownBytes { .. }
        ));
        let mut twice = whole.to_vec();
        twice.extend([1 << 3, 4]);
        assert!(matches!(refused(&twice), DecodeError::UnknownBytes { .. }));
        let huge = vec![0; ENTRY_BYTES_MAX + 1];
        assert!(matches!(refused(&huge), DecodeError::TooLarge { .. }));
    }

    #[test]
    fn values_out_of_bounds_are_refused() {
        use raft::command::Command as Message;
        let key = Some(raft::SessionKey {
            index: 1,
            offset: 0,
        });
        let session = Some(raft::SessionRef {
            open_id: vec![1; 16].into(),
            key,
        });
        let open = |open_id: usize, holder: &str, ttl_ms| {
            Message::Open(raft::Open {
                open_id: vec![1; open_id].into(),
                holder: holder.to_owned(),
                ttl_ms,
            })
        };
        let acquire = |scope: &str, session, request_id| {
            Message::Acquire(raft::Acquire {
                scope: scope.to_owned(),
                session,
                request_id,
            })
        };
        let without_key = Some(raft::SessionRef {
            open_id: vec![1; 16].into(),
            key: None,
        });
        for bad in [
            open(15, "a", 1_000),
            open(16, "", 1_000),
            open(16, "a", 999),
            acquire("", session.clone(), 1),
            acquire(&"a".repeat(513), session.clone(), 1),
            acquire("a\n", session.clone(), 1),
            acquire("a", None, 1),
            acquire("a", without_key, 1),
            acquire("a", session.clone(), 0),
            acquire("a", session.clone(), 1 << 53),
            Message::Release(raft::Release {
                scope: "a".to_owned(),
                session,
                epoch: 0,
            }),
            Message::Revoke(raft::Revoke {
                scope: "a".to_owned(),
                epoch: Some(0),
            }),
            Message::RegisterKey(raft::RegisterKey {
                node: 1,
                public_key: vec![1; 31].into(),
            }),
            Message::Expire(raft::Expire { session: None }),
            Message::Close(raft::Close { session: None }),
        ] {
            let message = raft::Command {
                command: Some(bad.clone()),
            };
            assert!(command(message).is_err(), "{bad:?}");
        }
        assert!(command(raft::Command { command: None }).is_err());
    }
}
