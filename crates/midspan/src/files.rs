//! Files that commands write: complete under their name, or not there.
//!
//! The content is written to a temporary file in the same folder, which is then renamed. A command
//! that fails or is killed leaves the old file as it was, and a reader never sees half a file.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use midspan_report::Report;
use miette::{Context, IntoDiagnostic, miette};
use tempfile::{Builder, NamedTempFile};

use crate::{printing, provenance};

/// Mode of a new file, before the umask.
const MODE: u32 = 0o666;

/// The name of a case as a part of a file's name: "overlay-static-fra-sin".
pub fn of_case(case: &str) -> String {
    case.replace(['=', '/'], "-")
}

/// A file that is being written.
pub struct Replacement {
    /// The temporary file, and the file whose place it takes. `None`: something that is no regular
    /// file, such as a pipe, is written directly.
    temporary: Option<(NamedTempFile, PathBuf)>,
}

impl Replacement {
    /// Begins to write `file`; the content is written to the second result.
    pub fn begin(file: &Path) -> io::Result<(Self, File)> {
        let (target, old) = match fs::metadata(file) {
            Ok(old) if old.is_file() => (fs::canonicalize(file)?, Some(old)),
            // A device or a pipe has readers that a rename would leave behind.
            Ok(_) => return Self::direct(OpenOptions::new().write(true).open(file)?),
            // A link to a file that does not exist yet.
            Err(_) if fs::symlink_metadata(file).is_ok() => {
                return Self::direct(File::create(file)?);
            }
            Err(error) if error.kind() == ErrorKind::NotFound => (file.to_owned(), None),
            Err(error) => return Err(error),
        };
        let folder = match target.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let temporary = Builder::new()
            .prefix(".midspan-")
            .permissions(Permissions::from_mode(MODE))
            .tempfile_in(folder)?;
        if let Some(old) = &old {
            keep_owner_and_mode(temporary.as_file(), old)?;
        }
        let content = temporary.as_file().try_clone()?;
        let this = Self {
            temporary: Some((temporary, target)),
        };
        Ok((this, content))
    }

    fn direct(content: File) -> io::Result<(Self, File)> {
        Ok((Self { temporary: None }, content))
    }

    /// The content is complete: the file appears under its name.
    pub fn commit(self) -> io::Result<()> {
        let Some((temporary, target)) = self.temporary else {
            return Ok(());
        };
        // Otherwise the name could be on the disk before the content.
        temporary.as_file().sync_all()?;
        temporary.persist(target).map_err(|error| error.error)?;
        Ok(())
    }
}

/// Only root can keep the owner of a file that belongs to another user; any other user becomes the
/// owner.
fn keep_owner_and_mode(new: &File, old: &Metadata) -> io::Result<()> {
    if (old.uid(), old.gid()) != (new.metadata()?.uid(), new.metadata()?.gid()) {
        let _ = fchown(new, Some(old.uid()), Some(old.gid()));
    }
    new.set_permissions(Permissions::from_mode(old.mode() & 0o7777))
}

/// Writes a file; an existing one is replaced.
pub fn write(file: &Path, content: impl AsRef<[u8]>) -> miette::Result<()> {
    let written = Replacement::begin(file).and_then(|(replacement, mut output)| {
        output.write_all(content.as_ref())?;
        replacement.commit()
    });
    written
        .into_diagnostic()
        .wrap_err_with(|| format!("cannot write {}", file.display()))
}

/// Writes a file, and prints what it is.
pub fn write_and_tell(what: &str, file: &Path, content: impl AsRef<[u8]>) -> miette::Result<()> {
    write(file, content)?;
    printing::note(format_args!("{what}: {}", file.display()));
    Ok(())
}

/// Writes a page, with the facts about where its results come from, and prints its name.
pub fn write_report(report: Report, file: &Path) -> miette::Result<()> {
    let page = with_provenance(report).to_html().into_diagnostic()?;
    write_and_tell("report", file, page)
}

/// The same page with the facts about where its results come from.
#[must_use]
pub fn with_provenance(mut report: Report) -> Report {
    report.method.facts.splice(0..0, provenance::facts());
    report
}

/// An error if `file` exists and `force` is false. Devices and pipes have nothing to lose.
pub fn refuse_existing(file: &Path, force: bool) -> miette::Result<()> {
    let is_lost = fs::symlink_metadata(file).is_ok()
        && fs::metadata(file).map_or(true, |existing| existing.is_file());
    if is_lost && !force {
        return Err(miette!(
            help = "choose another file, or replace this one with --force",
            "{} exists already: nothing was written",
            file.display()
        ));
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn mode(file: &Path) -> u32 {
        fs::metadata(file).unwrap().mode() & 0o7777
    }

    /// The names in a folder.
    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn what_was_begun_and_not_committed_leaves_the_old_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("midspan.toml");
        fs::write(&file, "old").unwrap();
        let (replacement, mut output) = Replacement::begin(&file).unwrap();
        output.write_all(b"half of the new").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "old");
        drop((replacement, output));
        assert_eq!(fs::read_to_string(&file).unwrap(), "old");
        assert_eq!(names(folder.path()), ["midspan.toml"]);
    }

    #[test]
    fn a_replaced_file_is_another_file_with_the_same_mode() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("midspan.toml");
        fs::write(&file, "a long old text").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        let mut reader = File::open(&file).unwrap();
        write(&file, "new").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        assert_eq!(mode(&file), 0o640);
        // A reader of the old file sees it to its end.
        assert_eq!(io::read_to_string(&mut reader).unwrap(), "a long old text");
        assert_eq!(names(folder.path()), ["midspan.toml"]);
    }

    #[test]
    fn a_new_file_has_the_mode_of_every_new_file() {
        let folder = tempfile::tempdir().unwrap();
        let (file, usual) = (folder.path().join("new"), folder.path().join("usual"));
        write(&file, "").unwrap();
        fs::write(&usual, "").unwrap();
        assert_eq!(mode(&file), mode(&usual));
    }

    #[test]
    fn links_stay_and_devices_stay_devices() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("target"), "old").unwrap();
        symlink("target", at("link")).unwrap();
        symlink("later", at("dangling")).unwrap();
        write(&at("link"), "new").unwrap();
        write(&at("dangling"), "new").unwrap();
        for (link, target) in [("link", "target"), ("dangling", "later")] {
            assert!(fs::symlink_metadata(at(link)).unwrap().is_symlink());
            assert_eq!(fs::read_to_string(at(target)).unwrap(), "new");
        }
        write(Path::new("/dev/null"), "anything").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }

    #[test]
    fn the_error_names_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("missing").join("file");
        let error = format!("{:?}", write(&file, "").unwrap_err());
        assert!(error.contains("cannot write"), "{error}");
        assert!(write(folder.path(), "").is_err());
    }

    #[test]
    fn only_what_can_be_lost_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "old").unwrap();
        symlink("file", at("link")).unwrap();
        symlink("nowhere", at("dangling")).unwrap();
        for name in ["file", "link", "dangling"] {
            assert!(refuse_existing(&at(name), false).is_err(), "{name}");
            assert!(refuse_existing(&at(name), true).is_ok(), "{name}");
        }
        assert!(refuse_existing(&at("new"), false).is_ok());
        assert!(refuse_existing(Path::new("/dev/null"), false).is_ok());
    }
}
