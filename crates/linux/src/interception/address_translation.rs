//! Whether the host itself translates addresses (NAT).
//!
//! Our own rule against it is a chain of the type `nat`, and the first such chain makes the kernel
//! look after the translation of every connection. So it is there only where the host has one too.

use std::fs;

use crate::nftables;

/// The tables of iptables-legacy of this network namespace, one a line.
const LEGACY_TABLES: [&str; 2] = [
    "/proc/self/net/ip_tables_names",
    "/proc/self/net/ip6_tables_names",
];

/// Whether any table but the one with this name may translate addresses; also where that cannot
/// be found out.
pub fn is_there(own_table: &str) -> bool {
    let legacy = LEGACY_TABLES
        .iter()
        .any(|file| fs::read_to_string(file).is_ok_and(|names| names_nat(&names)));
    legacy
        || nftables::translating_tables().map_or(true, |tables| {
            tables
                .iter()
                .any(|(family, table)| (family.as_str(), table.as_str()) != ("inet", own_table))
        })
}

fn names_nat(names: &str) -> bool {
    names.lines().any(|name| name.trim() == "nat")
}

#[cfg(test)]
mod tests {
    use super::names_nat;

    #[test]
    fn only_the_table_nat_translates() {
        assert!(names_nat("filter\nnat\n"));
        assert!(!names_nat("filter\nmangle\n") && !names_nat(""));
    }
}
