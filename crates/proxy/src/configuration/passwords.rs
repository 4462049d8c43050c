//! Passwords in the configuration file, and who can read them.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::Configuration;

/// Rights of users who are neither the owner nor of the file's group.
const OTHERS: u32 = 0o007;

/// Whether a listener has users with passwords.
pub(crate) fn has_any(configuration: &Configuration) -> bool {
    let mut negotiations = configuration.listeners.iter();
    negotiations.any(|listener| {
        let negotiation = listener.relay.negotiation();
        negotiation.is_some_and(|negotiation| negotiation.users.is_some())
    })
}

/// The file's mode, where every user can read or change it.
pub(crate) fn readers(file: &Path) -> Option<u32> {
    let mode = std::fs::metadata(file).ok()?.mode() & 0o777;
    (mode & OTHERS != 0).then_some(mode)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_file_that_everybody_reads_is_told_apart() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let readers_with = |mode| {
            let rights = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(file.path(), rights).unwrap();
            readers(file.path())
        };
        assert_eq!(readers_with(0o600), None);
        assert_eq!(readers_with(0o640), None);
        assert_eq!(readers_with(0o644), Some(0o644));
        assert_eq!(readers_with(0o602), Some(0o602));
        assert_eq!(readers(Path::new("/nowhere")), None);
    }
}
