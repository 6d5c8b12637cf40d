//! What each call needs: one table of them all, and the one place that judges who may.

use std::fmt;

use epoch_core::{Holder, Principal, Reason, Scope};
use epoch_machine::{State, Verb};

use super::credential::Credential;
use super::failure::Failure;
use super::{Api, Result};
use crate::clock;

/// What a call needs of its caller, once the cluster has permissions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Nothing, not even a name.
    Nothing,
    /// A name that has any permission.
    Permission,
    /// A session of one's own.
    Session,
    /// The verb, for the scope or prefix that the call names; `operate` for the whole cluster.
    Verb(Verb),
}

/// A call, as gRPC and JSON both know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Call {
    /// `Service.Method`, or the path of what no proto describes.
    pub(crate) name: &'static str,
    pub(crate) needs: Needs,
}

macro_rules! calls {
    ($($id:ident = $name:literal, $needs:expr;)*) => {
        $(pub(crate) const $id: Call = Call { name: $name, needs: $needs };)*
        /// Every one of them.
        #[cfg(test)]
        pub(crate) const ALL: &[Call] = &[$($id,)*];
    };
}

calls! {
    // For a holder of the principal's own.
    OPEN = "SessionService.Open", Needs::Verb(Verb::Acquire);
    KEEP_ALIVE = "SessionService.KeepAlive", Needs::Session;
    CLOSE = "SessionService.Close", Needs::Session;
    GET_SESSION = "SessionService.Get", Needs::Session;
    // Shows the caller's own; an operator all.
    LIST_SESSIONS = "SessionService.List", Needs::Permission;
    ACQUIRE = "EpochService.Acquire", Needs::Verb(Verb::Acquire);
    ACQUIRE_MANY = "EpochService.AcquireMany", Needs::Verb(Verb::Acquire);
    CANCEL_WAIT = "EpochService.CancelWait", Needs::Session;
    RELEASE = "EpochService.Release", Needs::Session;
    TRANSFER = "EpochService.Transfer", Needs::Session;
    REVOKE = "EpochService.Revoke", Needs::Verb(Verb::Revoke);
    CERTIFY = "EpochService.Certify", Needs::Verb(Verb::Acquire);
    GET = "EpochService.Get", Needs::Verb(Verb::Read);
    LIST = "EpochService.List", Needs::Verb(Verb::Read);
    WATCH = "EpochService.Watch", Needs::Verb(Verb::Read);
    PUT_RECORD = "RecordService.Put", Needs::Verb(Verb::Acquire);
    GET_RECORD = "RecordService.Get", Needs::Verb(Verb::Read);
    DELETE_RECORD = "RecordService.Delete", Needs::Verb(Verb::Acquire);
    BUNDLE = "TrustService.Bundle", Needs::Nothing;
    KEYS = "TrustService.Keys", Needs::Permission;
    ROTATE = "TrustService.Rotate", Needs::Verb(Verb::Operate);
    RETIRE = "TrustService.Retire", Needs::Verb(Verb::Operate);
    PUT_BUNDLE = "TrustService.PutBundle", Needs::Verb(Verb::Operate);
    PUT_STATEMENT = "TrustService.PutStatement", Needs::Verb(Verb::Operate);
    GRANT_PERMISSION = "PermissionService.Grant", Needs::Verb(Verb::Operate);
    REVOKE_PERMISSION = "PermissionService.Revoke", Needs::Verb(Verb::Operate);
    LIST_PERMISSIONS = "PermissionService.List", Needs::Verb(Verb::Operate);
    ADD_TOKEN = "PermissionService.AddToken", Needs::Verb(Verb::Operate);
    REMOVE_TOKEN = "PermissionService.RemoveToken", Needs::Verb(Verb::Operate);
    SET_LIMITS = "PermissionService.SetLimits", Needs::Verb(Verb::Operate);
    STATUS = "ClusterService.Status", Needs::Permission;
    AUDIT = "ClusterService.Audit", Needs::Verb(Verb::Operate);
    METRICS = "/metrics", Needs::Verb(Verb::Operate);
}

