//! Settings: a flag beats the environment (`EPOCHD_*`), which beats the file.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use epoch_store::LogOptions;
use serde::Deserialize;

use crate::raft::{QUIET, SILENCE_AFTER};

/// Settings that cannot be, or do not fit together.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SettingsError(pub(crate) String);

/// Where a node listens and keeps its data, and how it keeps time. Every part is optional in the
/// file and on the command line.
#[derive(Debug, Clone, Default, Args, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeArgs {
    /// The node's data folder, made by `epochd init`.
    #[arg(long, env = "EPOCHD_DATA_DIR", value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Listen here for clients, instead of at the address that the cluster knows (host:port).
    #[arg(long, env = "EPOCHD_CLIENT_LISTEN", value_name = "ADDR")]
    pub client_listen: Option<String>,
    /// Listen here for the other nodes (host:port).
    #[arg(long, env = "EPOCHD_PEER_LISTEN", value_name = "ADDR")]
    pub peer_listen: Option<String>,
    /// Listen here for metrics (host:port).
    #[arg(long, env = "EPOCHD_ADMIN_LISTEN", value_name = "ADDR")]
    pub admin_listen: Option<String>,
    /// Serve clients and metrics in plaintext also where others than this host can reach them.
    #[arg(
        long,
        env = "EPOCHD_ALLOW_PLAINTEXT",
        value_name = "BOOL",
        num_args = 0..=1,
        default_missing_value = "true"
    )]
    pub allow_plaintext: Option<bool>,
    // A doc comment here would become the command's help.
    #[command(flatten)]
    #[serde(default)]
    #[expect(missing_docs, reason = "see the comment above")]
    pub tls: TlsArgs,
    // A doc comment here would become the command's help.
    #[command(flatten)]
    #[serde(default)]
    #[expect(missing_docs, reason = "see the comment above")]
    pub tuning: Tuning,
}

/// TLS of the listeners for clients and metrics. (Between nodes it needs no settings.)
#[derive(Debug, Clone, Default, Args, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsArgs {
    /// The certificate for clients and metrics, with its chain (PEM) [default: tls/server.pem in
    /// the data folder, if it is there].
    #[arg(long = "tls-cert", env = "EPOCHD_TLS_CERT", value_name = "FILE")]
    pub cert: Option<PathBuf>,
    /// The certificate's key (PEM, unencrypted).
    #[arg(long = "tls-key", env = "EPOCHD_TLS_KEY", value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// The CAs whose certificates clients may show (PEM); none are asked for without.
    #[arg(
        long = "tls-client-ca",
        env = "EPOCHD_TLS_CLIENT_CA",
        value_name = "FILE"
    )]
    pub client_ca: Option<PathBuf>,
}

/// What rarely needs to be set.
#[derive(Debug, Clone, Default, Args, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tuning {
    /// Milliseconds between heartbeats, and how long a follower may take to answer: more than a
    /// round trip and a flush [default: 60].
    #[arg(long, env = "EPOCHD_HEARTBEAT_MS", value_name = "MS")]
    pub heartbeat_ms: Option<u64>,
    /// Shortest election time-out in milliseconds; the longest is twice as long [default: 300].
    #[arg(long, env = "EPOCHD_ELECTION_MS", value_name = "MS")]
    pub election_ms: Option<u64>,
    /// Make a snapshot when the log has grown by so many bytes [default: as much as the state
    /// takes, but 67108864 at least].
    #[arg(long, env = "EPOCHD_SNAPSHOT_LOG_BYTES", value_name = "BYTES")]
    pub snapshot_log_bytes: Option<u64>,
    /// Close a log file and begin the next one at so many bytes, 4096 to 1073741824
    /// [default: 67108864].
    #[arg(long, env = "EPOCHD_LOG_SEGMENT_BYTES", value_name = "BYTES")]
    pub log_segment_bytes: Option<u64>,
}

/// Heartbeats and elections, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Between heartbeats; also how long one append may take.
    pub heartbeat_ms: u64,
    /// Shortest election time-out.
    pub election_min_ms: u64,
    /// Longest election time-out, and the leader's lease at its followers.
    pub election_max_ms: u64,
}

