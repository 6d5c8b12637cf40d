//! The operator's statements: `statement make`, `check`, `put`.

use std::time::Duration;

use epoch_client::Client;
use epoch_core::{MAX_FUTURE_MS_DEFAULT, Pin, Statement, StatementKind, TextKind, Validity};
use epoch_proto::v1;
use serde_json::json;

use crate::args::{StatementCommand, StatementMake, StatementTerms};
use crate::exit::Failure;
use crate::files;
use crate::key::root_key;
use crate::output::{Output, pairs};
use crate::times;
use crate::verify::invalid;

/// `client` is made where the cluster is asked.
pub(crate) async fn statement(
    client: impl FnOnce() -> Result<Client, Failure>,
    output: Output,
    command: StatementCommand,
) -> Result<(), Failure> {
    match command {
        StatementCommand::Make(StatementMake::Clock { terms }) => {
            make(output, &terms, StatementKind::Clock)
        }
        StatementCommand::Make(StatementMake::MaxFuture { ahead, terms }) => {
            if ahead <= Duration::from_millis(MAX_FUTURE_MS_DEFAULT) {
                output.note(
                    "this changes nothing for guards with the usual bound of 24h: they keep the \
                     wider one",
                );
            }
            let seconds = ahead.as_secs();
            make(output, &terms, StatementKind::MaxFuture { seconds })
        }
        StatementCommand::Check { statement, pin } => {
            let checked = check(&read(&statement)?, &pin, times::now_ms())?;
            show(output, &checked)
        }
        StatementCommand::Put { statement } => {
            let statement = read(&statement)?;
            let request = v1::PutStatementRequest { statement };
            let answer = client()?.put_statement(request).await?;
            output.result(&answer, || "taken in".to_owned())
        }
    }
}

fn read(given: &str) -> Result<String, Failure> {
    files::read_text(given, "statement", TextKind::Statement.bytes_max())
}

fn make(output: Output, terms: &StatementTerms, kind: StatementKind) -> Result<(), Failure> {
    let root = root_key(&terms.root.root)?;
    let text = root
        .sign_statement(validity(times::now_ms(), terms.duration), kind)
        .map_err(|error| Failure::usage(format!("not signed: {error}"), "check --for"))?;
    output.result(&json!({ "statement": text }), || text.clone())
}

fn validity(now_ms: u64, duration: Duration) -> Validity {
    let issued_at_s = now_ms / 1_000;
    Validity {
        issued_at_s,
        expires_at_s: issued_at_s.saturating_add(duration.as_secs()),
        // Of two of one second the later one counts: these rise.
        jti: uuid::Uuid::now_v7().to_string(),
    }
}

fn check(text: &str, pin: &Pin, now_ms: u64) -> Result<Statement, Failure> {
    Statement::verify(text, pin, now_ms)
        .map_err(|error| invalid(format!("the statement does not verify: {error}")))
}

fn show(output: Output, statement: &Statement) -> Result<(), Failure> {
    let (kind, says) = match statement.kind() {
        StatementKind::Clock => (
            "clock",
            "the cluster grants on while its time is ahead".to_owned(),
        ),
        StatementKind::MaxFuture { seconds } => (
            "max_future",
            format!(
                "guards accept epochs up to {} ahead",
                humantime::format_duration(Duration::from_secs(seconds))
            ),
        ),
    };
    let payload: serde_json::Value = serde_json::from_str(&statement.to_json()).unwrap_or_default();
    output.result(&json!({ "valid": true, "claims": payload }), || {
        let validity = statement.validity();
        let now_ms = times::now_ms();
        let moment = |seconds: u64| times::moment(seconds.saturating_mul(1_000), now_ms);
        pairs([
            ("kind", kind.to_owned()),
            ("says", says),
            ("cluster", statement.cluster().to_string()),
            ("issued", moment(validity.issued_at_s)),
            ("expires", moment(validity.expires_at_s)),
            ("id", validity.jti.clone()),
        ])
    })
}

#[cfg(test)]
mod tests {
    use epoch_core::RootKey;

    use super::*;

    #[test]
    fn a_statement_holds_from_now_on_for_as_long_as_was_said_under_its_pin_alone() {
        let cluster = "018f4d1c-0000-7000-8000-00000000000a".parse().unwrap();
        let incarnation = "018f4d1c-0000-7000-8000-000000000001".parse().unwrap();
        let root = |seed| RootKey::from_seed(cluster, incarnation, &[seed; 32]).unwrap();
        let now_ms = 1_767_225_600_000;
        let hour = Duration::from_secs(3_600);
        let kind = StatementKind::MaxFuture { seconds: 7 };
        let text = root(1)
            .sign_statement(validity(now_ms, hour), kind)
            .unwrap();
        let pin = root(1).pin();
        assert_eq!(check(&text, &pin, now_ms).unwrap().kind(), kind);
        assert!(check(&text, &pin, now_ms + 3_599_999).is_ok());
        for refused in [
            check(&text, &pin, now_ms + 3_600_000),
            check(&text, &root(2).pin(), now_ms),
            check("x", &pin, now_ms),
        ] {
            assert_eq!(refused.unwrap_err().reason, "CERTIFICATE_INVALID");
        }
    }
}
