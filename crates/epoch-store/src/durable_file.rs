//! Small files that are there whole or not at all: seeds, keys.

use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::fs::{FileSystem, read_exact_at};

/// Ends the name of a file that is not complete yet. One found at start is left over from a crash
/// and was never acknowledged.
pub const TEMP_SUFFIX: &str = ".tmp";

/// Writes `bytes` as the file `path`, replacing what was there. After a crash at any moment the
/// file has its old contents or the new ones; once this returns, the new ones. Only the owner can
/// read or write it.
///
/// # Errors
/// What the disk reports; [`io::ErrorKind::InvalidInput`] if `path` names no file in a folder.
pub fn write_durably(fs: &dyn FileSystem, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temp = temp_path(path)?;
    match fs.remove(&temp) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let file = fs.create(&temp)?;
    file.write_at(bytes, 0)?;
    file.sync_all()?;
    fs.rename(&temp, path)?;
    fs.sync_folder(folder_of(path))
}

/// Reads the whole file `path`.
///
/// # Errors
/// [`io::ErrorKind::NotFound`] if there is none; [`io::ErrorKind::FileTooLarge`] if it has more than
/// `max_bytes`, so that a wrong path cannot fill the memory; otherwise what the disk reports.
pub fn read_bounded(fs: &dyn FileSystem, path: &Path, max_bytes: usize) -> io::Result<Vec<u8>> {
    let file = fs.open_to_read(path)?;
    match usize::try_from(file.size()?) {
        Ok(length) if length <= max_bytes => {
            let mut bytes = vec![0; length];
            read_exact_at(file.as_ref(), &mut bytes, 0)?;
            Ok(bytes)
        }
        Ok(_) | Err(_) => Err(io::ErrorKind::FileTooLarge.into()),
    }
}

/// As [`write_durably`], with a last line that holds the text's hash, so that [`read_sealed`] finds
/// any change. JSON stays a sequence of JSON texts: the line is a string.
///
/// # Errors
/// As [`write_durably`].
pub fn write_sealed(fs: &dyn FileSystem, path: &Path, text: &str) -> io::Result<()> {
    write_durably(fs, path, format!("{text}\n{}\n", seal(text)).as_bytes())
}

/// Reads what [`write_sealed`] wrote.
///
/// # Errors
/// As [`read_bounded`]; [`io::ErrorKind::InvalidData`] if the text is not the one that was written.
pub fn read_sealed(fs: &dyn FileSystem, path: &Path, max_bytes: usize) -> io::Result<String> {
    let damaged = || {
        io::Error::new(
            io::ErrorKind::InvalidData,
            "its last line's hash does not fit",
        )
    };
    let whole = String::from_utf8(read_bounded(fs, path, max_bytes)?);
    let whole = whole.map_err(|_not_text| damaged())?;
    let lines = whole
        .strip_suffix('\n')
        .and_then(|lines| lines.rsplit_once('\n'));
    match lines {
        Some((text, found)) if found == seal(text) => Ok(text.to_owned()),
        Some(_) | None => Err(damaged()),
    }
}

fn seal(text: &str) -> String {
    let mut line = String::from("\"sha256:");
    for byte in Sha256::digest(text.as_bytes()) {
        line.push_str(&format!("{byte:02x}"));
    }
    line.push('"');
    line
}

pub(crate) fn temp_path(path: &Path) -> io::Result<PathBuf> {
    let Some(name) = path.file_name() else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let mut name = name.to_os_string();
    name.push(TEMP_SUFFIX);
    Ok(path.with_file_name(name))
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) | None => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::RealFs;

    #[test]
    fn a_file_is_replaced_whole_and_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        std::fs::write(folder.path().join("key.tmp"), "left over").unwrap();
        write_durably(&RealFs, &path, b"first and longer").unwrap();
        write_durably(&RealFs, &path, b"second").unwrap();
        assert_eq!(read_bounded(&RealFs, &path, 6).unwrap(), b"second");
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(RealFs.list(folder.path()).unwrap(), ["key"]);
    }

    #[test]
    fn any_change_of_a_sealed_file_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("peers");
        write_sealed(&RealFs, &path, "{\n  \"a\": 1\n}").unwrap();
        assert_eq!(
            read_sealed(&RealFs, &path, 200).unwrap(),
            "{\n  \"a\": 1\n}"
        );
        let good = std::fs::read(&path).unwrap();
        let refused = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            read_sealed(&RealFs, &path, 200).unwrap_err().kind() == io::ErrorKind::InvalidData
        };
        for at in 0..good.len() {
            assert!(refused(&good[..at]), "cut at {at}");
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                assert!(refused(&bad), "bit {bit} of byte {at}");
            }
        }
    }

    #[test]
    fn a_file_beyond_the_bound_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        write_durably(&RealFs, &path, b"1234567").unwrap();
        let error = read_bounded(&RealFs, &path, 6).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        let missing = read_bounded(&RealFs, &folder.path().join("none"), 6).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }
}
