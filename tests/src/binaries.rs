//! Where the binaries under test are.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

/// The path of the binary `name` of this workspace.
///
/// `EPOCHD_BIN` (for `epochd`; the name in upper case, `_BIN` behind it) decides when set.
/// Otherwise it is looked for next to the running executable, and one folder up, where cargo puts
/// binaries while it puts tests in `deps`.
///
/// # Errors
/// It is not there: cargo builds only a package's own binaries for its tests.
pub fn binary(name: &str) -> Result<PathBuf> {
    let variable = format!("{}_BIN", name.to_uppercase().replace('-', "_"));
    if let Some(path) = env::var_os(&variable) {
        let path = PathBuf::from(path);
        if !path.is_file() {
            bail!(
                "{variable} is {}, and there is no such file",
                path.display()
            );
        }
        return Ok(path);
    }
    let own = env::current_exe().context("finding the running executable")?;
    let found = own
        .ancestors()
        .skip(1)
        .take(2)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file());
    found.with_context(|| {
        format!(
            "{name} was not found next to {}: run scripts/test (or cargo build --bin epochd \
             --bin epochctl) first, or set {variable}",
            own.display()
        )
    })
}

/// Cargo's target folder: where tests keep what they install.
///
/// # Errors
/// The running executable is in no folder named `target` and `CARGO_TARGET_DIR` is not set.
pub fn target_folder() -> Result<PathBuf> {
    if let Some(path) = env::var_os("CARGO_TARGET_DIR") {
        return Ok(PathBuf::from(path));
    }
    let own = env::current_exe().context("finding the running executable")?;
    own.ancestors()
        .find(|folder| folder.file_name().is_some_and(|name| name == "target"))
        .map(Path::to_path_buf)
        .context("the running executable is in no target folder; set CARGO_TARGET_DIR")
}
