//! `audit`: what operators did, and what was denied.

use epoch_client::Client;
use epoch_proto::v1;

use crate::args::Audit;
use crate::exit::Failure;
use crate::output::{Output, or_dash, rows};
use crate::scope::PAGE_ROWS_MAX;
use crate::times;

pub(crate) async fn audit(client: &Client, output: Output, command: Audit) -> Result<(), Failure> {
    let mut all = v1::AuditResponse {
        records: Vec::new(),
        next_page: command.page,
    };
    let mut left = command.limit;
    loop {
        let request = v1::AuditRequest {
            limit: left.unwrap_or(PAGE_ROWS_MAX).min(PAGE_ROWS_MAX),
            page: all.next_page.take(),
            denials: command.denials,
        };
        let page = client.audit(request).await?;
        let rows = u32::try_from(page.records.len()).unwrap_or(u32::MAX);
        left = left.map(|left| left.saturating_sub(rows));
        all.records.extend(page.records);
        all.next_page = page.next_page;
        // A page without rows would be asked for without end.
        if all.next_page.is_none() || left == Some(0) || rows == 0 {
            break;
        }
    }
    output.result(&all, || {
        let row = |record: &v1::AuditRecord| {
            [
                record.number.to_string(),
                times::rfc3339(record.time_ms),
                or_dash(record.principal.as_ref()),
                record.action.clone(),
                record.target.clone(),
                record.result.clone(),
            ]
        };
        rows(
            ["NUMBER", "TIME", "PRINCIPAL", "ACTION", "TARGET", "RESULT"],
            all.records.iter().map(row),
        )
    })?;
    if let Some(next) = &all.next_page {
        output.note(&format!("there is more: go on with --page {next}"));
    }
    Ok(())
}
