//! The table of calls in the API's document, held against the proto and against a node.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};
use epoch_core::Reason;
use epoch_tests::cluster::Cluster;
use epoch_tests::json_client::JsonClient;
use prost::Message as _;
use prost_types::{DescriptorProto, FileDescriptorSet};
use serde_json::json;

const DOCUMENT: &str = include_str!("../../crates/epochd/docs/api.md");
/// Routes that no proto describes.
const PLAIN: [&str; 3] = ["/.well-known/jwks.json", "/livez", "/readyz"];

/// A row of the table.
#[derive(Debug)]
struct Row {
    /// `Service.Method`.
    call: String,
    method: String,
    /// With `{id}` where the session id stands.
    path: String,
    /// Named in the path's query.
    query: BTreeSet<String>,
    request: BTreeSet<String>,
    answer: BTreeSet<String>,
}

/// What stands between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The names of fields between backticks: `ttl`, or `open_id?` where it may be absent.
fn names(text: &str) -> BTreeSet<String> {
    let is_name = |text: &&str| {
        let mut letters = text.bytes();
        !text.is_empty() && letters.all(|letter| letter == b'_' || letter.is_ascii_lowercase())
    };
    let names = quoted(text).map(|name| name.trim_end_matches('?'));
    names.filter(is_name).map(str::to_owned).collect()
}

fn rows() -> Result<Vec<Row>> {
    let table = DOCUMENT
        .lines()
        .skip_while(|line| !line.starts_with("| call |"))
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    let mut rows = Vec::new();
    for line in table {
        let cells: Vec<_> = line.trim().split('|').map(str::trim).collect();
        let ["", call, json, request, answer, ""] = cells.as_slice() else {
            anyhow::bail!("not four cells: {line}");
        };
        let Some(call) = quoted(call).find(|call| call.contains("Service.")) else {
            continue;
        };
        let json = quoted(json).next().context("no JSON form")?;
        let (method, target) = json.split_once(' ').context("no method")?;
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let query = query.split('&').filter_map(|part| part.strip_suffix('='));
        rows.push(Row {
            call: call.to_owned(),
            method: method.to_owned(),
            path: path.to_owned(),
            query: query.map(str::to_owned).collect(),
            request: names(request),
            answer: names(answer),
        });
    }
    Ok(rows)
}

/// Input and output of each call of the proto.
type Calls = BTreeMap<String, (DescriptorProto, DescriptorProto)>;

fn calls() -> Result<Calls> {
    let set = FileDescriptorSet::decode(epoch_proto::PUBLIC_DESCRIPTORS)?;
    let of_epochd = |file: &&prost_types::FileDescriptorProto| file.package() == "epochd.v1";
    let file = set.file.iter().find(of_epochd).context("no such file")?;
    let message = |name: &str| {
        let name = name.trim_start_matches(".epochd.v1.");
        let message = file.message_type.iter().find(|one| one.name() == name);
        message
            .cloned()
            .with_context(|| format!("no message {name}"))
    };
    let mut calls = BTreeMap::new();
    for service in &file.service {
        for method in &service.method {
            let name = format!("{}.{}", service.name(), method.name());
            let types = (
                message(method.input_type())?,
                message(method.output_type())?,
            );
            calls.insert(name, types);
        }
    }
    Ok(calls)
}

fn fields(message: &DescriptorProto) -> BTreeSet<String> {
    let names = message.field.iter().map(|field| field.name().to_owned());
    names.collect()
}

#[test]
fn every_call_of_the_proto_has_its_row_with_every_field() -> Result<()> {
    let (calls, rows) = (calls()?, rows()?);
    let named: Vec<_> = rows.iter().map(|row| row.call.clone()).collect();
    let once: BTreeSet<_> = named.iter().cloned().collect();
    assert_eq!(named.len(), once.len(), "a call has two rows: {named:?}");
    assert_eq!(once, calls.keys().cloned().collect());
    for row in rows {
        let (input, output) = &calls[&row.call];
        let mut request = &row.request | &row.query;
        if row.path.contains("{id}") {
            request.insert("session_id".to_owned());
        }
        assert_eq!(request, fields(input), "the request of {}", row.call);
        let missing = &fields(output) - &row.answer;
        assert_eq!(missing, BTreeSet::new(), "the answer of {}", row.call);
    }
    Ok(())
}

#[test]
fn every_reason_is_in_the_document() {
    let unsaid = Reason::ALL
        .iter()
        .filter(|reason| !DOCUMENT.contains(&format!("`{reason}`")));
    assert_eq!(unsaid.collect::<Vec<_>>(), Vec::<&Reason>::new());
}

/// What a node says of a request with that field in it.
async fn said(client: &JsonClient, row: &Row, name: &str) -> Result<String> {
    let path = row.path.replace("{id}", "no-session");
    let answer = if row.method == "GET" {
        // A watch would go on for ever; not one with this cursor.
        let cursor = match row.call.as_str() {
            "EpochService.Watch" if name != "after" => "after=none&",
            _ => "",
        };
        let target = format!("{path}?{cursor}{name}=");
        client.raw("GET", &target, None, Vec::new()).await?
    } else {
        // Wanted is only whether the name is known: the value never fits.
        let body = json!({ name: [[]] }).to_string().into_bytes();
        let json = Some("application/json");
        client.raw(&row.method, &path, json, body).await?
    };
    Ok(answer.text)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_call_takes_every_field_over_json() -> Result<()> {
    let mut cluster = Cluster::start().await?;
    let client = cluster.client(cluster.leader().await?)?.clone();
    for row in rows()? {
        let names = match row.method.as_str() {
            "GET" => &row.query,
            _ => &row.request,
        };
        for name in names {
            let said = said(&client, &row, name).await?;
            assert!(!said.contains("unknown field"), "{row:?}, {name}: {said}");
        }
        if !names.is_empty() {
            let said = said(&client, &row, "no_such_field").await?;
            assert!(said.contains("unknown field"), "{row:?}: {said}");
        }
    }
    cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_route_and_method_is_in_the_table() -> Result<()> {
    const SOURCE: &str = include_str!("../../crates/epochd/src/api/http.rs");
    let (_, routes) = SOURCE.split_once("Router::new()").context("no routes")?;
    let (routes, _) = routes.split_once("fallback").context("no end of them")?;
    let routes = routes.split('"').skip(1).step_by(2);
    let routes: BTreeSet<_> = routes.filter(|text| text.starts_with('/')).collect();
    let rows = rows()?;
    let in_table: BTreeSet<_> = rows.iter().map(|row| row.path.as_str()).collect();
    let plain = PLAIN.into_iter().collect();
    assert_eq!(
        routes,
        &in_table | &plain,
        "the routes and the table differ"
    );

    let mut cluster = Cluster::start().await?;
    let client = cluster.client(cluster.leader().await?)?.clone();
    for path in in_table {
        let target = format!("{}{}", client.url(), path.replace("{id}", "no-session"));
        let refused = reqwest::Client::new().patch(target).send().await?;
        let allowed = refused.headers().get("allow").context("nothing allowed")?;
        let allowed: BTreeSet<_> = allowed.to_str()?.split(',').collect();
        let of_path = rows.iter().filter(|row| row.path == path);
        let mut methods: BTreeSet<_> = of_path.map(|row| row.method.as_str()).collect();
        if methods.contains("GET") {
            methods.insert("HEAD");
        }
        assert_eq!(allowed, methods, "the methods of {path}");
    }
    for path in PLAIN {
        assert!(DOCUMENT.contains(&format!("`GET {path}`")), "{path}");
    }
    cluster.unharmed()
}
