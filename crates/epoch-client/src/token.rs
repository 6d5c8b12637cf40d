//! The token that says who a client is.

use std::fmt;
use std::str::FromStr;

use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::{Request, Status};

/// A bearer token: sent with every call, and shown to nobody.
#[derive(Clone)]
pub struct Token(MetadataValue<Ascii>);

/// Why a text is not a token. (It does not repeat it.)
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a token is 1 to 4,096 printable ASCII characters without spaces")]
pub struct TokenError;

/// The longest token, in bytes.
const TOKEN_BYTES_MAX: usize = 4_096;

impl FromStr for Token {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        if text.is_empty()
            || text.len() > TOKEN_BYTES_MAX
            || !text.bytes().all(|byte| byte.is_ascii_graphic())
        {
            return Err(TokenError);
        }
        let mut value: MetadataValue<Ascii> = format!("Bearer {text}")
            .parse()
            .map_err(|_not_ascii| TokenError)?;
        // Kept out of HTTP/2's header tables, and of what libraries print.
        value.set_sensitive(true);
        Ok(Self(value))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// Adds the token, if there is one, to every call.
#[derive(Debug, Clone)]
pub(crate) struct Bearer(pub(crate) Option<Token>);

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(Token(value)) = &self.0 {
            request
                .metadata_mut()
                .insert("authorization", value.clone());
        }
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_sent_and_never_shown() {
        let token: Token = "s3cret".parse().unwrap();
        assert!(!format!("{token:?}").contains("s3cret"));
        let mut bearer = Bearer(Some(token));
        let request = bearer.call(Request::new(())).unwrap();
        let sent = request.metadata().get("authorization").unwrap();
        assert_eq!(sent, "Bearer s3cret");
        assert!(!format!("{request:?}").contains("s3cret"));
    }

    #[test]
    fn what_cannot_be_sent_is_no_token() {
        for text in ["", "a b", "a\n", "é", &"x".repeat(4_097)] {
            assert!(text.parse::<Token>().is_err(), "{text:?}");
        }
    }
}