/// A node's settings, whole and checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The node's data folder.
    pub data_dir: PathBuf,
    /// Where to listen, where it differs from what the cluster knows.
    pub client_listen: Option<String>,
    /// Where to listen for peers.
    pub peer_listen: Option<String>,
    /// Where to listen for metrics.
    pub admin_listen: Option<String>,
    /// Heartbeats and elections.
    pub timing: Timing,
    /// What is kept on the disk.
    pub storage: Storage,
    /// The certificates for clients and metrics; without, those in the data folder.
    pub tls: Option<TlsFiles>,
    /// Plaintext also where others than this host can reach it.
    pub allow_plaintext: bool,
}

/// Where the certificates for clients and metrics are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's certificate, with its chain.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The CAs of clients' certificates; none are asked for without.
    pub client_ca: Option<PathBuf>,
}

/// How large what is on the disk becomes, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Storage {
    /// Log growth after which a snapshot is made; by default as much as the state takes, but
    /// [`Storage::SNAPSHOT_LOG_BYTES_MIN`] at least.
    pub snapshot_log_bytes: Option<u64>,
    /// Size of a log file.
    pub log_segment_bytes: u64,
}

impl Storage {
    /// Log growth after which a snapshot of a small state is made.
    pub const SNAPSHOT_LOG_BYTES_MIN: u64 = 64 << 20;
}

impl NodeArgs {
    /// Reads a settings file.
    ///
    /// # Errors
    /// It cannot be read, is not TOML, or names a setting that there is not.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("the settings file {} cannot be read", path.display()))?;
        toml::from_str(&text).with_context(|| format!("{} is not valid", path.display()))
    }

    /// These, and `file`'s where these say nothing.
    #[must_use]
    pub fn over(self, file: Self) -> Self {
        Self {
            data_dir: self.data_dir.or(file.data_dir),
            client_listen: self.client_listen.or(file.client_listen),
            peer_listen: self.peer_listen.or(file.peer_listen),
            admin_listen: self.admin_listen.or(file.admin_listen),
            allow_plaintext: self.allow_plaintext.or(file.allow_plaintext),
            tls: TlsArgs {
                cert: self.tls.cert.or(file.tls.cert),
                key: self.tls.key.or(file.tls.key),
                client_ca: self.tls.client_ca.or(file.tls.client_ca),
            },
            tuning: Tuning {
                heartbeat_ms: self.tuning.heartbeat_ms.or(file.tuning.heartbeat_ms),
                election_ms: self.tuning.election_ms.or(file.tuning.election_ms),
                snapshot_log_bytes: self
                    .tuning
                    .snapshot_log_bytes
                    .or(file.tuning.snapshot_log_bytes),
                log_segment_bytes: self
                    .tuning
                    .log_segment_bytes
                    .or(file.tuning.log_segment_bytes),
            },
        }
    }

    /// Fills in the defaults and checks how the settings fit together.
    ///
    /// # Errors
    /// No data folder, a certificate without its key, a size out of bounds, or times that do not
    /// fit.
    pub fn settings(self) -> Result<Settings, SettingsError> {
        let Some(data_dir) = self.data_dir else {
            return Err(SettingsError(
                "no data folder: give --data-dir, EPOCHD_DATA_DIR, or data_dir in the file"
                    .to_owned(),
            ));
        };
        Ok(Settings {
            data_dir,
            client_listen: self.client_listen,
            peer_listen: self.peer_listen,
            admin_listen: self.admin_listen,
            timing: self.tuning.timing()?,
            storage: self.tuning.storage()?,
            tls: self.tls.files()?,
            allow_plaintext: self.allow_plaintext.unwrap_or(false),
        })
    }
}

impl TlsArgs {
    /// Certificate and key, if they are given.
    ///
    /// # Errors
    /// Only some of what belongs together is given.
    pub fn files(self) -> Result<Option<TlsFiles>, SettingsError> {
        match (self.cert, self.key, self.client_ca) {
            (Some(cert), Some(key), client_ca) => Ok(Some(TlsFiles {
                cert,
                key,
                client_ca,
            })),
            (None, None, None) => Ok(None),
            (None, None, Some(_)) => Err(SettingsError(
                "client_ca is given without cert and key: give all three (--tls-cert, --tls-key, \
                 --tls-client-ca, or [tls] in the file)"
                    .to_owned(),
            )),
            (Some(_), None, _) | (None, Some(_), _) => Err(SettingsError(
                "certificate and key belong together: give both (--tls-cert and --tls-key, or cert \
                 and key under [tls] in the file)"
                    .to_owned(),
            )),
        }
    }
}

