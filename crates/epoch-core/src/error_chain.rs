use std::error::Error;

/// An error with what caused it, as one line for people: `Display` shows the outermost only, and
/// so do log lines in JSON.
#[must_use]
pub fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("it cannot be read")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn the_cause_is_told() {
        let error = Outer(std::io::Error::other("the disk is gone"));
        assert_eq!(error_chain(&error), "it cannot be read: the disk is gone");
    }
}
