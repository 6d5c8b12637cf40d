//! What the rare rows say: who may do what, and what operators did.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use epoch_core::{Principal, Scope};

use super::{
    AUDIT_KEPT, BUNDLES_MAX, LIMITED_MAX, OFFERS_MAX, PERMISSIONS_MAX, PERMISSIONS_OF_ONE_MAX,
    RETIRED_KEPT, State, TOKENS_MAX, TOKENS_OF_ONE_MAX,
};
use crate::admin::{AdminKey, AdminRow, Permission};
use crate::audit::AuditRecord;
use crate::command::SessionKey;
use crate::limits::{Limits, Usage};
use crate::permission::{Prefix, Verb};
use crate::token::{Token, TokenHash, TokenLabel};

/// One page of the permissions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermissionPage {
    /// By principal, then by prefix.
    pub permissions: Vec<Permission>,
    /// Continue after this one; absent at the end.
    pub next: Option<(Principal, Prefix)>,
}

/// One page of the audit records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditPage {
    /// Newest first.
    pub records: Vec<AuditRecord>,
    /// Continue before this one; absent at the end.
    pub next: Option<u64>,
}

impl State {
    /// Whether everything is allowed to everyone: as long as there is no permission at all.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.rows.permissions() == 0
    }

    /// Whether `principal` may do `verb` in a scope. Nobody in particular (`None`) may do
    /// everything while the cluster is open, and nothing after.
    #[must_use]
    pub fn allows(&self, principal: Option<&Principal>, verb: Verb, scope: &Scope) -> bool {
        self.allows_prefix(principal, verb, scope.as_str())
    }

    /// Whether `principal` may do `verb` in every scope that begins with `prefix`, byte by byte.
    #[must_use]
    pub fn allows_prefix(&self, principal: Option<&Principal>, verb: Verb, prefix: &str) -> bool {
        self.is_open() || principal.is_some_and(|who| self.may(who, verb, prefix))
    }

    /// Whether `principal` may do `verb` anywhere at all.
    #[must_use]
    pub fn allows_somewhere(&self, principal: Option<&Principal>, verb: Verb) -> bool {
        let somewhere = |who| self.permissions_of(who).any(|its| counts(its, verb));
        self.is_open() || principal.is_some_and(somewhere)
    }

    /// Whether `principal` may run the cluster.
    #[must_use]
    pub fn may_operate(&self, principal: Option<&Principal>) -> bool {
        self.allows_somewhere(principal, Verb::Operate)
    }

    /// Whether a session may acquire a scope.
    pub(crate) fn session_may_acquire(&self, key: SessionKey, scope: &str) -> bool {
        let session = self.rows.sessions().get(&key);
        session.is_some_and(|session| {
            self.allows_prefix(session.principal.as_ref(), Verb::Acquire, scope)
        })
    }

    fn may(&self, principal: &Principal, verb: Verb, text: &str) -> bool {
        self.permissions_of(principal)
            .any(|its| counts(its, verb) && its.prefix.begins(text))
    }

    /// The permissions of a principal, by prefix.
    pub fn permissions_of(&self, principal: &Principal) -> impl Iterator<Item = &Permission> {
        let first = AdminKey::Permission(principal.clone(), Prefix::default());
        let rows = self.rows.admin().range(first..);
        let permissions = rows.map_while(|(_, row)| row.permission());
        permissions.take_while(move |its| its.principal == *principal)
    }

    /// All permissions after `after`, `limit` at most (0 counts as 1).
    #[must_use]
    pub fn permissions(
        &self,
        after: Option<(&Principal, &Prefix)>,
        limit: usize,
    ) -> PermissionPage {
        let mut permissions: Vec<Permission> = self
            .all_permissions(after)
            .take(limit.max(1).saturating_add(1))
            .cloned()
            .collect();
        let next = is_more(&mut permissions, limit)
            .map(|last| (last.principal.clone(), last.prefix.clone()));
        PermissionPage { permissions, next }
    }

    fn all_permissions(
        &self,
        after: Option<(&Principal, &Prefix)>,
    ) -> impl Iterator<Item = &Permission> {
        // They come first.
        let after = after.map_or(Bound::Unbounded, |(principal, prefix)| {
            Bound::Excluded(AdminKey::Permission(principal.clone(), prefix.clone()))
        });
        let rows = self.rows.admin().range((after, Bound::Unbounded));
        rows.map_while(|(_, row)| row.permission())
    }

    /// Whether somebody may operate by another permission than this principal's.
    pub(crate) fn has_operator_but(&self, principal: Option<&Principal>) -> bool {
        self.all_permissions(None)
            .any(|its| counts(its, Verb::Operate) && Some(&its.principal) != principal)
    }

    /// The tokens of a principal, by label.
    pub fn tokens(&self, principal: &Principal) -> impl Iterator<Item = &Token> {
        let from = self
            .token_labels
            .range((principal.clone(), Arc::default())..);
        let own = from.take_while(move |((owner, _), _)| owner == principal);
        own.filter_map(|(_, hash)| self.token(hash))
    }

    pub(crate) fn token(&self, hash: &TokenHash) -> Option<&Token> {
        self.rows.admin().get(&AdminKey::Token(*hash))?.token()
    }

    pub(crate) fn labelled(&self, principal: &Principal, label: &TokenLabel) -> Option<&Token> {
        let labelled = (principal.clone(), label.shared());
        self.token(self.token_labels.get(&labelled)?)
    }

    /// Principals with permissions, tokens or limits, after `after` in byte order, `limit` at most.
    #[must_use]
    pub fn principals(&self, after: Option<&Principal>, limit: usize) -> Vec<Principal> {
        let permitted = self.all_permissions(None).map(|its| &its.principal);
        let owners = self.token_labels.keys().map(|(owner, _)| owner);
        let rows = self.rows.admin().values();
        let limited = rows.filter_map(|row| match row {
            AdminRow::Limits { principal, .. } => Some(principal),
            AdminRow::Permission(_)
            | AdminRow::Token(_)
            | AdminRow::Audit(_)
            | AdminRow::Bundle(_)
            | AdminRow::Offer(_)
            | AdminRow::Rotation(_)
            | AdminRow::Retired(_)
            | AdminRow::Statement(_) => None,
        });
        let all: BTreeSet<&Principal> = permitted.chain(owners).chain(limited).collect();
        let later = all
            .into_iter()
            .filter(|who| after.is_none_or(|after| *who > after));
        later.take(limit).cloned().collect()
    }

    /// Whose token this is the hash of, if it is good at a time, in milliseconds since 1970.
    #[must_use]
    pub fn principal_of_token(&self, hash: &TokenHash, now_ms: u64) -> Option<&Principal> {
        let token = self.token(hash)?;
        (!token.has_expired(now_ms)).then_some(&token.principal)
    }

    /// The limits of a principal.
    #[must_use]
    pub fn limits(&self, principal: &Principal) -> Limits {
        let row = self.rows.admin().get(&AdminKey::Limits(principal.clone()));
        row.and_then(AdminRow::limits).unwrap_or_default()
    }

    /// What a principal has.
    #[must_use]
    pub fn usage(&self, principal: &Principal) -> Usage {
        let usage = self.rows.usage().get(principal);
        usage.copied().unwrap_or_default()
    }

    /// Audit records, newest first, those with a number below `before`, `limit` at most (0 counts as
    /// 1). The newest 1,024 are kept.
    #[must_use]
    pub fn audit(&self, before: Option<u64>, limit: usize) -> AuditPage {
        let before = AdminKey::Audit(before.unwrap_or(u64::MAX));
        let rows = self.rows.admin().range(AdminKey::Audit(0)..before);
        let mut records: Vec<AuditRecord> = rows
            .rev()
            .filter_map(|(_, row)| row.audit())
            .take(limit.max(1).saturating_add(1))
            .cloned()
            .collect();
        let next = is_more(&mut records, limit).map(|last| last.number);
        AuditPage { records, next }
    }

    /// The numbers of the oldest and of the newest audit record.
    pub(crate) fn audit_numbers(&self) -> Option<(u64, u64)> {
        let all = AdminKey::Audit(0)..=AdminKey::Audit(u64::MAX);
        let mut rows = self.rows.admin().range(all);
        let oldest = rows.next()?.1.audit()?.number;
        let newest = rows.next_back().and_then(|(_, row)| row.audit());
        Some((oldest, newest.map_or(oldest, |newest| newest.number)))
    }

    /// False when its key, or the token's label, was there already.
    pub(crate) fn add_admin(&mut self, row: AdminRow) -> bool {
        let new_label = row.token().is_none_or(|token| {
            let labelled = (token.principal.clone(), token.label.shared());
            self.token_labels.insert(labelled, token.hash).is_none()
        });
        self.rows.put_admin(row).is_none() && new_label
    }

    pub(crate) fn remove_token(&mut self, token: &Token) {
        let labelled = (token.principal.clone(), token.label.shared());
        self.token_labels.remove(&labelled);
        self.rows.remove_admin(&AdminKey::Token(token.hash));
    }

    /// How many principals have limits.
    pub(crate) fn limited(&self) -> usize {
        let after = Bound::Excluded(AdminKey::Token(TokenHash([u8::MAX; 32])));
        let rows = self.rows.admin().range((after, Bound::Unbounded));
        rows.take_while(|(_, row)| row.limits().is_some()).count()
    }

    /// Of which rare rows there are more than are kept.
    pub(crate) fn too_many(&self) -> Option<&'static str> {
        let audit = self.audit_numbers();
        let audits = audit.map_or(0, |(oldest, newest)| newest.saturating_sub(oldest));
        let principals = self.all_permissions(None).map(|its| &its.principal);
        let owners = self.token_labels.keys().map(|(owner, _)| owner);
        let too_many = [
            (self.rows.permissions() > PERMISSIONS_MAX, "permissions"),
            (
                longest_run(principals) > PERMISSIONS_OF_ONE_MAX,
                "permissions of one principal",
            ),
            (self.token_labels.len() > TOKENS_MAX, "tokens"),
            (
                longest_run(owners) > TOKENS_OF_ONE_MAX,
                "tokens of one principal",
            ),
            (self.limited() > LIMITED_MAX, "limits"),
            (audits >= AUDIT_KEPT, "audit records"),
            (self.bundles_after(0).count() > BUNDLES_MAX, "trust bundles"),
            (self.offers().count() > OFFERS_MAX, "offered keys"),
            (self.retired().count() > RETIRED_KEPT, "retired keys"),
        ];
        let found = too_many.into_iter().find(|(is_so, _)| *is_so);
        found.map(|(_, what)| what)
    }
}

fn longest_run<'a>(principals: impl Iterator<Item = &'a Principal>) -> usize {
    let (mut last, mut run, mut longest) = (None, 0_usize, 0);
    for principal in principals {
        run = if last == Some(principal) {
            run.saturating_add(1)
        } else {
            1
        };
        last = Some(principal);
        longest = run.max(longest);
    }
    longest
}

/// Whether a permission is for a verb: to operate, only for all scopes.
fn counts(permission: &Permission, verb: Verb) -> bool {
    permission.verbs.has(verb) && (verb != Verb::Operate || permission.prefix.is_everything())
}

/// Takes off what is more than a page holds; its last item, if there was more.
fn is_more<T>(items: &mut Vec<T>, limit: usize) -> Option<&T> {
    let more = items.len() > limit.max(1);
    items.truncate(limit.max(1));
    items.last().filter(|_| more)
}
