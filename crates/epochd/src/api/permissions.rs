//! Who may do what, and what operators did: given, taken away and shown by operators.

use std::num::NonZeroU64;

use epoch_core::{Principal, Reason};
use epoch_machine::{Command, Limits, Outcome, State};
use epoch_proto::v1;

use super::access::{self, About};
use super::credential::Credential;
use super::lockout::{self, Change};
use super::{Api, Result, Server, forward, page, parse, unexpected};
use crate::clock;

impl Api {
    pub(super) async fn grant_permission(
        &self,
        request: v1::GrantPermissionRequest,
    ) -> Result<v1::GrantPermissionResponse> {
        let principal = parse::principal(&request.principal)?;
        let prefix = parse::permission_prefix(&request.prefix)?;
        let verbs = parse::verbs(&request.verbs)?;
        if let Server::Leader(leader) = self.server()? {
            return forward::grant_permission(leader, request).await;
        }
        let by = self.admit(access::GRANT_PERMISSION, About::Nothing)?;
        self.keep_an_operator(Change::Permission(&principal, &prefix, Some(verbs)))?;
        let command = Command::GrantPermission {
            by,
            principal,
            prefix,
            verbs,
        };
        match self.propose(command).await? {
            Outcome::PermissionGranted => Ok(v1::GrantPermissionResponse {}),
            other => Err(unexpected(&other)),
        }
    }

    pub(super) async fn revoke_permission(
        &self,
        request: v1::RevokePermissionRequest,
    ) -> Result<v1::RevokePermissionResponse> {
        let principal = parse::principal(&request.principal)?;
        let prefix = parse::permission_prefix(&request.prefix)?;
        if let Server::Leader(leader) = self.server()? {
            return forward::revoke_permission(leader, request).await;
        }
        let by = self.admit(access::REVOKE_PERMISSION, About::Nothing)?;
        self.keep_an_operator(Change::Permission(&principal, &prefix, None))?;
        let command = Command::RevokePermission {
            by,
            principal,
            prefix,
        };
        match self.propose(command).await? {
            Outcome::PermissionRevoked { revoked, .. } => {
                Ok(v1::RevokePermissionResponse { revoked })
            }
            other => Err(unexpected(&other)),
        }
    }

    pub(super) async fn add_token(
        &self,
        request: v1::AddTokenRequest,
    ) -> Result<v1::AddTokenResponse> {
        let principal = parse::principal(&request.principal)?;
        let label = parse::token_label(&request.label)?;
        let hash = parse::token_hash(&request.hash)?;
        let life_ms = parse::token_life_ms(request.ttl.as_ref())?;
        if let Server::Leader(leader) = self.server()? {
            return forward::add_token(leader, request).await;
        }
        let by = self.admit(access::ADD_TOKEN, About::Nothing)?;
        let expires_ms = life_ms.map(|ms| clock::wall_ms().saturating_add(ms));
        let expires_ms = expires_ms.and_then(NonZeroU64::new);
        let command = Command::AddToken {
            by,
            principal,
            label,
            hash,
            expires_ms,
        };
        match self.propose(command).await? {
            Outcome::TokenAdded { .. } => Ok(v1::AddTokenResponse {}),
            other => Err(unexpected(&other)),
        }
    }

    pub(super) async fn remove_token(
        &self,
        request: v1::RemoveTokenRequest,
    ) -> Result<v1::RemoveTokenResponse> {
        let principal = parse::principal(&request.principal)?;
        let label = parse::token_label(&request.label)?;
        if let Server::Leader(leader) = self.server()? {
            return forward::remove_token(leader, request).await;
        }
        let by = self.admit(access::REMOVE_TOKEN, About::Nothing)?;
        self.keep_an_operator(Change::Token(&principal, &label))?;
        let command = Command::RemoveToken {
            by,
            principal,
            label,
        };
        match self.propose(command).await? {
            Outcome::TokenRemoved { removed } => Ok(v1::RemoveTokenResponse { removed }),
            other => Err(unexpected(&other)),
        }
    }

    fn keep_an_operator(&self, change: Change<'_>) -> Result<()> {
        lockout::prevent(&self.node.state.read(), change)
    }

    pub(super) async fn set_limits(
        &self,
        request: v1::SetLimitsRequest,
    ) -> Result<v1::SetLimitsResponse> {
        let principal = parse::principal(&request.principal)?;
        let limits = limits_of(request.limits.as_ref());
        if let Server::Leader(leader) = self.server()? {
            return forward::set_limits(leader, request).await;
        }
        let by = self.admit(access::SET_LIMITS, About::Nothing)?;
        let command = Command::SetLimits {
            by,
            principal,
            limits,
        };
        match self.propose(command).await? {
            Outcome::LimitsSet => Ok(v1::SetLimitsResponse {}),
            other => Err(unexpected(&other)),
        }
    }

