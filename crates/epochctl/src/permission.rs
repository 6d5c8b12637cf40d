//! Who may do what: `permission grant`, `revoke`, `list`, `limits`.

mod token;

use epoch_client::Client;
use epoch_proto::v1;

use crate::args::{PermissionCommand, PermissionGrant, PermissionLimits, PermissionRevoke, Verb};
use crate::exit::Failure;
use crate::output::{Output, rows};
use crate::scope::PAGE_ROWS_MAX;
use crate::times;

pub(crate) async fn permission(
    client: &Client,
    output: Output,
    command: PermissionCommand,
) -> Result<(), Failure> {
    match command {
        PermissionCommand::Grant(command) => grant(client, output, command).await,
        PermissionCommand::Revoke(command) => revoke(client, output, command).await,
        PermissionCommand::List => list(client, output).await,
        PermissionCommand::Limits(command) => limits(client, output, command).await,
        PermissionCommand::Token(command) => token::token(client, output, command).await,
    }
}

async fn grant(client: &Client, output: Output, command: PermissionGrant) -> Result<(), Failure> {
    let verbs = command.verbs.iter().map(|verb| verb.as_str().to_owned());
    let request = v1::GrantPermissionRequest {
        principal: command.of.principal.into(),
        prefix: command.over.prefix(),
        verbs: verbs.collect(),
    };
    if command.verbs.contains(&Verb::Operate) && !request.prefix.is_empty() {
        return Err(Failure::usage(
            "operate is about the cluster, not about some scopes",
            "give it with --all",
        ));
    }
    let answer = client.grant_permission(request).await?;
    output.result(&answer, || "granted".to_owned())
}

async fn revoke(client: &Client, output: Output, command: PermissionRevoke) -> Result<(), Failure> {
    let request = v1::RevokePermissionRequest {
        principal: command.of.principal.into(),
        prefix: command.over.prefix(),
    };
    let answer = client.revoke_permission(request).await?;
    output.result(&answer, || match answer.revoked {
        true => "revoked".to_owned(),
        false => "nothing to revoke: it has no permission at exactly this prefix (epochctl permission list)".to_owned(),
    })
}

async fn limits(client: &Client, output: Output, command: PermissionLimits) -> Result<(), Failure> {
    let limits = v1::Limits {
        sessions: command.sessions,
        grants: command.grants,
        waits: command.waits,
        requests_per_second: command.rate,
    };
    let request = v1::SetLimitsRequest {
        principal: command.of.principal.into(),
        limits: (!command.none).then_some(limits),
    };
    let answer = client.set_limits(request).await?;
    output.result(&answer, || "set".to_owned())
}

/// All pages of it, as one answer.
async fn list(client: &Client, output: Output) -> Result<(), Failure> {
    let mut all = v1::ListPermissionsResponse::default();
    loop {
        let request = v1::ListPermissionsRequest {
            limit: PAGE_ROWS_MAX,
            page: all.next_page.take(),
        };
        let page = client.list_permissions(request).await?;
        // A page without rows would be asked for without end.
        all.next_page = page.next_page.filter(|_| !page.principals.is_empty());
        all.principals.extend(page.principals);
        if all.next_page.is_none() {
            break;
        }
    }
    output.result(&all, || shown(&all.principals))
}

/// A row a permission, token or limit.
fn shown(principals: &[v1::Principal]) -> String {
    if principals.is_empty() {
        return "no permissions: everyone may do everything".to_owned();
    }
    let row = |principal: &v1::Principal| {
        let name = principal.principal.clone();
        let permissions = principal.permissions.iter().map(|permission| {
            let prefix = match permission.prefix.as_str() {
                "" => "every scope".to_owned(),
                prefix => format!("{prefix}…"),
            };
            ("permission", prefix, permission.verbs.join(","))
        });
        let tokens = principal.tokens.iter().map(|token| {
            let until = token.expires_ms.map(times::rfc3339);
            let until = until.map_or_else(|| "for ever".to_owned(), |time| format!("until {time}"));
            ("token", token.label.clone(), until)
        });
        let limits = principal.limits.iter().map(|limits| {
            let each = [
                ("sessions", limits.sessions),
                ("grants", limits.grants),
                ("waits", limits.waits),
                ("requests a second", limits.requests_per_second),
            ];
            let each = each
                .into_iter()
                .filter_map(|(name, limit)| Some((name, limit?)));
            let each: Vec<_> = each
                .map(|(name, limit)| format!("{limit} {name}"))
                .collect();
            ("limits", each.join(", "), String::new())
        });
        let all = permissions.chain(tokens).chain(limits);
        let all = all.map(|(kind, of, what)| [name.clone(), kind.to_owned(), of, what]);
        all.collect::<Vec<_>>()
    };
    rows(
        ["PRINCIPAL", "HAS", "OF", "WHAT"],
        principals.iter().flat_map(row),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_permission_token_and_limit_is_a_row() {
        let principal = v1::Principal {
            principal: "app".to_owned(),
            permissions: vec![
                v1::Permission {
                    prefix: String::new(),
                    verbs: vec!["read".to_owned()],
                },
                v1::Permission {
                    prefix: "a/".to_owned(),
                    verbs: vec!["acquire".to_owned(), "read".to_owned()],
                },
            ],
            tokens: vec![v1::Token {
                label: "t1".to_owned(),
                created_ms: 1,
                expires_ms: Some(1_700_000_000_000),
            }],
            limits: Some(v1::Limits {
                sessions: Some(2),
                requests_per_second: Some(50),
                ..v1::Limits::default()
            }),
        };
        assert_eq!(
            shown(&[principal]),
            "PRINCIPAL  HAS         OF                                WHAT\n\
             app        permission  every scope                       read\n\
             app        permission  a/…                               acquire,read\n\
             app        token       t1                                until 2023-11-14T22:13:20.000Z\n\
             app        limits      2 sessions, 50 requests a second"
        );
        assert!(shown(&[]).starts_with("no permissions"));
    }
}
