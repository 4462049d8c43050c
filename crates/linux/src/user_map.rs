//! Which users exist in this process's user namespace (user_namespaces(7)).

use std::fs;

/// The lines of `/proc/self/uid_map`: first id inside, first id outside, number of ids.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UserMap(Vec<[u32; 3]>);

impl UserMap {
    /// The map of this process; without users where `/proc` does not show it.
    #[must_use]
    pub fn read() -> Self {
        Self::parse(&fs::read_to_string("/proc/self/uid_map").unwrap_or_default())
    }

    fn parse(text: &str) -> Self {
        let line = |line: &str| {
            let numbers = line.split_whitespace().map(|word| word.parse().ok());
            numbers.collect::<Option<Vec<u32>>>()?.try_into().ok()
        };
        Self(text.lines().filter_map(line).collect())
    }

    /// The id that a user of this namespace has on the machine; `None` where there is no such user.
    #[must_use]
    pub fn outside(&self, id: u32) -> Option<u32> {
        self.0.iter().find_map(|[inside, outside, count]| {
            let offset = id.checked_sub(*inside).filter(|offset| offset < count)?;
            outside.checked_add(offset)
        })
    }

    /// Whether all users of the machine exist: an ordinary user's namespace has only one.
    #[must_use]
    pub fn has_all(&self) -> bool {
        self.0.first() == Some(&[0, 0, u32::MAX])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_outside() {
        let machine = UserMap::parse("         0          0 4294967295\n");
        assert!(machine.has_all());
        assert_eq!(machine.outside(65_534), Some(65_534));
        let own = UserMap::parse("         0       1000          1\n");
        assert!(!own.has_all());
        assert_eq!(own.outside(0), Some(1000));
        assert_eq!(own.outside(65_534), None);
        let container = UserMap::parse("0 1000 1\n1 100000 65536\n");
        assert_eq!(container.outside(65_534), Some(165_533));
        assert_eq!(container.outside(65_537), None);
        for other in ["", "a b c\n", "0 0\n", "4294967295 4294967295 2\n"] {
            assert_eq!(UserMap::parse(other).outside(0), None, "{other}");
        }
        let edge = UserMap::parse("0 4294967295 2\n");
        assert_eq!((edge.outside(0), edge.outside(1)), (Some(u32::MAX), None));
        assert_eq!(UserMap::default().outside(0), None);
        assert!(UserMap::read().outside(0).is_some());
    }
}
