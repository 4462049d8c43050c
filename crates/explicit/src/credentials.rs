//! Names and passwords of the users of an explicit listener.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use subtle::ConstantTimeEq;

/// The users of a listener: names with their passwords.
#[derive(Default)]
pub struct Credentials {
    users: Arc<BTreeMap<String, String>>,
    /// Number of wrong names or passwords.
    wrong: AtomicU32,
}

/// The same users, with a counter of zero.
impl Clone for Credentials {
    fn clone(&self) -> Self {
        Self {
            users: Arc::clone(&self.users),
            wrong: AtomicU32::new(0),
        }
    }
}

impl PartialEq for Credentials {
    fn eq(&self, other: &Self) -> bool {
        self.users == other.users
    }
}

impl Eq for Credentials {}

impl Credentials {
    /// Users, each with a password.
    #[must_use]
    pub fn new(users: BTreeMap<String, String>) -> Self {
        Self {
            users: Arc::new(users),
            wrong: AtomicU32::new(0),
        }
    }

    /// Number of wrong names or passwords.
    #[must_use]
    pub fn wrong(&self) -> u32 {
        self.wrong.load(Ordering::Relaxed)
    }

    /// Whether this name and password are those of a user. The time that this takes does not depend on
    /// how much of a password is right.
    #[must_use]
    pub fn accept(&self, user: &[u8], password: &[u8]) -> bool {
        let known = std::str::from_utf8(user)
            .ok()
            .and_then(|user| self.users.get(user));
        // An unknown user takes as long as a known one.
        let expected = known.map_or(&[][..], |password| password.as_bytes());
        let is_right = bool::from(expected.ct_eq(password)) && known.is_some();
        if !is_right {
            self.wrong.fetch_add(1, Ordering::Relaxed);
        }
        is_right
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
        assert!(credentials.wrong() > 0);
        let again = credentials.clone();
        assert_eq!((again.wrong(), &again), (0, &credentials));
        assert!(!format!("{credentials:?}").contains("secret"));
    }
}
