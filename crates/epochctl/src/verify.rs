//! `verify`: a certificate against a key set or under a pin, offline.

use std::time::Duration;

use epoch_client::{Client, Tls};
use epoch_core::{
    Certificate, ClusterId, JWKS_BYTES_MAX, KeySet, Pin, Reason, TextKind, Verifier, error_chain,
};
use serde_json::{Value, json};

use crate::args::{Connection, Verify};
use crate::chain::{CHAIN_BYTES_MAX, Chain};
use crate::exit::Failure;
use crate::files;
use crate::output::{Output, or_dash, pairs};
use crate::times;
use crate::token::unverified_claims;

/// `client` is made where the cluster is asked.
pub(crate) async fn verify(
    client: impl FnOnce() -> Result<Client, Failure>,
    output: Output,
    command: Verify,
    connection: &Connection,
    deadline: Duration,
) -> Result<(), Failure> {
    let now_ms = command.now.map_or_else(times::now_ms, times::ms_of);
    let token = read_token(&command.certificate)?;
    let verifier = match (&command.pin, &command.jwks) {
        (Some(pin), _) => {
            pinned(client, output, &command, pin, now_ms, connection, deadline).await?
        }
        (None, Some(jwks)) => {
            let keys = keys(jwks, connection, deadline).await?;
            Verifier::new(cluster(output, command.cluster, &token)?, keys)
        }
        // The arguments demand one of them.
        (None, None) => return Err(Failure::usage("nothing to verify it with", "give --pin")),
    };
    let verifier = match &command.audience {
        Some(audience) => verifier.with_audience(audience),
        None => verifier.with_any_audience(),
    };
    let certificate = verifier
        .verify(&token, now_ms)
        .map_err(|error| invalid(format!("the certificate does not verify: {error}")))?;
    if let Some(scope) = &command.scope
        && certificate.scope() != scope
    {
        let found = certificate.scope();
        return Err(invalid(format!(
            "the certificate is for scope {found:?}, not {scope:?}"
        )));
    }
    if command.audience.is_none() && !certificate.claims().audiences().is_empty() {
        output.note("the audience was not checked; pass --audience to demand one");
    }
    if command.scope.is_none() {
        output.note("the scope was not checked; pass --scope to demand one");
    }
    show(output, &certificate, now_ms)
}

/// A verifier with what the chain of bundles leads to.
async fn pinned(
    client: impl FnOnce() -> Result<Client, Failure>,
    output: Output,
    command: &Verify,
    pin: &Pin,
    now_ms: u64,
    connection: &Connection,
    deadline: Duration,
) -> Result<Verifier, Failure> {
    let chain = match &command.bundle {
        None => Chain::fetch(&client()?, 0).await?,
        Some(given) if is_url(given) => {
            let document = fetch(given, "chain", CHAIN_BYTES_MAX, connection, deadline).await?;
            Chain::parse(&document)?
        }
        Some(given) => Chain::read(given)?,
    };
    let trust = chain.trust_with_statements(pin, now_ms, output)?;
    let nodes = usize::from(command.signatures.unwrap_or(1));
    Ok(Verifier::pinned(trust).with_signatures(nodes))
}

/// The cluster that a certificate must be from.
fn cluster(output: Output, given: Option<ClusterId>, token: &str) -> Result<ClusterId, Failure> {
    if let Some(cluster) = given {
        return Ok(cluster);
    }
    let named = named_cluster(token)?;
    output.note(&format!(
        "the cluster {named} is the one the certificate names itself; \
         pass --cluster to demand one"
    ));
    Ok(named)
}

fn show(output: Output, certificate: &Certificate, now_ms: u64) -> Result<(), Failure> {
    let claims = certificate.claims();
    let granted_ms = times::granted_ms(certificate.epoch());
    let payload: Value = serde_json::from_str(&claims.to_json()).unwrap_or_default();
    let signers: Vec<_> = certificate.signers().map(|kid| kid.to_string()).collect();
    let json = json!({
        "valid": true,
        "claims": payload,
        "kid": certificate.key().to_string(),
        "signers": signers,
        "granted_at": times::rfc3339(granted_ms),
    });
    output.result(&json, || {
        let validity = claims.validity();
        let moment = |seconds: u64| times::moment(seconds.saturating_mul(1_000), now_ms);
        let holder = claims
            .holder()
            .map_or("- (good for barriers only)".to_owned(), |holder| {
                holder.as_str().to_owned()
            });
        let audience = match claims.audiences() {
            [] => "any".to_owned(),
            audiences => audiences.join(", "),
        };
        pairs([
            ("scope", certificate.scope().as_str().to_owned()),
            ("epoch", certificate.epoch().get().to_string()),
            ("granted", times::moment(granted_ms, now_ms)),
            ("holder", holder),
            ("cluster", claims.cluster().to_string()),
            ("incarnation", claims.incarnation().to_string()),
            ("position", claims.position().to_string()),
            ("audience", audience),
            ("issued", moment(validity.issued_at_s)),
            ("expires", moment(validity.expires_at_s)),
            ("id", validity.jti.clone()),
            ("holder key", or_dash(claims.confirmation().as_ref())),
            ("signed by", signers.join(", ")),
        ])
    })
}

