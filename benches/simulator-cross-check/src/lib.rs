//! ns-2 and ns-3 as separate programs, if Debian's packages `ns2`, `libns3-dev` and `g++` are
//! installed.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, io};

use tempfile::TempDir;

/// A compiled program; it is removed when this value is dropped.
#[derive(Debug)]
pub struct Compiled {
    /// The path of the executable.
    pub program: PathBuf,
    _folder: TempDir,
}

/// The path of ns-2; `None` if it is not installed.
#[must_use]
pub fn ns2() -> Option<PathBuf> {
    find("ns")
}

/// Compiles a program for ns-3; `None` if ns-3 or a compiler is not installed.
///
/// # Errors
/// The program does not compile.
pub fn ns3(source: &Path) -> io::Result<Option<Compiled>> {
    let (Some(compiler), true) = (find("g++"), Path::new("/usr/include/ns3").exists()) else {
        return Ok(None);
    };
    let folder = tempfile::tempdir()?;
    let program = folder.path().join("program");
    let modules = [
        "core",
        "network",
        "internet",
        "applications",
        "point-to-point",
        "traffic-control",
    ];
    let status = Command::new(compiler)
        .args(["-O2", "-std=c++17", "-w", "-o"])
        .arg(&program)
        .arg(source)
        .arg("-I/usr/include")
        .args(modules.map(|module| format!("-lns3-{module}")))
        .status()?;
    if !status.success() {
        let message = format!("{} does not compile", source.display());
        return Err(io::Error::other(message));
    }
    Ok(Some(Compiled {
        program,
        _folder: folder,
    }))
}

fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let found = env::split_paths(&path).map(|folder| folder.join(program));
    found.into_iter().find(|file| file.is_file())
}
