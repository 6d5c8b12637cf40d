//! Files: what is read has a bound, and what is secret is written once, for its user alone.

use std::fs::File;
use std::io::{self, Read, Write as _};
use std::path::Path;

use tempfile::NamedTempFile;

use crate::exit::Failure;

/// What `given` names: `-` is stdin, anything else a file, with or without `@` before it. `what` it
/// is, for messages.
pub(crate) fn read_named(given: &str, what: &str, bytes_max: usize) -> Result<Vec<u8>, Failure> {
    let (name, bytes) = match given.strip_prefix('@').unwrap_or(given) {
        "-" => ("stdin", read(io::stdin(), bytes_max)),
        file => (
            file,
            File::open(file).and_then(|open| read(open, bytes_max)),
        ),
    };
    bytes.map_err(|error| unreadable(what, name, &error))
}

/// The text given: `-` reads it from stdin, `@FILE` from a file.
pub(crate) fn read_text(given: &str, what: &str, bytes_max: usize) -> Result<String, Failure> {
    let bytes = match given.strip_prefix('@') {
        Some(file) => read_named(file, what, bytes_max)?,
        None if given == "-" => read_named(given, what, bytes_max)?,
        // No signed text is a file's name: it would be one of hundreds of bytes.
        None if given.len() < 256 && Path::new(given).is_file() => {
            let message = format!("{given:?} is a file, and not the {what} itself");
            return Err(Failure::usage(message, format!("give @{given}")));
        }
        None => given.as_bytes().to_vec(),
    };
    let not_text = |_| Failure::usage(format!("the {what} is not text"), "check it");
    let text = String::from_utf8(bytes).map_err(not_text)?;
    Ok(text.trim().to_owned())
}

/// All of it, up to two bytes more than are taken: one for a line's end, and one so that what is
/// longer is told from what just fits.
pub(crate) fn read(source: impl Read, bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(bytes_max).unwrap_or(u64::MAX);
    source
        .take(limit.saturating_add(2))
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn unreadable(what: &str, name: &str, error: &io::Error) -> Failure {
    Failure::usage(
        format!("cannot read the {what} from {name}: {error}"),
        "check its name and permissions",
    )
}

/// Writes a new file that only its user can read, on disk when this returns. A file that is there
/// is never overwritten.
pub(crate) fn create_secret(path: &Path, what: &str, content: &[u8]) -> Result<(), Failure> {
    create(path, content).map_err(|error| {
        let next_step = match error.kind() {
            io::ErrorKind::AlreadyExists => "give another name: it is never overwritten",
            _ => "check the folder",
        };
        let path = path.display();
        Failure::usage(
            format!("cannot write the {what} to {path}: {error}"),
            next_step,
        )
    })
}

fn create(path: &Path, content: &[u8]) -> io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        Some(_) | None => Path::new("."),
    };
    // Temporary files are made with 0600, whatever the umask.
    let mut file = NamedTempFile::new_in(folder)?;
    file.write_all(content)?;
    file.as_file().sync_all()?;
    file.persist_noclobber(path)?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_secret_is_written_once_for_its_user_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        create_secret(&path, "key", b"one").unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let refused = create_secret(&path, "key", b"two").unwrap_err();
        assert!(
            refused.next_step.contains("never overwritten"),
            "{refused:?}"
        );
        assert_eq!(std::fs::read(&path).unwrap(), b"one");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_is_read_has_an_end() {
        let file = NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "x".repeat(100)).unwrap();
        let name = file.path().to_str().unwrap();
        assert_eq!(read_named(name, "key", 10).unwrap().len(), 12);
        assert_eq!(read_text(&format!("@{name}"), "key", 10).unwrap().len(), 12);
        assert_eq!(read_text(" a\n", "key", 10).unwrap(), "a");
        assert!(read_named("/nowhere/key", "key", 10).is_err());
    }
}
