//! Bearer tokens: `permission token add`, `remove`.

use std::fmt;
use std::path::Path;

use aws_lc_rs::{digest, rand};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use epoch_client::{Client, Error};
use epoch_proto::v1;
use serde_json::json;

use crate::args::{TokenAdd, TokenCommand, TokenRemove};
use crate::exit::Failure;
use crate::files;
use crate::output::Output;
use crate::times;

/// What every token begins with, so that one that has leaked is known for what it is.
const START: &str = "epochd_";

pub(super) async fn token(
    client: &Client,
    output: Output,
    command: TokenCommand,
) -> Result<(), Failure> {
    match command {
        TokenCommand::Add(command) => add(client, output, command).await,
        TokenCommand::Remove(command) => remove(client, output, command).await,
    }
}

/// A bearer token. Never shown by `Debug`.
struct Secret(String);

impl Secret {
    /// 32 random bytes.
    fn draw() -> Result<Self, Failure> {
        let mut bytes = [0; 32];
        rand::fill(&mut bytes).map_err(|_unspecified| {
            Failure::local("the system has no random bytes", "try again later")
        })?;
        Ok(Self(format!("{START}{}", URL_SAFE_NO_PAD.encode(bytes))))
    }

    /// What the cluster is told: the SHA-256 of the whole text.
    fn hash(&self) -> String {
        let hash = digest::digest(&digest::SHA256, self.0.as_bytes());
        URL_SAFE_NO_PAD.encode(hash.as_ref())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

async fn add(client: &Client, output: Output, command: TokenAdd) -> Result<(), Failure> {
    let secret = Secret::draw()?;
    let TokenAdd {
        of,
        label,
        ttl,
        out,
    } = command;
    let printed = out.as_os_str() == "-";
    if !printed {
        // Before it is good for anything: afterwards there would be no second chance.
        files::create_secret(&out, "token", format!("{}\n", secret.0).as_bytes())?;
    }
    let request = v1::AddTokenRequest {
        principal: of.principal.to_string(),
        label: label.clone(),
        hash: secret.hash(),
        ttl: ttl.map(times::of_api),
    };
    if let Err(error) = client.add_token(request).await {
        return Err(not_added(
            output,
            error,
            of.principal.as_str(),
            &label,
            (!printed).then_some(&out),
        ));
    }
    let principal = of.principal.as_str();
    if printed {
        let json = json!({ "principal": principal, "label": label, "token": secret.0 });
        return output.result(&json, || secret.0.clone());
    }
    let out = out.display().to_string();
    let json = json!({ "principal": principal, "label": label, "file": out });
    output.result(&json, || {
        format!("the token {label} of {principal} is in {out}")
    })
}

/// A token that was refused is removed here too.
fn not_added(
    output: Output,
    error: Error,
    principal: &str,
    label: &str,
    file: Option<&std::path::PathBuf>,
) -> Failure {
    if error.outcome_unknown() {
        output.note(&format!(
            "the token may be known all the same: try it, or forget it with \
             `epochctl permission token remove '{principal}' {label}`"
        ));
    } else if let Some(file) = file {
        removed(output, file);
    }
    Failure::from(error)
}

fn removed(output: Output, file: &Path) {
    if let Err(error) = std::fs::remove_file(file) {
        let file = file.display();
        output.note(&format!(
            "{file} has a token that is good for nothing ({error})"
        ));
    }
}

async fn remove(client: &Client, output: Output, command: TokenRemove) -> Result<(), Failure> {
    let request = v1::RemoveTokenRequest {
        principal: command.of.principal.into(),
        label: command.label,
    };
    let answer = client.remove_token(request).await?;
    output.result(&answer, || match answer.removed {
        true => "removed".to_owned(),
        false => {
            "nothing to remove: it has no token of this label (epochctl permission list)".to_owned()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_random_and_known_by_the_hash_of_its_whole_text() {
        let [first, second] = [Secret::draw().unwrap(), Secret::draw().unwrap()];
        assert_ne!(first.0, second.0);
        let random = first.0.strip_prefix(START).unwrap();
        assert_eq!(URL_SAFE_NO_PAD.decode(random).unwrap().len(), 32);
        assert_eq!(format!("{first:?}"), "…");
        // `printf epochd_abc | sha256sum`, in base64url.
        let known = Secret("epochd_abc".to_owned());
        assert_eq!(known.hash(), "bXTo4ErGH5iE71xQrHQS61Nn0I9KUmyvYIUA8YNayAM");
    }
}
