//! Batches: the value of one log entry.

#[cfg(test)]
mod tests;

use std::num::NonZeroU64;

use bytes::{BufMut, Bytes, BytesMut};
use epoch_core::{Epoch, Holder, OpenId, RequestId, Scope, SessionHash};
use epoch_machine::{Batch, Command, Leadership, Scopes, Ttl, Wait};
use epoch_proto::raft;
use prost::Message as _;

use super::admin::{
    holder_key, holder_key_bytes, limits_message, permission_message, principal, principal_text,
};
use super::parse::{
    fixed, intent, intent_message, message, present, session_id, session_key, session_key_message,
    session_ref, terms, terms_message, uuid, uuid_bytes, value, value_bytes,
};
use super::{DecodeError, operate, trust};
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

#[expect(
    clippy::too_many_lines,
    reason = "one arm a command, with nothing in it but its fields"
)]
fn command_message(command: &Command) -> raft::Command {
    use raft::command::Command as Message;
    let message = match command {
        Command::Open {
            open_id,
            holder,
            ttl,
            stall_limit,
            principal,
            holder_key,
        } => Message::Open(raft::Open {
            open_id: uuid_bytes(open_id.0),
            holder: holder.as_str().to_owned(),
            ttl_ms: ttl.ms(),
            stall_limit_ms: stall_limit.map(Ttl::ms),
            principal: principal_text(principal.as_ref()),
            holder_key: holder_key_bytes(holder_key.as_ref()),
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
            terms,
            wait,
            reissue,
        } => Message::Acquire(raft::Acquire {
            scope: scope.as_str().to_owned(),
            session: Some(session_ref(session)),
            request_id: request_id.get(),
            terms: terms_message(terms),
            wait_ms: wait.ms(),
            reissue: *reissue,
        }),
        Command::AcquireMany {
            scopes,
            session,
            request_id,
            terms,
        } => Message::AcquireMany(raft::AcquireMany {
            scopes: scopes.iter().map(ToString::to_string).collect(),
            session: Some(session_ref(session)),
            request_id: request_id.get(),
            terms: terms_message(terms),
        }),
        Command::CancelWait {
            scope,
            session,
            request_id,
        } => Message::CancelWait(raft::CancelWait {
            scope: scope.as_str().to_owned(),
            session: Some(session_ref(session)),
            request_id: request_id.get(),
        }),
        Command::EndWait {
            session,
            request_id,
        } => Message::EndWait(raft::EndWait {
            session: Some(session_key_message(*session)),
            request_id: request_id.get(),
        }),
        Command::EndDelay { scope, epoch } => Message::EndDelay(raft::EndDelay {
            scope: scope.as_str().to_owned(),
            epoch: epoch.get(),
        }),
        Command::Transfer {
            scope,
            session,
            epoch,
            to,
        } => Message::Transfer(raft::Transfer {
            scope: scope.as_str().to_owned(),
            session: Some(session_ref(session)),
            epoch: epoch.get(),
            to: Bytes::copy_from_slice(&to.0),
        }),
        Command::WriteRecord {
            scope,
            session,
            epoch,
            value,
            expected_revision,
            intent,
        } => Message::WriteRecord(raft::WriteRecord {
            scope: scope.as_str().to_owned(),
            session: Some(session_ref(session)),
            epoch: epoch.get(),
            value: value_bytes(value.as_ref()),
            expected_revision: *expected_revision,
            intent: intent.as_ref().map(intent_message),
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
        Command::Revoke { scope, epoch, by } => Message::Revoke(raft::Revoke {
            scope: scope.as_str().to_owned(),
            epoch: epoch.map(Epoch::get),
            by: principal_text(by.as_ref()),
        }),
        Command::GrantPermission {
            by,
            principal,
            prefix,
            verbs,
        } => Message::GrantPermission(raft::GrantPermission {
            by: principal_text(by.as_ref()),
            permission: Some(permission_message(principal, prefix, *verbs)),
        }),
        Command::RevokePermission {
            by,
            principal,
            prefix,
        } => Message::RevokePermission(raft::RevokePermission {
            by: principal_text(by.as_ref()),
            principal: principal.as_str().to_owned(),
            prefix: prefix.as_str().to_owned(),
        }),
        Command::AddToken {
            by,
            principal,
            label,
            hash,
            expires_ms,
        } => Message::AddToken(raft::AddToken {
            by: principal_text(by.as_ref()),
            principal: principal.as_str().to_owned(),
            label: label.as_str().to_owned(),
            hash: Bytes::copy_from_slice(&hash.0),
            expires_ms: expires_ms.map_or(0, NonZeroU64::get),
        }),
        Command::RemoveToken {
            by,
            principal,
            label,
        } => Message::RemoveToken(raft::RemoveToken {
            by: principal_text(by.as_ref()),
            principal: principal.as_str().to_owned(),
            label: label.as_str().to_owned(),
        }),
        Command::SetLimits {
            by,
            principal,
            limits,
        } => Message::SetLimits(raft::SetLimits {
            by: principal_text(by.as_ref()),
            limits: Some(limits_message(principal, limits)),
        }),
        Command::PutBundle { by, bundle } => Message::PutBundle(raft::PutBundle {
            by: principal_text(by.as_ref()),
            bundle: Some(trust::bundle_message(bundle)),
        }),
        Command::OfferKey(offer) => Message::OfferKey(raft::OfferKey {
            text: offer.to_text().to_owned(),
        }),
        Command::RotateKeys { by, node } => Message::RotateKeys(raft::RotateKeys {
            by: principal_text(by.as_ref()),
            node: *node,
        }),
        Command::RetireKey { by, kid } => Message::RetireKey(raft::RetireKey {
            by: principal_text(by.as_ref()),
            kid: trust::kid_bytes(*kid),
        }),
        Command::PutStatement { by, text } => Message::PutStatement(raft::PutStatement {
            by: principal_text(by.as_ref()),
            text: text.to_string(),
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
            stall_limit: open.stall_limit_ms.map(Ttl::from_ms).transpose()?,
            principal: principal(open.principal.as_deref())?,
            holder_key: holder_key(open.holder_key.as_ref())?,
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
            terms: terms(acquire.terms)?,
            wait: Wait::from_ms(acquire.wait_ms)?,
            reissue: acquire.reissue,
        },
        Message::AcquireMany(many) => Command::AcquireMany {
            scopes: scopes(&many.scopes)?,
            session: session_id(many.session)?,
            request_id: RequestId::new(many.request_id)?,
            terms: terms(many.terms)?,
        },
        Message::CancelWait(cancel) => Command::CancelWait {
            scope: Scope::parse(&cancel.scope)?,
            session: session_id(cancel.session)?,
            request_id: RequestId::new(cancel.request_id)?,
        },
        Message::EndWait(end) => Command::EndWait {
            session: session_key(end.session)?,
            request_id: RequestId::new(end.request_id)?,
        },
        Message::EndDelay(end) => Command::EndDelay {
            scope: Scope::parse(&end.scope)?,
            epoch: Epoch::new(end.epoch)?,
        },
        Message::Transfer(transfer) => Command::Transfer {
            scope: Scope::parse(&transfer.scope)?,
            session: session_id(transfer.session)?,
            epoch: Epoch::new(transfer.epoch)?,
            to: SessionHash(fixed("to", &transfer.to)?),
        },
        Message::WriteRecord(write) => Command::WriteRecord {
            scope: Scope::parse(&write.scope)?,
            session: session_id(write.session)?,
            epoch: Epoch::new(write.epoch)?,
            value: value(write.value.as_ref())?,
            expected_revision: write.expected_revision,
            intent: write.intent.map(|message| intent(&message)).transpose()?,
        },
        Message::Release(release) => Command::Release {
            scope: Scope::parse(&release.scope)?,
            session: session_id(release.session)?,
            epoch: Epoch::new(release.epoch)?,
        },
        Message::Revoke(revoke) => Command::Revoke {
            scope: Scope::parse(&revoke.scope)?,
            epoch: revoke.epoch.map(Epoch::new).transpose()?,
            by: principal(revoke.by.as_deref())?,
        },
        Message::GrantPermission(grant) => operate::grant_permission(grant)?,
        Message::RevokePermission(revoke) => operate::revoke_permission(&revoke)?,
        Message::AddToken(add) => operate::add_token(&add)?,
        Message::RemoveToken(remove) => operate::remove_token(&remove)?,
        Message::SetLimits(set) => operate::set_limits(set)?,
        Message::PutBundle(put) => trust::put_bundle(put)?,
        Message::OfferKey(offer) => trust::offer_key(&offer)?,
        Message::RotateKeys(rotate) => trust::rotate_keys(&rotate)?,
        Message::RetireKey(retire) => trust::retire_key(&retire)?,
        Message::PutStatement(put) => trust::put_statement(&put)?,
    })
}

fn scopes(names: &[String]) -> Result<Scopes, DecodeError> {
    let scopes = names.iter().map(|name| Scope::parse(name));
    Ok(Scopes::new(scopes.collect::<Result<_, _>>()?)?)
}
