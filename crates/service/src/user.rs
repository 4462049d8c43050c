//! The user that a child becomes when root has started the daemon.
//!
//! Users are looked up by the C library (nsswitch.conf(5)), so those of LDAP exist as well as those of
//! `/etc/passwd`.

use std::fmt;
use std::io;
use std::str::FromStr;

use nix::unistd::Uid;
use thiserror::Error;

/// The user that belongs to Midspan alone (deploy/midspan.sysusers).
pub const OWN: &str = "midspan";

/// The user `nobody`, as everywhere on Linux.
pub const NOBODY: User = User {
    id: 65_534,
    group: 65_534,
};

/// A user and the group of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct User {
    /// The user's id.
    pub id: u32,
    /// The id of its group.
    pub group: u32,
}

impl User {
    /// The user of this name or number; `None` where there is none, or it is root. Without a name:
    /// the user `midspan`, or `nobody` where there is no such user.
    ///
    /// # Errors
    /// The table of users cannot be read.
    pub fn find(name: Option<&str>) -> io::Result<Option<Self>> {
        Self::choose(look_up, name)
    }

    /// Whether other programs may run as this user, and could end a child that has it.
    #[must_use]
    pub fn is_shared(self) -> bool {
        self.is_nobody(look_up)
    }

    fn choose(
        look_up: impl Fn(&str) -> io::Result<Option<Self>>,
        name: Option<&str>,
    ) -> io::Result<Option<Self>> {
        let not_root = |user: &Self| user.id != 0;
        if let Some(name) = name {
            return Ok(look_up(name)?.filter(not_root));
        }
        if let Some(own) = look_up(OWN)?.filter(not_root) {
            return Ok(Some(own));
        }
        Ok(Some(look_up("nobody")?.unwrap_or(NOBODY)).filter(not_root))
    }

    fn is_nobody(self, look_up: impl Fn(&str) -> io::Result<Option<Self>>) -> bool {
        let nobody = look_up("nobody").ok().flatten().unwrap_or(NOBODY);
        self.id == nobody.id
    }
}

/// The user of a name or number; for a number without a user, that number.
fn look_up(name: &str) -> io::Result<Option<User>> {
    let of = |found: nix::unistd::User| User {
        id: found.uid.as_raw(),
        group: found.gid.as_raw(),
    };
    if let Some(found) = nix::unistd::User::from_name(name)? {
        return Ok(Some(of(found)));
    }
    let Ok(id) = name.parse() else {
        return Ok(None);
    };
    let found = nix::unistd::User::from_uid(Uid::from_raw(id))?;
    Ok(Some(found.map_or(User { id, group: id }, of)))
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.id, self.group)
    }
}

/// A text that is not the id of a user and that of a group, with a colon between.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("not a user and a group")]
pub struct NotAUser;

impl FromStr for User {
    type Err = NotAUser;

    fn from_str(text: &str) -> Result<Self, NotAUser> {
        let (id, group) = text.split_once(':').ok_or(NotAUser)?;
        Ok(Self {
            id: id.parse().map_err(|_| NotAUser)?,
            group: group.parse().map_err(|_| NotAUser)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIDSPAN: (&str, User) = ("midspan", user(990, 985));
    const OTHER_NOBODY: (&str, User) = ("nobody", user(65_533, 65_532));

    const fn user(id: u32, group: u32) -> User {
        User { id, group }
    }

    /// As [`look_up`] in a table.
    fn table(users: &[(&str, User)]) -> impl Fn(&str) -> io::Result<Option<User>> {
        move |name| {
            let mut users = users.iter();
            let found = users.find(|(known, user)| *known == name || user.id.to_string() == name);
            Ok(found.map(|(_, user)| *user))
        }
    }

    #[test]
    fn users_of_this_machine_are_found_by_name_and_number() {
        assert_eq!(look_up("root").unwrap(), Some(user(0, 0)));
        assert_eq!(look_up("0").unwrap(), Some(user(0, 0)));
        assert_eq!(look_up("nonsuch-user").unwrap(), None);
        assert_eq!(
            look_up("4000000007").unwrap(),
            Some(user(4_000_000_007, 4_000_000_007))
        );
        assert_eq!(look_up("-1").unwrap(), None);
        assert_eq!(User::find(Some("0")).unwrap(), None);
        assert_eq!(User::find(Some("root")).unwrap(), None);
        assert_eq!("990:985".parse(), Ok(user(990, 985)));
        assert_eq!(user(990, 985).to_string(), "990:985");
        assert_eq!("990".parse::<User>(), Err(NotAUser));
    }

    #[test]
    fn without_a_name_the_own_user_comes_before_nobody() {
        let chosen = |users: &[_]| User::choose(table(users), None).unwrap();
        assert_eq!(chosen(&[OTHER_NOBODY, MIDSPAN]), Some(MIDSPAN.1));
        assert_eq!(chosen(&[OTHER_NOBODY]), Some(OTHER_NOBODY.1));
        assert_eq!(chosen(&[]), Some(NOBODY));
        // Never root, whatever its name is.
        let root = ("midspan", user(0, 0));
        assert_eq!(chosen(&[root]), Some(NOBODY));
        assert_eq!(chosen(&[("nobody", user(0, 0))]), None);
        assert_eq!(User::choose(table(&[root]), Some("midspan")).unwrap(), None);
    }

    #[test]
    fn nobody_is_shared_and_the_own_user_is_not() {
        let users = [MIDSPAN, OTHER_NOBODY];
        let is_nobody = |name: &str| {
            let chosen = User::choose(table(&users), Some(name)).unwrap();
            chosen.unwrap().is_nobody(table(&users))
        };
        assert!(!is_nobody("midspan"));
        assert!(is_nobody("nobody"));
        assert!(is_nobody("65533"));
        // On a machine whose table has no such user.
        assert!(NOBODY.is_nobody(table(&[MIDSPAN])));
        assert!(!NOBODY.is_nobody(table(&users)));
    }
}