/// What a call is about.
#[derive(Debug, Clone, Copy)]
pub(super) enum About<'a> {
    /// The cluster, or the caller's own session.
    Nothing,
    Scope(&'a Scope),
    Scopes(&'a [&'a Scope]),
    Prefix(&'a str),
    Holder(&'a Holder),
}

impl fmt::Display for About<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => Ok(()),
            Self::Scope(scope) => write!(f, "{scope}"),
            Self::Scopes(scopes) => {
                let names = scopes.iter().map(|scope| scope.as_str());
                f.write_str(&names.collect::<Vec<_>>().join(", "))
            }
            Self::Prefix(prefix) => write!(f, "{prefix:?} and all that begins with it"),
            Self::Holder(holder) => write!(f, "holder {holder}"),
        }
    }
}

impl Api {
    /// The caller's principal, `None` while the cluster has no permissions, if it may make this
    /// call. It is judged by this node's state, before anything that the call names is looked up:
    /// what is denied is denied alike whether it exists or not.
    pub(super) fn admit(&self, call: Call, about: About<'_>) -> Result<Option<Principal>> {
        let state = self.node.state.read();
        let judged = self.judge(&state, call, about);
        drop(state);
        if judged.is_ok() && call.needs != Needs::Nothing {
            self.prove();
        }
        judged.map_err(|denied| {
            let who = denied.principal.as_ref();
            let reason = denied.failure.reason;
            let target = about.to_string();
            self.node.denials.record(who, call.name, target, reason);
            denied.failure
        })
    }

    fn judge(
        &self,
        state: &State,
        call: Call,
        about: About<'_>,
    ) -> std::result::Result<Option<Principal>, Denied> {
        if call.needs == Needs::Nothing {
            return Ok(None);
        }
        let principal = self.principal(state)?;
        if state.is_open() {
            return Ok(None);
        }
        let Some(principal) = principal else {
            return Err(Denied::unauthenticated("the call names nobody"));
        };
        if allowed(state, &principal, call.needs, about) {
            // What keeps and gives back what one has is never too much.
            let limit = state.limits(&principal).requests_per_second;
            return match limit {
                Some(limit) if call.needs != Needs::Session => {
                    match self.node.rates.admits(&principal, limit) {
                        true => Ok(Some(principal)),
                        false => Err(Denied {
                            failure: Failure::new(
                                Reason::RateLimited,
                                format_args!(
                                    "{principal} makes more than {limit} requests a second"
                                ),
                            ),
                            principal: Some(principal),
                        }),
                    }
                }
                Some(_) | None => Ok(Some(principal)),
            };
        }
        let lacks = lacks(&principal, call.needs, about);
        Err(Denied {
            failure: Failure::new(Reason::PermissionDenied, lacks),
            principal: Some(principal),
        })
    }

    /// Whom the caller's credential names, if it shows one.
    fn principal(&self, state: &State) -> std::result::Result<Option<Principal>, Denied> {
        match &self.credential {
            Credential::None => Ok(None),
            Credential::Malformed(why) => Err(Denied::unauthenticated(why)),
            Credential::Token(hash) => match state.principal_of_token(hash, clock::wall_ms()) {
                Some(principal) => Ok(Some(principal.clone())),
                None => Err(Denied::unauthenticated(
                    "the token is not known, or has ended",
                )),
            },
            Credential::Uri(uri) => match Principal::parse(uri) {
                Ok(principal) => Ok(Some(principal)),
                Err(_malformed) => Err(Denied::unauthenticated(
                    "the client certificate's URI cannot be a principal",
                )),
            },
        }
    }

    fn prove(&self) {
        if let Some(connection) = &self.connection {
            connection.prove();
        }
    }