    pub(super) async fn list_permissions(
        &self,
        request: v1::ListPermissionsRequest,
    ) -> Result<v1::ListPermissionsResponse> {
        let limit = parse::limit(request.limit)?;
        let after = request.page.as_deref().map(page::principal).transpose()?;
        if let Server::Leader(leader) = self.server()? {
            return forward::list_permissions(leader, request).await;
        }
        self.admit(access::LIST_PERMISSIONS, About::Nothing)?;
        self.node.reads.confirm().await?;
        let state = self.node.state.read();
        let mut principals = state.principals(after.as_ref(), limit + 1);
        let more = principals.len() > limit;
        principals.truncate(limit);
        let last = principals.last().filter(|_| more);
        Ok(v1::ListPermissionsResponse {
            next_page: last.map(page::of_principal),
            principals: principals
                .iter()
                .map(|principal| principal_message(&state, principal))
                .collect(),
        })
    }

    /// Answered by the node asked: denials are its own, and actions are the same on all.
    pub(super) async fn audit(&self, request: v1::AuditRequest) -> Result<v1::AuditResponse> {
        let limit = parse::limit(request.limit)?;
        let before = request.page.as_deref().map(page::number).transpose()?;
        self.admit_here(access::AUDIT, About::Nothing).await?;
        let (records, more): (Vec<v1::AuditRecord>, bool) = if request.denials {
            let (denials, more) = self.node.denials.latest(before, limit);
            let records = denials.into_iter().map(|denial| v1::AuditRecord {
                number: denial.number,
                time_ms: denial.time_ms,
                principal: denial.principal.map(|principal| principal.to_string()),
                action: denial.call.to_owned(),
                target: denial.target,
                result: denial.reason.to_string(),
            });
            (records.collect(), more)
        } else {
            let state = self.node.state.read();
            let page = state.audit(before, limit);
            let more = page.next.is_some();
            let records = page.records.into_iter().map(|record| v1::AuditRecord {
                number: record.number,
                time_ms: record.time_ms,
                principal: record.principal.as_ref().map(ToString::to_string),
                action: record.action.as_str().to_owned(),
                target: record.target.as_str().to_owned(),
                result: record
                    .refused
                    .map_or_else(|| "ok".to_owned(), |reason| reason.to_string()),
            });
            (records.collect(), more)
        };
        let last = records.last().filter(|_| more);
        Ok(v1::AuditResponse {
            next_page: last.map(|record| page::of_number(record.number)),
            records,
        })
    }

    /// As [`admit`](Self::admit), for calls that any node answers: one that is behind may not know
    /// yet what the leader has told the caller, so it is given a moment.
    pub(super) async fn admit_here(
        &self,
        call: access::Call,
        about: About<'_>,
    ) -> Result<Option<Principal>> {
        const TRIES: u32 = 6;
        const BETWEEN: std::time::Duration = std::time::Duration::from_millis(50);
        for _ in 1..TRIES {
            match self.admit(call, about) {
                Err(failure)
                    if failure.reason == Reason::Unauthenticated
                        && matches!(self.credential, Credential::Token(_))
                        && self.node.serving().is_none() =>
                {
                    tokio::time::sleep(BETWEEN).await;
                }
                judged => return judged,
            }
        }
        self.admit(call, about)
    }
}

fn limits_of(limits: Option<&v1::Limits>) -> Limits {
    let limits = limits.copied().unwrap_or_default();
    Limits {
        sessions: limits.sessions,
        grants: limits.grants,
        waits: limits.waits,
        requests_per_second: limits.requests_per_second,
    }
}

fn principal_message(state: &State, principal: &Principal) -> v1::Principal {
    let limits = state.limits(principal);
    v1::Principal {
        principal: principal.to_string(),
        permissions: state
            .permissions_of(principal)
            .map(|permission| v1::Permission {
                prefix: permission.prefix.to_string(),
                verbs: permission
                    .verbs
                    .iter()
                    .map(|verb| verb.as_str().to_owned())
                    .collect(),
            })
            .collect(),
        tokens: state
            .tokens(principal)
            .map(|token| v1::Token {
                label: token.label.to_string(),
                created_ms: token.created_ms,
                expires_ms: token.expires_ms.map(NonZeroU64::get),
            })
            .collect(),
        limits: (!limits.are_none()).then_some(v1::Limits {
            sessions: limits.sessions,
            grants: limits.grants,
            waits: limits.waits,
            requests_per_second: limits.requests_per_second,
        }),
    }
}
