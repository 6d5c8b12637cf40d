//! Rare rows, and the parts that they share with commands.

use std::num::NonZeroU64;

use bytes::Bytes;
use epoch_core::{Principal, Reason};
use epoch_machine::{
    AdminRow, AuditAction, AuditRecord, AuditTarget, HolderKey, Limits, Permission, Prefix, Token,
    TokenHash, TokenLabel, Verbs,
};
use epoch_proto::raft;
use raft::snapshot_row::Row;

use super::parse::fixed;
use super::{DecodeError, trust};

pub(super) fn admin_message(row: &AdminRow) -> Row {
    match row {
        AdminRow::Permission(permission) => {
            let Permission {
                principal,
                prefix,
                verbs,
            } = permission;
            Row::Permission(permission_message(principal, prefix, *verbs))
        }
        AdminRow::Token(token) => Row::Token(token_message(token)),
        AdminRow::Limits { principal, limits } => Row::Limits(limits_message(principal, limits)),
        AdminRow::Audit(record) => Row::Audit(audit_message(record)),
        AdminRow::Bundle(bundle) => Row::Bundle(trust::bundle_message(bundle)),
        AdminRow::Offer(offer) => Row::Offer(trust::offer_message(offer)),
        AdminRow::Rotation(node) => Row::Rotation(raft::RotationRow { node: *node }),
        AdminRow::Retired(retired) => Row::Retired(trust::retired_message(retired)),
        AdminRow::Statement(kept) => Row::Statement(trust::statement_message(kept)),
    }
}

pub(super) fn permission_message(
    principal: &Principal,
    prefix: &Prefix,
    verbs: Verbs,
) -> raft::PermissionRow {
    raft::PermissionRow {
        principal: principal.as_str().to_owned(),
        prefix: prefix.as_str().to_owned(),
        verbs: verbs.bits(),
    }
}

pub(super) fn permission(row: &raft::PermissionRow) -> Result<Permission, DecodeError> {
    Ok(Permission {
        principal: Principal::parse(&row.principal)?,
        prefix: Prefix::parse(&row.prefix)?,
        verbs: Verbs::from_bits(row.verbs)?,
    })
}

fn token_message(token: &Token) -> raft::TokenRow {
    let Token {
        hash,
        principal,
        label,
        created_ms,
        expires_ms,
    } = token;
    raft::TokenRow {
        hash: Bytes::copy_from_slice(&hash.0),
        principal: principal.as_str().to_owned(),
        label: label.as_str().to_owned(),
        created_ms: *created_ms,
        expires_ms: expires_ms.map_or(0, NonZeroU64::get),
    }
}

pub(super) fn token(row: &raft::TokenRow) -> Result<AdminRow, DecodeError> {
    Ok(AdminRow::Token(Token {
        hash: token_hash(&row.hash)?,
        principal: Principal::parse(&row.principal)?,
        label: TokenLabel::parse(&row.label)?,
        created_ms: row.created_ms,
        expires_ms: NonZeroU64::new(row.expires_ms),
    }))
}

pub(super) fn token_hash(bytes: &[u8]) -> Result<TokenHash, DecodeError> {
    Ok(TokenHash(fixed("token hash", bytes)?))
}

pub(super) fn limits_message(principal: &Principal, limits: &Limits) -> raft::LimitsRow {
    let Limits {
        sessions,
        grants,
        waits,
        requests_per_second,
    } = *limits;
    raft::LimitsRow {
        principal: principal.as_str().to_owned(),
        sessions,
        grants,
        waits,
        requests_per_second,
    }
}

/// None of them may be there.
pub(super) fn limits(row: &raft::LimitsRow) -> Result<(Principal, Limits), DecodeError> {
    let limits = Limits {
        sessions: row.sessions,
        grants: row.grants,
        waits: row.waits,
        requests_per_second: row.requests_per_second,
    };
    Ok((Principal::parse(&row.principal)?, limits))
}

fn audit_message(record: &AuditRecord) -> raft::AuditRow {
    let AuditRecord {
        number,
        time_ms,
        index,
        principal,
        action,
        target,
        refused,
    } = record;
    raft::AuditRow {
        number: *number,
        time_ms: *time_ms,
        index: *index,
        principal: principal_text(principal.as_ref()),
        action: action.number(),
        target: target.as_str().to_owned(),
        refused: refused.map_or("", Reason::as_str).to_owned(),
    }
}

pub(super) fn audit(row: &raft::AuditRow) -> Result<AdminRow, DecodeError> {
    let action = AuditAction::from_number(row.action);
    let refused = match &*row.refused {
        "" => None,
        name => Some(Reason::parse(name).ok_or(DecodeError::Reason)?),
    };
    Ok(AdminRow::Audit(AuditRecord {
        number: row.number,
        time_ms: row.time_ms,
        index: row.index,
        principal: principal(row.principal.as_deref())?,
        action: action.ok_or(DecodeError::Unknown {
            what: "the action of an audit record",
            found: row.action,
        })?,
        target: AuditTarget::new(&row.target)?,
        refused,
    }))
}

pub(super) fn principal(text: Option<&str>) -> Result<Option<Principal>, DecodeError> {
    Ok(text.map(Principal::parse).transpose()?)
}

pub(super) fn principal_text(principal: Option<&Principal>) -> Option<String> {
    principal.map(|principal| principal.as_str().to_owned())
}

pub(super) fn holder_key(bytes: Option<&Bytes>) -> Result<Option<HolderKey>, DecodeError> {
    bytes.map(|bytes| fixed("holder_key", bytes)).transpose()
}

pub(super) fn holder_key_bytes(key: Option<&HolderKey>) -> Option<Bytes> {
    key.map(|key| Bytes::copy_from_slice(key))
}