/// Something signed that does not hold.
pub(crate) fn invalid(message: String) -> Failure {
    let next_step = "do not accept it".to_owned();
    Failure {
        next_step,
        ..Failure::refused(Reason::CertificateInvalid, message)
    }
}

/// The certificate as given, from stdin, or from a file.
fn read_token(given: &str) -> Result<String, Failure> {
    files::read_text(given, "certificate", TextKind::Certificate.bytes_max())
}

fn is_url(given: &str) -> bool {
    given.starts_with("http://") || given.starts_with("https://")
}

/// The key set from a file or a URL.
async fn keys(given: &str, connection: &Connection, deadline: Duration) -> Result<KeySet, Failure> {
    let document = if is_url(given) {
        fetch(given, "key set", JWKS_BYTES_MAX, connection, deadline).await?
    } else {
        files::read_named(given, "key set", JWKS_BYTES_MAX)?
    };
    KeySet::from_jwks(&document).map_err(|error| {
        let message = format!("cannot read the key set from {given}: {error}");
        Failure::usage(message, "check --jwks")
    })
}

/// The document at a URL, of `bytes_max` bytes at most. `what` it is, for messages.
async fn fetch(
    url: &str,
    what: &str,
    bytes_max: usize,
    connection: &Connection,
    deadline: Duration,
) -> Result<Vec<u8>, Failure> {
    let unavailable = |error: String| Failure {
        code: crate::exit::UNAVAILABLE,
        reason: "UNAVAILABLE".to_owned(),
        ..Failure::local(
            format!("cannot fetch the {what} from {url}: {error}"),
            format!("check that the node runs and --ca is right, or pass the {what} as a file"),
        )
    };
    let tls = match connection.tls()? {
        Some(tls) => tls,
        None => Tls::new(None, None)?,
    };
    // Trust begins with it: it comes from where the caller said, and nowhere else.
    let client = reqwest::Client::builder()
        .timeout(deadline)
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .tls_backend_preconfigured(tls.http_config())
        .build()
        .map_err(|error| unavailable(error.to_string()))?;
    let response = client
        .get(url)
        .send()
        .await
        .and_then(reqwest::Response::error_for_status);
    let mut response = response.map_err(|error| unavailable(error_chain(&error)))?;
    if response.status() != reqwest::StatusCode::OK {
        return Err(unavailable(format!("the answer is {}", response.status())));
    }
    let mut document = Vec::new();
    while let Some(chunk) = response
        .chunk()
        .await
        .map_err(|error| unavailable(error_chain(&error)))?
    {
        document.extend_from_slice(&chunk);
        if document.len() > bytes_max {
            return Err(unavailable(format!("it is longer than {bytes_max} bytes")));
        }
    }
    Ok(document)
}

/// The cluster that a token names as its issuer, before anything is verified.
fn named_cluster(token: &str) -> Result<ClusterId, Failure> {
    let none = || {
        invalid("the certificate names no cluster: its iss is not epochd:<cluster id>".to_owned())
    };
    let bytes_max = TextKind::Certificate.bytes_max();
    if token.len() > bytes_max {
        return Err(invalid(format!(
            "the certificate has more than {bytes_max} bytes"
        )));
    }
    let claims = unverified_claims(token)
        .ok_or_else(|| invalid("the certificate is not a JWT".to_owned()))?;
    let issuer = claims.get("iss").and_then(Value::as_str).ok_or_else(none)?;
    let cluster = issuer.strip_prefix("epochd:").ok_or_else(none)?;
    cluster.parse().map_err(|_not_an_id| none())
}

#[cfg(test)]
mod pinned_tests;
#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    use super::*;

    #[test]
    fn the_cluster_a_token_names_is_found_and_garbage_is_not() {
        let token = |payload: &str| format!("h.{}.s", URL_SAFE_NO_PAD.encode(payload));
        let id = "01890a5d-ac96-774b-bcce-b302099a8057";
        let named = named_cluster(&token(&format!(r#"{{"iss":"epochd:{id}"}}"#))).unwrap();
        assert_eq!(named.to_string(), id);
        let long = "a".repeat(TextKind::Certificate.bytes_max() + 1);
        for bad in [
            "",
            "a",
            "a.b.c",
            &token("{}"),
            &token(r#"{"iss":"x"}"#),
            &long,
        ] {
            assert_eq!(
                named_cluster(bad).unwrap_err().reason,
                "CERTIFICATE_INVALID"
            );
        }
    }

    #[tokio::test]
    async fn a_key_set_that_is_missing_or_malformed_is_refused() {
        let malformed = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(malformed.path(), "[]").unwrap();
        let malformed = malformed.path().to_str().unwrap();
        for given in ["/nowhere/keys.json", malformed] {
            let failure = keys(given, &Connection::default(), Duration::from_secs(1))
                .await
                .unwrap_err();
            assert_eq!(failure.code, crate::exit::USAGE, "{given}");
        }
    }
}
