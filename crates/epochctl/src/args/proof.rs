//! What is typed about the holder's own key.

use std::path::PathBuf;

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum HolderKeyCommand {
    /// Make a key, and print its name for `session open --holder-key`.
    Make {
        /// A new file for the key (PKCS#8, PEM), which only its user can read.
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct Proof {
    /// The holder's key, as `holder-key make` wrote it.
    #[arg(long, value_name = "FILE")]
    pub(crate) holder_key: String,
    /// The request's method, such as PUT.
    #[arg(long, value_parser = method)]
    pub(crate) method: String,
    /// The request's URL; its query is not part of the proof.
    #[arg(long, value_parser = url)]
    pub(crate) url: String,
    /// The certificate that goes with the request; `-` reads it from stdin, `@FILE` from a file.
    #[arg(long)]
    pub(crate) certificate: String,
}

fn method(text: &str) -> Result<String, String> {
    match !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_uppercase()) {
        true => Ok(text.to_owned()),
        false => Err("write it as in PUT".to_owned()),
    }
}

fn url(text: &str) -> Result<String, String> {
    let parsed: reqwest::Url = text.parse().map_err(|error| format!("{error}"))?;
    match parsed.scheme() {
        "http" | "https" => Ok(text.to_owned()),
        _other => Err("it begins with https:// or http://".to_owned()),
    }
}
