//! The user that the relay process runs as when root has started it.

use std::fmt;
use std::fs;
use std::str::FromStr;

/// The environment variable with the user for the relay process.
pub(crate) const USER_VARIABLE: &str = "MIDSPAN_RELAY_USER";

/// The user that belongs to Midspan alone (deploy/midspan.sysusers).
pub(crate) const OWN: &str = "midspan";

/// The user `nobody`, as everywhere on Linux.
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
        Self::choose_from(&users(), name)
    }

    fn choose_from(table: &str, name: Option<&str>) -> Option<Self> {
        match name {
            Some(name) => Self::find_in(table, name),
            None => Self::find_in(table, OWN)
                .filter(|user| user.id != 0)
                .or_else(|| Self::find_in(table, "nobody"))
                .or(Some(NOBODY)),
        }
        .filter(|user| user.id != 0)
    }

    /// Whether other programs may run as this user, and could end the relay.
    pub fn is_shared(self) -> bool {
        self.is_nobody_in(&users())
    }

    fn is_nobody_in(self, table: &str) -> bool {
        let nobody = Self::find_in(table, "nobody").unwrap_or(NOBODY);
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

fn users() -> String {
    fs::read_to_string("/etc/passwd").unwrap_or_default()
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.id, self.group)
    }
}

/// A text that is not a user and a group.
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

    const MIDSPAN: &str = "midspan:x:990:985::/:/usr/sbin/nologin\n";
    const NOBODY_LINE: &str = "nobody:x:65533:65532:nobody:/:/usr/sbin/nologin\n";

    #[test]
    fn without_a_name_the_own_user_comes_before_nobody() {
        let chosen = |table: &str| User::choose_from(table, None);
        let user = |id, group| Some(User { id, group });
        assert_eq!(chosen(&format!("{NOBODY_LINE}{MIDSPAN}")), user(990, 985));
        assert_eq!(chosen(NOBODY_LINE), user(65_533, 65_532));
        assert_eq!(chosen(""), Some(NOBODY));
        // Never root, whatever its name is.
        let root = "midspan:x:0:0::/:/bin/sh\n";
        assert_eq!(chosen(root), Some(NOBODY));
        assert_eq!(User::choose_from(root, Some("midspan")), None);
    }

    #[test]
    fn nobody_is_shared_and_the_own_user_is_not() {
        let table = format!("{MIDSPAN}{NOBODY_LINE}");
        let chosen = |name: &str| User::choose_from(&table, Some(name)).unwrap();
        assert!(!chosen("midspan").is_nobody_in(&table));
        assert!(chosen("nobody").is_nobody_in(&table));
        assert!(chosen("65533").is_nobody_in(&table));
        // On a machine whose table has no such user.
        assert!(NOBODY.is_nobody_in(MIDSPAN));
        assert!(!NOBODY.is_nobody_in(&table));
    }
}
