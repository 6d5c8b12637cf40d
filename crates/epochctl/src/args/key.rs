//! What is typed about signing keys, trust bundles and statements.

use std::str::FromStr;
use std::time::Duration;

use clap::Subcommand;
use epoch_core::{KeyId, MAX_FUTURE_S_MAX, NodeId, Pin, VerifyingKey};

#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// List the nodes' signing keys, and how each stands.
    List,
    /// Ask nodes for new signing keys. They sign once their bundle has been out for its maximum
    /// age; the keys before them verify until no certificate under them can be valid.
    Rotate {
        /// This node only; all when absent.
        #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
        node: Option<u64>,
    },
    /// Take a signing key out of the bundle: certificates under it verify no more.
    Retire {
        /// The key's name, as `key list` shows it.
        // Some begin with a dash.
        #[arg(value_name = "KID", allow_hyphen_values = true)]
        kid: KeyId,
    },
    /// Print what resources are to pin: the cluster, and its root key.
    Pin {
        /// The root key's file: then nothing is asked of the cluster, and nothing needs to be
        /// compared.
        #[arg(long, value_name = "FILE")]
        root: Option<String>,
    },
    /// Print the chain of trust bundles and the operator's statements, as JSON.
    Bundle {
        /// Bundles after this number only.
        #[arg(
            long,
            value_name = "NUMBER",
            default_value = "0",
            hide_default_value = true
        )]
        after: u64,
        /// Verify the whole chain under this pin first.
        #[arg(long, value_name = "PIN")]
        check: Option<Pin>,
    },
    /// Sign the successor of a chain's newest bundle with the root key: offline.
    Sign(KeySign),
    /// Give the cluster a bundle that the root key has signed.
    Submit {
        /// The bundle, as `key sign` printed it; `-` reads it from stdin, `@FILE` from a file.
        bundle: String,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct KeySign {
    /// The chain, as `key bundle` printed it: a file, or `-` for stdin.
    pub(crate) chain: String,
    #[command(flatten)]
    pub(crate) root: Root,
    /// A key to put into the bundle, as `key list` shows it; may be repeated. It signs once the
    /// bundle has been out for its maximum age.
    #[arg(long, value_name = "NODE=X")]
    pub(crate) add: Vec<NodeKey>,
    /// A key to leave out, by its name; may be repeated.
    // Some begin with a dash.
    #[arg(long, value_name = "KID", allow_hyphen_values = true)]
    pub(crate) remove: Vec<KeyId>,
}

/// The operator's root key.
#[derive(Debug, clap::Args)]
pub(crate) struct Root {
    /// The root key's file. Keep it where no node is.
    #[arg(long, value_name = "FILE")]
    pub(crate) root: String,
}

/// A public key, and whose.
#[derive(Debug, Clone)]
pub(crate) struct NodeKey {
    pub(crate) node: NodeId,
    pub(crate) key: VerifyingKey,
}

impl FromStr for NodeKey {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = "write NODE=X, the node's number and the key's x of `key list -o json`";
        let (node, key) = text.split_once('=').ok_or(form)?;
        Ok(Self {
            node: node.parse().map_err(|_not_a_number| form)?,
            key: key.parse().map_err(|error| format!("{error}; {form}"))?,
        })
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum StatementCommand {
    /// Make a statement with the root key: offline.
    #[command(subcommand)]
    Make(StatementMake),
    /// Verify a statement, and show what it says.
    Check {
        /// The statement; `-` reads it from stdin, `@FILE` from a file.
        statement: String,
        /// The cluster, and its root key, as `key pin` prints them.
        #[arg(long)]
        pin: Pin,
    },
    /// Give the cluster a statement.
    Put {
        /// The statement; `-` reads it from stdin, `@FILE` from a file.
        statement: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum StatementMake {
    /// The cluster grants on although its time is ahead of real time (CLOCK_POISONED).
    Clock {
        #[command(flatten)]
        terms: StatementTerms,
    },
    /// Guards accept epochs that lie further ahead than 24 hours.
    MaxFuture {
        /// How far: up to 366days, in whole seconds. Guards with a wider bound of their own keep it.
        #[arg(long, value_name = "DURATION", value_parser = max_future)]
        ahead: Duration,
        #[command(flatten)]
        terms: StatementTerms,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct StatementTerms {
    /// For how long it holds, from now on: in whole seconds.
    #[arg(long = "for", value_name = "DURATION", value_parser = whole_seconds)]
    pub(crate) duration: Duration,
    #[command(flatten)]
    pub(crate) root: Root,
}

fn max_future(text: &str) -> Result<Duration, String> {
    let ahead = whole_seconds(text)?;
    match ahead.as_secs() <= MAX_FUTURE_S_MAX {
        true => Ok(ahead),
        false => Err("it is at most 366days".to_owned()),
    }
}

fn whole_seconds(text: &str) -> Result<Duration, String> {
    let duration = super::positive(text)?;
    match duration.subsec_nanos() {
        0 => Ok(duration),
        _part => Err("it is in whole seconds".to_owned()),
    }
}
