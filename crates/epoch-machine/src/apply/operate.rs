//! Permissions, tokens and limits. Each of these, and each Revoke, leaves an audit record, also
//! when it is refused.

use std::num::NonZeroU64;

use epoch_core::{Principal, Scope};

use super::Applying;
use crate::admin::{AdminKey, AdminRow, Permission};
use crate::audit::{AuditAction, AuditRecord, AuditTarget};
use crate::limits::Limits;
use crate::outcome::{Outcome, Refusal};
use crate::permission::{Prefix, Verb, Verbs};
use crate::state::{
    AUDIT_KEPT, LIMITED_MAX, PERMISSIONS_MAX, PERMISSIONS_OF_ONE_MAX, TOKENS_MAX, TOKENS_OF_ONE_MAX,
};
use crate::token::{Token, TokenHash, TokenLabel};

impl Applying<'_> {
    pub(super) fn grant_permission(
        &mut self,
        by: Option<&Principal>,
        permission: Permission,
    ) -> Result<Outcome, Refusal> {
        let Permission {
            principal,
            prefix,
            verbs,
        } = &permission;
        let target = format!("{verbs} for {principal} on {prefix:?}");
        let came = self.grant_permission_unaudited(by, permission);
        self.audited(by, AuditAction::PermissionGrant, &target, came)
    }

    fn grant_permission_unaudited(
        &mut self,
        by: Option<&Principal>,
        permission: Permission,
    ) -> Result<Outcome, Refusal> {
        self.may_operate(by)?;
        let Permission {
            principal,
            prefix,
            verbs,
        } = &permission;
        let operates = verbs.has(Verb::Operate) && prefix.is_everything();
        let first = self.state.is_open();
        if first && !operates {
            return Err(Refusal::FirstOperator);
        }
        let key = AdminKey::Permission(principal.clone(), prefix.clone());
        let had = self.verbs_of(&key);
        if had.is_none() && !self.has_room_for_permission(principal) {
            return Err(Refusal::PermissionLimit);
        }
        if !operates {
            self.keep_an_operator(principal, prefix, had)?;
        }
        let principal = principal.clone();
        self.state.add_admin(AdminRow::Permission(permission));
        // The first one ends what everyone was allowed.
        self.end_waits_not_allowed((!first).then_some(&principal));
        Ok(Outcome::PermissionGranted)
    }

    pub(super) fn revoke_permission(
        &mut self,
        by: Option<&Principal>,
        principal: &Principal,
        prefix: &Prefix,
    ) -> Result<Outcome, Refusal> {
        let target = format!("{principal} on {prefix:?}");
        let came = self.revoke_permission_unaudited(by, principal, prefix);
        self.audited(by, AuditAction::PermissionRevoke, &target, came)
    }

    fn revoke_permission_unaudited(
        &mut self,
        by: Option<&Principal>,
        principal: &Principal,
        prefix: &Prefix,
    ) -> Result<Outcome, Refusal> {
        self.may_operate(by)?;
        let key = AdminKey::Permission(principal.clone(), prefix.clone());
        let had = self.verbs_of(&key);
        self.keep_an_operator(principal, prefix, had)?;
        self.state.rows.remove_admin(&key);
        self.end_waits_not_allowed(Some(principal));
        Ok(Outcome::PermissionRevoked {
            revoked: had.is_some(),
        })
    }

    pub(super) fn add_token(
        &mut self,
        by: Option<&Principal>,
        principal: &Principal,
        label: &TokenLabel,
        hash: TokenHash,
        expires_ms: Option<NonZeroU64>,
    ) -> Result<Outcome, Refusal> {
        let token = Token {
            hash,
            principal: principal.clone(),
            label: label.clone(),
            created_ms: self.state.now_ms,
            expires_ms,
        };
        let came = self.add_token_unaudited(by, token);
        let target = format!("{label} of {principal}");
        self.audited(by, AuditAction::TokenAdd, &target, came)
    }

    fn add_token_unaudited(
        &mut self,
        by: Option<&Principal>,
        token: Token,
    ) -> Result<Outcome, Refusal> {
        self.may_operate(by)?;
        let known = self.state.labelled(&token.principal, &token.label);
        if let Some(known) = known {
            // A retry works its expiry out anew: the first one stays.
            return if known.hash == token.hash {
                Ok(Outcome::TokenAdded { new: false })
            } else {
                Err(Refusal::TokenReused)
            };
        }
        if self.state.token(&token.hash).is_some() {
            return Err(Refusal::TokenReused);
        }
        if self.state.token_labels.len() >= TOKENS_MAX
            || self.state.tokens(&token.principal).count() >= TOKENS_OF_ONE_MAX
        {
            return Err(Refusal::TokenLimit);
        }
        self.state.add_admin(AdminRow::Token(token));
        Ok(Outcome::TokenAdded { new: true })
    }

    pub(super) fn remove_token(
        &mut self,
        by: Option<&Principal>,
        principal: &Principal,
        label: &TokenLabel,
    ) -> Result<Outcome, Refusal> {
        let came = self.may_operate(by).map(|()| {
            let token = self.state.labelled(principal, label).cloned();
            if let Some(token) = &token {
                self.state.remove_token(token);
            }
            Outcome::TokenRemoved {
                removed: token.is_some(),
            }
        });
        let target = format!("{label} of {principal}");
        self.audited(by, AuditAction::TokenRemove, &target, came)
    }

    pub(super) fn set_limits(
        &mut self,
        by: Option<&Principal>,
        principal: &Principal,
        limits: Limits,
    ) -> Result<Outcome, Refusal> {
        let came = self.set_limits_unaudited(by, principal, limits);
        let shown = |limit: Option<u32>| limit.map_or("-".to_owned(), |limit| limit.to_string());
        let target = format!(
            "sessions {}, grants {}, waits {}, requests/s {} for {principal}",
            shown(limits.sessions),
            shown(limits.grants),
            shown(limits.waits),
            shown(limits.requests_per_second),
        );
        self.audited(by, AuditAction::LimitsSet, &target, came)
    }

    fn set_limits_unaudited(
        &mut self,
        by: Option<&Principal>,
        principal: &Principal,
        limits: Limits,
    ) -> Result<Outcome, Refusal> {
        self.may_operate(by)?;
        let had = self.state.limits(principal);
        if limits.are_none() {
            let key = AdminKey::Limits(principal.clone());
            self.state.rows.remove_admin(&key);
            return Ok(Outcome::LimitsSet);
        }
        if had.are_none() && self.state.limited() >= LIMITED_MAX {
            return Err(Refusal::LimitsLimit);
        }
        self.state.add_admin(AdminRow::Limits {
            principal: principal.clone(),
            limits,
        });
        Ok(Outcome::LimitsSet)
    }

    pub(super) fn may_revoke(&self, by: Option<&Principal>, scope: &Scope) -> Result<(), Refusal> {
        if self.state.allows(by, Verb::Revoke, scope) {
            Ok(())
        } else {
            Err(Refusal::PermissionDenied)
        }
    }

    pub(super) fn may_operate(&self, by: Option<&Principal>) -> Result<(), Refusal> {
        if self.state.may_operate(by) {
            Ok(())
        } else {
            Err(Refusal::PermissionDenied)
        }
    }

    fn verbs_of(&self, key: &AdminKey) -> Option<Verbs> {
        let row = self.state.rows.admin().get(key)?;
        Some(row.permission()?.verbs)
    }

    fn has_room_for_permission(&self, principal: &Principal) -> bool {
        self.state.rows.permissions() < PERMISSIONS_MAX
            && self.state.permissions_of(principal).count() < PERMISSIONS_OF_ONE_MAX
    }

    /// Refuses to take the last permission to operate away: nobody could give one again.
    fn keep_an_operator(
        &self,
        principal: &Principal,
        prefix: &Prefix,
        had: Option<Verbs>,
    ) -> Result<(), Refusal> {
        let operated = had.is_some_and(|verbs| verbs.has(Verb::Operate)) && prefix.is_everything();
        if operated && !self.state.has_operator_but(Some(principal)) {
            return Err(Refusal::LastOperator);
        }
        Ok(())
    }

    /// Leaves a record of what an operator did, and hands on what came of it.
    pub(super) fn audited(
        &mut self,
        by: Option<&Principal>,
        action: AuditAction,
        target: &str,
        came: Result<Outcome, Refusal>,
    ) -> Result<Outcome, Refusal> {
        let kept = self.state.audit_numbers();
        let number = kept.map_or(1, |(_, newest)| newest.saturating_add(1));
        if let Some((oldest, _)) = kept
            && number.saturating_sub(oldest) >= AUDIT_KEPT
        {
            self.state.rows.remove_admin(&AdminKey::Audit(oldest));
        }
        self.state.add_admin(AdminRow::Audit(AuditRecord {
            number,
            time_ms: self.state.now_ms,
            index: self.index,
            principal: by.cloned(),
            action,
            target: AuditTarget::cut(target),
            refused: came.as_ref().err().map(Refusal::reason),
        }));
        came
    }
}
