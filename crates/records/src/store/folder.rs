//! A store that is a folder: each row in a file of its own, named after its kind and key.
//!
//! A file is written under a temporary name, which begins with a dot. When the file is complete, it is
//! renamed in one step, so no process ever reads half a row. If a process is killed before that, the
//! temporary file remains; no process reads it.

use std::fs::{self, File, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::{LARGEST, StoreError, failed, read_file};

/// How the names of all rows end.
const END: &str = ".json";

/// The rows of a folder, in the order of their names.
pub(super) fn lines(folder: &Path) -> Result<Vec<Vec<u8>>, StoreError> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed("read", folder))? {
        let name = entry.map_err(failed("read", folder))?.file_name();
        let is_row =
            (name.to_str()).is_some_and(|name| name.ends_with(END) && !name.starts_with('.'));
        if is_row {
            names.push(name);
        }
    }
    names.sort_unstable();
    let (mut lines, mut total) = (Vec::with_capacity(names.len()), 0);
    for name in names {
        let name = folder.join(name);
        let file = File::open(&name).map_err(failed("open", &name))?;
        let line = content_of(&name, &file)?;
        total += line.len() as u64;
        if total > LARGEST {
            return Err(StoreError::TooLarge {
                file: folder.to_owned(),
            });
        }
        lines.push(line);
    }
    Ok(lines)
}

/// Fails if the folder cannot be read.
pub(super) fn check(folder: &Path) -> Result<(), StoreError> {
    let entries = fs::read_dir(folder);
    entries.map(|_| ()).map_err(failed("read", folder))
}

/// The row of one kind and key; `None` if the folder has none. The other rows are not read.
pub(super) fn find(folder: &Path, kind: &str, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
    let name = name_of(folder, kind, key);
    match File::open(&name) {
        Ok(file) => content_of(&name, &file).map(Some),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("open", &name)(error)),
    }
}

/// The content of a row's file.
fn content_of(name: &Path, file: &File) -> Result<Vec<u8>, StoreError> {
    let mut line = read_file(name, file)?;
    line.truncate(line.trim_ascii_end().len());
    Ok(line)
}

fn name_of(folder: &Path, kind: &str, key: &str) -> PathBuf {
    folder.join(format!("{}-{key}{END}", kind.replace([' ', '/'], "-")))
}

/// Adds a row, or replaces the one with the same kind and key.
pub(super) fn add(folder: &Path, kind: &str, key: &str, line: &str) -> Result<(), StoreError> {
    let name = name_of(folder, kind, key);
    let file = write_unnamed(&name, line.as_bytes())?;
    let kept = file.persist(&name).map_err(|error| error.error);
    kept.map(|_| ()).map_err(failed("write", &name))
}

/// Writes a new file that has its name only when it is complete. A file of this name is never replaced.
pub(super) fn write_new(name: &Path, content: &[u8]) -> Result<(), StoreError> {
    let file = write_unnamed(name, content)?;
    match file.persist_noclobber(name) {
        Ok(_) => Ok(()),
        Err(error) if error.error.kind() == ErrorKind::AlreadyExists => Err(StoreError::Exists {
            file: name.to_owned(),
        }),
        Err(error) => Err(failed("write", name)(error.error)),
    }
}

/// Writes the content of a file that is to have this name.
fn write_unnamed(name: &Path, content: &[u8]) -> Result<NamedTempFile, StoreError> {
    let folder = match name.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    // As of every new file, the mode is limited by the process's umask.
    let mode = Permissions::from_mode(0o666);
    let mut file = tempfile::Builder::new()
        .prefix(".run-")
        .permissions(mode)
        .tempfile_in(folder)
        .map_err(failed("write", name))?;
    let written = file
        .write_all(content)
        .and_then(|()| file.as_file().sync_all());
    written.map_err(failed("write", name))?;
    Ok(file)
}
