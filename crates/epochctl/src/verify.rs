//! `verify`: a certificate against a key set, offline.

use std::fs::File;
use std::io::Read;
use std::time::Duration;

use epoch_client::Tls;
use epoch_core::{
    Certificate, ClusterId, JWKS_BYTES_MAX, KeySet, Reason, TOKEN_BYTES_MAX, Verifier, error_chain,
};
use serde_json::{Value, json};

use crate::args::{Connection, Verify};
use crate::exit::Failure;
use crate::output::{Output, pairs};
use crate::times;
use crate::token::unverified_claims;

pub(crate) async fn verify(
    output: Output,
    command: Verify,
    connection: &Connection,
    deadline: Duration,
) -> Result<(), Failure> {
    let token = read_token(&command.certificate)?;
    let keys = keys(&command.jwks, connection, deadline).await?;
    let cluster = match command.cluster {
        Some(cluster) => cluster,
        None => {
            let named = named_cluster(&token)?;
            output.note(&format!(
                "the cluster {named} is the one the certificate names itself; \
                 pass --cluster to demand one"
            ));
            named
        }
    };
    let verifier = match &command.audience {
        Some(audience) => Verifier::new(cluster, keys).with_audience(audience),
        None => Verifier::new(cluster, keys).with_any_audience(),
    };
    let now_ms = command.now.map_or_else(times::now_ms, times::ms_of);
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

fn show(output: Output, certificate: &Certificate, now_ms: u64) -> Result<(), Failure> {
    let claims = certificate.claims();
    let granted_ms = times::granted_ms(certificate.epoch());
    let payload: Value = serde_json::from_str(&claims.to_json()).unwrap_or_default();
    let json = json!({
        "valid": true,
        "claims": payload,
        "kid": certificate.key().to_string(),
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
            ("key", certificate.key().to_string()),
        ])
    })
}

fn invalid(message: String) -> Failure {
    let next_step = "do not accept it".to_owned();
    Failure {
        next_step,
        ..Failure::refused(Reason::CertificateInvalid, message)
    }
}

/// The certificate as given, from stdin, or from a file.
fn read_token(given: &str) -> Result<String, Failure> {
    // One byte more than is taken, so that a longer one is told from one that just fits; and one
    // for the line's end.
    let bytes_max = TOKEN_BYTES_MAX + 2;
    let unreadable = |what: &str, error: std::io::Error| {
        Failure::usage(
            format!("cannot read the certificate from {what}: {error}"),
            "check it",
        )
    };
    let text = match given.strip_prefix('@') {
        Some(file) => File::open(file)
            .and_then(|open| read(open, bytes_max))
            .map_err(|error| unreadable(file, error))?,
        None if given == "-" => {
            read(std::io::stdin(), bytes_max).map_err(|error| unreadable("stdin", error))?
        }
        None => given.as_bytes().to_vec(),
    };
    let text = String::from_utf8(text)
        .map_err(|_not_text| invalid("the certificate is not text".to_owned()))?;
    Ok(text.trim().to_owned())
}

fn read(source: impl Read, bytes_max: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(bytes_max).unwrap_or(u64::MAX);
    source.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The key set from a file or a URL.
async fn keys(given: &str, connection: &Connection, deadline: Duration) -> Result<KeySet, Failure> {
    let unreadable = |error: String| {
        Failure::usage(
            format!("cannot read the key set from {given}: {error}"),
            "check --jwks",
        )
    };
    let document = if given.starts_with("http://") || given.starts_with("https://") {
        fetch(given, connection, deadline).await?
    } else {
        File::open(given)
            .and_then(|file| read(file, JWKS_BYTES_MAX + 1))
            .map_err(|error| unreadable(error.to_string()))?
    };
    KeySet::from_jwks(&document).map_err(|error| unreadable(error.to_string()))
}

async fn fetch(url: &str, connection: &Connection, deadline: Duration) -> Result<Vec<u8>, Failure> {
    let unavailable = |error: String| Failure {
        code: crate::exit::UNAVAILABLE,
        reason: "UNAVAILABLE".to_owned(),
        ..Failure::local(
            format!("cannot fetch the key set from {url}: {error}"),
            "check that the node runs and --ca is right, or pass the key set as a file",
        )
    };
    let tls = match connection.tls()? {
        Some(tls) => tls,
        None => Tls::new(None, None)?,
    };
    // A key set is where trust begins: it comes from where the caller said, and nowhere else.
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
        if document.len() > JWKS_BYTES_MAX {
            return Err(unavailable(format!(
                "it is longer than {JWKS_BYTES_MAX} bytes"
            )));
        }
    }
    Ok(document)
}

/// The cluster that a token names as its issuer, before anything is verified.
fn named_cluster(token: &str) -> Result<ClusterId, Failure> {
    let none = || {
        invalid("the certificate names no cluster: its iss is not epochd:<cluster id>".to_owned())
    };
    if token.len() > TOKEN_BYTES_MAX {
        return Err(invalid(format!(
            "the certificate has more than {TOKEN_BYTES_MAX} bytes"
        )));
    }
    let claims = unverified_claims(token)
        .ok_or_else(|| invalid("the certificate is not a JWT".to_owned()))?;
    let issuer = claims.get("iss").and_then(Value::as_str).ok_or_else(none)?;
    let cluster = issuer.strip_prefix("epochd:").ok_or_else(none)?;
    cluster.parse().map_err(|_not_an_id| none())
}

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
        let long = "a".repeat(TOKEN_BYTES_MAX + 1);
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
