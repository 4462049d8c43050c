//! Names and passwords of those who may use an explicit listener.

use std::collections::BTreeMap;
use std::fmt;

use subtle::ConstantTimeEq;

/// Who may use a listener: names with their passwords.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Credentials {
    users: BTreeMap<String, String>,
}

impl Credentials {
    /// These users, each with a password.
    #[must_use]
    pub const fn new(users: BTreeMap<String, String>) -> Self {
        Self { users }
    }

    /// Whether this is one of them. The time it takes does not tell how much of a password was
    /// right.
    #[must_use]
    pub fn accept(&self, user: &[u8], password: &[u8]) -> bool {
        let known = std::str::from_utf8(user)
            .ok()
            .and_then(|user| self.users.get(user));
        // A user that does not exist takes the time of one that does.
        let expected = known.map_or(&[][..], |password| password.as_bytes());
        bool::from(expected.ct_eq(password)) && known.is_some()
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Passwords must not reach logs.
        f.debug_set().entries(self.users.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_right_pair_is_accepted_and_passwords_are_not_printed() {
        let users = [("alice", "secret"), ("bob", "")];
        let users = users.map(|(user, password)| (user.to_owned(), password.to_owned()));
        let credentials = Credentials::new(users.into());
        assert!(credentials.accept(b"alice", b"secret"));
        assert!(credentials.accept(b"bob", b""));
        for (user, password) in [
            (&b"alice"[..], &b"secre"[..]),
            (b"alice", b""),
            (b"bob", b"secret"),
            (b"carol", b""),
            (b"\xff", b""),
            (b"", b""),
        ] {
            assert!(!credentials.accept(user, password));
        }
        assert!(!format!("{credentials:?}").contains("secret"));
    }
}