impl Tuning {
    /// How large what is on the disk becomes.
    ///
    /// # Errors
    /// A size is out of bounds.
    pub fn storage(&self) -> Result<Storage, SettingsError> {
        let log_segment_bytes = self
            .log_segment_bytes
            .unwrap_or_else(|| LogOptions::default().segment_bytes_max);
        let bounds = LogOptions::SEGMENT_BYTES;
        if !bounds.contains(&log_segment_bytes) {
            return Err(SettingsError(format!(
                "log_segment_bytes is {log_segment_bytes}; it must be from {} to {}",
                bounds.start(),
                bounds.end()
            )));
        }
        Ok(Storage {
            snapshot_log_bytes: self.snapshot_log_bytes,
            log_segment_bytes,
        })
    }

    /// Heartbeats and elections, checked together.
    ///
    /// # Errors
    /// They do not fit.
    pub fn timing(&self) -> Result<Timing, SettingsError> {
        let heartbeat_ms = self.heartbeat_ms.unwrap_or(60);
        let election_min_ms = self.election_ms.unwrap_or(300);
        if !(10..=200).contains(&heartbeat_ms) {
            return Err(SettingsError(format!(
                "heartbeat_ms is {heartbeat_ms}; it must be from 10 to 200, so that a leader is \
                 acknowledged several times before it falls silent at {} ms",
                SILENCE_AFTER.as_millis()
            )));
        }
        if election_min_ms < heartbeat_ms.saturating_mul(3) || election_min_ms > 60_000 {
            return Err(SettingsError(format!(
                "election_ms is {election_min_ms}; it must be at least three heartbeats \
                 ({heartbeat_ms} ms each), and at most a minute"
            )));
        }
        debug_assert!(
            SILENCE_AFTER < QUIET,
            "a leader must fall silent within the quiet second"
        );
        let election_max_ms = election_min_ms.saturating_mul(2);
        Ok(Timing {
            heartbeat_ms,
            election_min_ms,
            election_max_ms,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> NodeArgs {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn the_command_line_beats_the_file() {
        let file = parse("data_dir = '/file'\n[tuning]\nheartbeat_ms = 50\nelection_ms = 400");
        let flags = parse("data_dir = '/flag'\n[tuning]\nelection_ms = 500");
        let settings = flags.over(file).settings().unwrap();
        assert_eq!(settings.data_dir, PathBuf::from("/flag"));
        let timing = Timing {
            heartbeat_ms: 50,
            election_min_ms: 500,
            election_max_ms: 1_000,
        };
        assert_eq!(settings.timing, timing);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for text in [
            "heartbeat_ms = 0",
            "heartbeat_ms = 500",
            "election_ms = 100",
            "log_segment_bytes = 0",
            "log_segment_bytes = 1073741825",
        ] {
            let text = format!("data_dir = '/d'\n[tuning]\n{text}");
            assert!(parse(&text).settings().is_err(), "{text}");
        }
    }

    #[test]
    fn a_certificate_is_given_with_its_key() {
        let settings = |text: &str| parse(&format!("data_dir = '/d'\n[tls]\n{text}")).settings();
        let whole = settings("cert = '/c'\nkey = '/k'").unwrap();
        assert_eq!(whole.tls.unwrap().key, PathBuf::from("/k"));
        for part in ["cert = '/c'", "key = '/k'", "client_ca = '/a'"] {
            assert!(settings(part).is_err(), "{part}");
        }
        assert_eq!(settings("").unwrap().tls, None);
    }

    #[test]
    fn an_unknown_setting_is_named() {
        let error = toml::from_str::<NodeArgs>("data_dirr = '/d'")
            .unwrap_err()
            .to_string();
        assert!(error.contains("data_dirr"), "{error}");
    }
}
