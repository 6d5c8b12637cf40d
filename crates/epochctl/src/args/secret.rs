//! The names of sessions. clap repeats the values that it refuses, and a session's id is a bearer
//! secret: so clap takes any text for one, and it is read afterwards.

use std::fmt;

use epoch_core::{SessionHash, SessionId};

use crate::exit::Failure;

/// Text that is, or may be, a secret.
#[derive(Clone)]
pub(crate) struct Untold(String);

impl From<String> for Untold {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Untold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

impl Untold {
    pub(crate) fn session_hash(&self) -> Result<SessionHash, Failure> {
        let next_step = r#"give the session's hash, "session" in session open -o json"#;
        self.0.parse().map_err(|malformed| {
            let message = match self.0.parse::<SessionId>() {
                Ok(_) => format!("that is a session id, a secret: {next_step}"),
                Err(_) => format!("{malformed}"),
            };
            Failure::usage(message, next_step)
        })
    }
}

/// The session's id, or the usage error of a command that was given none.
fn id(given: Option<&Untold>, give: &str) -> Result<SessionId, Failure> {
    let next_step = format!("{give} SESSION_ID, or set EPOCHCTL_SESSION");
    let Some(Untold(text)) = given else {
        return Err(Failure::usage("no session is given", next_step));
    };
    text.parse().map_err(|malformed| {
        let message = match text.parse::<SessionHash>() {
            Ok(_) => "that is a session hash, not the session's id".to_owned(),
            Err(_) => format!("{malformed}"),
        };
        Failure::usage(message, next_step)
    })
}

/// The session a call acts in.
#[derive(Debug, clap::Args)]
pub(crate) struct InSession {
    /// The session's id, as `session open` printed it. It is a secret: others can see arguments,
    /// so that the environment is the better place.
    #[arg(
        long = "session",
        env = "EPOCHCTL_SESSION",
        hide_env_values = true,
        value_name = "SESSION_ID"
    )]
    id: Option<Untold>,
}

impl InSession {
    pub(crate) fn id(&self) -> Result<SessionId, Failure> {
        id(self.id.as_ref(), "give --session")
    }
}

/// The session a call is about.
#[derive(Debug, clap::Args)]
pub(crate) struct OfSession {
    /// The session's id, a secret: others can see arguments, so that the environment is the better
    /// place.
    #[arg(
        value_name = "SESSION_ID",
        env = "EPOCHCTL_SESSION",
        hide_env_values = true
    )]
    id: Option<Untold>,
}

impl OfSession {
    pub(crate) fn id(&self) -> Result<SessionId, Failure> {
        id(self.id.as_ref(), "give its")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "2f1c0a52-6a39-4b0e-9f56-0f4c7c1e8a11.42.0";

    #[test]
    fn a_session_that_is_missing_or_malformed_is_not_repeated_and_the_next_step_is_said() {
        for given in [None, Some("x"), Some(""), Some(&ID[1..])] {
            let given = given.map(|text| Untold(text.to_owned()));
            let failure = id(given.as_ref(), "give --session").unwrap_err();
            assert_eq!(failure.code, crate::exit::USAGE);
            assert!(failure.next_step.contains("or set EPOCHCTL_SESSION"));
            assert!(!failure.message.contains(&ID[1..]), "{failure:?}");
        }
        let given = Untold(ID.to_owned());
        assert_eq!(id(Some(&given), "").unwrap().to_string(), ID);
        assert_eq!(format!("{given:?}"), "…");
    }

    #[test]
    fn an_id_in_the_place_of_a_hash_is_told_apart_and_not_repeated() {
        let hash = ID.parse::<SessionId>().unwrap().hash();
        assert_eq!(Untold(hash.to_string()).session_hash().unwrap(), hash);
        let failure = Untold(ID.to_owned()).session_hash().unwrap_err();
        assert!(failure.message.contains("a secret"), "{failure:?}");
        assert!(!failure.message.contains(ID), "{failure:?}");
        let failure = Untold("guess".to_owned()).session_hash().unwrap_err();
        assert!(!failure.message.contains("guess"), "{failure:?}");
    }
}
