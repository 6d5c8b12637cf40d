//! Commands of operators.

use std::num::NonZeroU64;

use epoch_core::Principal;
use epoch_machine::{Command, Permission, Prefix, TokenLabel};
use epoch_proto::raft;

use super::DecodeError;
use super::admin;
use super::parse::present;

pub(super) fn grant_permission(grant: raft::GrantPermission) -> Result<Command, DecodeError> {
    let row = present("permission", grant.permission)?;
    let Permission {
        principal,
        prefix,
        verbs,
    } = admin::permission(&row)?;
    Ok(Command::GrantPermission {
        by: admin::principal(grant.by.as_deref())?,
        principal,
        prefix,
        verbs,
    })
}

pub(super) fn revoke_permission(revoke: &raft::RevokePermission) -> Result<Command, DecodeError> {
    Ok(Command::RevokePermission {
        by: admin::principal(revoke.by.as_deref())?,
        principal: Principal::parse(&revoke.principal)?,
        prefix: Prefix::parse(&revoke.prefix)?,
    })
}

pub(super) fn add_token(add: &raft::AddToken) -> Result<Command, DecodeError> {
    Ok(Command::AddToken {
        by: admin::principal(add.by.as_deref())?,
        principal: Principal::parse(&add.principal)?,
        label: TokenLabel::parse(&add.label)?,
        hash: admin::token_hash(&add.hash)?,
        expires_ms: NonZeroU64::new(add.expires_ms),
    })
}

pub(super) fn remove_token(remove: &raft::RemoveToken) -> Result<Command, DecodeError> {
    Ok(Command::RemoveToken {
        by: admin::principal(remove.by.as_deref())?,
        principal: Principal::parse(&remove.principal)?,
        label: TokenLabel::parse(&remove.label)?,
    })
}

pub(super) fn set_limits(set: raft::SetLimits) -> Result<Command, DecodeError> {
    let (principal, limits) = admin::limits(&present("limits", set.limits)?)?;
    Ok(Command::SetLimits {
        by: admin::principal(set.by.as_deref())?,
        principal,
        limits,
    })
}