    /// For a call that the leader will judge, which may take as long as it waits: a caller with any
    /// permission is no stranger, and neither is any while the cluster has no permissions.
    pub(super) fn prove_if_known(&self) {
        if self
            .connection
            .as_ref()
            .is_none_or(|known| known.is_proven())
        {
            return;
        }
        let state = self.node.state.read();
        let known = match self.principal(&state) {
            Ok(principal) => {
                state.is_open()
                    || principal.is_some_and(|who| state.permissions_of(&who).next().is_some())
            }
            Err(_denied) => false,
        };
        drop(state);
        if known {
            self.prove();
        }
    }
}

fn allowed(state: &State, principal: &Principal, needs: Needs, about: About<'_>) -> bool {
    let who = Some(principal);
    let any = || state.permissions_of(principal).next().is_some();
    match (needs, about) {
        (Needs::Nothing, _) => true,
        (Needs::Permission | Needs::Session, _) => any(),
        (Needs::Verb(Verb::Operate), _) => state.may_operate(who),
        (Needs::Verb(verb), About::Scope(scope)) => state.allows(who, verb, scope),
        (Needs::Verb(verb), About::Scopes(scopes)) => {
            scopes.iter().all(|scope| state.allows(who, verb, scope))
        }
        (Needs::Verb(verb), About::Prefix(prefix)) => state.allows_prefix(who, verb, prefix),
        (Needs::Verb(verb), About::Holder(holder)) => {
            principal.owns(holder) && state.allows_somewhere(who, verb)
        }
        (Needs::Verb(_), About::Nothing) => false,
    }
}

/// What a caller who is denied would need. It says nothing that the call does not: not whether
/// there is what the call names.
fn lacks(principal: &Principal, needs: Needs, about: About<'_>) -> String {
    match (needs, about) {
        (Needs::Verb(Verb::Operate), _) => format!("{principal} may not operate the cluster"),
        (Needs::Verb(_), About::Holder(holder)) if !principal.owns(holder) => format!(
            "{principal} opens sessions only for holders named {principal}, or {principal}/ and more"
        ),
        (Needs::Verb(verb), About::Scope(_) | About::Scopes(_)) => {
            format!("{principal} has no permission to {} here", verb.as_str())
        }
        (Needs::Verb(verb), About::Prefix(_)) => format!(
            "{principal} has no permission to {} all that begins like this",
            verb.as_str()
        ),
        (Needs::Verb(verb), About::Nothing | About::Holder(_)) => {
            format!(
                "{principal} has no permission to {} anything",
                verb.as_str()
            )
        }
        (Needs::Nothing | Needs::Permission | Needs::Session, _) => {
            format!("{principal} has no permission at all")
        }
    }
}

/// A call that is not admitted.
struct Denied {
    failure: Failure,
    /// Where the caller is known.
    principal: Option<Principal>,
}

impl Denied {
    fn unauthenticated(why: &str) -> Self {
        Self {
            failure: Failure::new(Reason::Unauthenticated, why),
            principal: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use prost::Message as _;

    use super::*;

    #[test]
    fn every_call_of_the_proto_is_in_the_table_once() {
        let set = prost_types::FileDescriptorSet::decode(epoch_proto::PUBLIC_DESCRIPTORS).unwrap();
        let ours = set.file.iter().filter(|file| file.package() == "epochd.v1");
        let services = ours.flat_map(|file| &file.service);
        let methods: BTreeSet<String> = services
            .flat_map(|service| {
                let named = |method| format!("{}.{method}", service.name());
                service
                    .method
                    .iter()
                    .map(move |method| named(method.name()))
            })
            .collect();
        let calls = ALL.iter().map(|call| call.name);
        let in_table: Vec<String> = calls
            .filter(|name| !name.starts_with('/'))
            .map(str::to_owned)
            .collect();
        assert_eq!(in_table.len(), methods.len(), "a call is there twice");
        assert_eq!(in_table.into_iter().collect::<BTreeSet<_>>(), methods);
    }

    #[test]
    fn only_what_is_signed_needs_no_name() {
        let open = ALL.iter().filter(|call| call.needs == Needs::Nothing);
        assert_eq!(
            open.map(|call| call.name).collect::<Vec<_>>(),
            ["TrustService.Bundle"]
        );
    }
}
