//! The user that the relay process runs as when root has started it.

use std::fmt;
use std::fs;
use std::str::FromStr;

/// Says to the relay process whom it is to become.
pub(crate) const USER_VARIABLE: &str = "MIDSPAN_RELAY_USER";

/// The user that belongs to Midspan alone (deploy/midspan.sysusers).
pub(crate) const OWN: &str = "midspan";

/// As everywhere on Linux.
const NOBODY: User = User {
    id: 65_534,
    group: 65_534,
};

/// A user and the group of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct User {
    pub id: u32,
    pub group: u32,
}

impl User {
    /// The user of this name or number in `/etc/passwd`; `None` where there is none. Without a
    /// name: the user `midspan`, or `nobody` where there is no such user.
    pub fn find(name: Option<&str>) -> Option<Self> {
        let table = fs::read_to_string("/etc/passwd").unwrap_or_default();
        match name {
            Some(name) => Self::find_in(&table, name),
            None => Self::find_in(&table, OWN)
                .filter(|user| user.id != 0)
                .or_else(|| Self::find_in(&table, "nobody"))
                .or(Some(NOBODY)),
        }
        .filter(|user| user.id != 0)
    }

    /// Whether processes of others may be this user too, and end the relay.
    pub fn is_shared(self) -> bool {
        let table = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let nobody = Self::find_in(&table, "nobody").unwrap_or(NOBODY);
        self.id == nobody.id
    }

    fn find_in(table: &str, name: &str) -> Option<Self> {
        let by_name = table.lines().find_map(|line| {
            let fields: Vec<&str> = line.split(':').collect();
            let [found, _, id, group, ..] = fields[..] else {
                return None;
            };
            (found == name || id == name).then_some(())?;
            Some(Self {
                id: id.parse().ok()?,
                group: group.parse().ok()?,
            })
        });
        by_name.or_else(|| {
            let id = name.parse().ok()?;
            Some(Self { id, group: id })
        })
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.id, self.group)
    }
}

/// What is not a user and a group.
#[derive(Debug)]
pub(crate) struct NotAUser;

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

    #[test]
    fn a_user_is_found_by_name_or_number() {
        let table = "root:x:0:0:root:/root:/bin/sh\nmidspan:x:990:985::/:/usr/sbin/nologin\n";
        let user = |id, group| Some(User { id, group });
        assert_eq!(User::find_in(table, "midspan"), user(990, 985));
        assert_eq!(User::find_in(table, "990"), user(990, 985));
        assert_eq!(User::find_in(table, "991"), user(991, 991));
        assert_eq!(User::find_in(table, "nonsuch"), None);
        assert_eq!("990:985".parse::<User>().ok(), user(990, 985));
        assert_eq!(User::find(Some("0")), None);
    }
}
