//! What to add to a firewall that stops intercepted connections, as text. Without I/O.

use super::super::plan::Marks;
use super::table::Hook;
use midspan_linux::nftables::BaseChain;
use midspan_linux::raw_packet::Family;

/// Shell commands that let Midspan's packets pass a hook: one command for each chain that stops the
/// packets. If no such chain was found (iptables-legacy), commands of iptables.
pub fn commands(
    hook: Hook,
    marks: &Marks,
    chains: &[BaseChain],
    families: &[Family],
) -> Vec<String> {
    let mut commands = Vec::new();
    for chain in chains {
        match iptables_table(chain, hook) {
            Some(table) => {
                let family = match chain.family.as_str() {
                    "ip6" => Family::V6,
                    _ => Family::V4,
                };
                commands.extend(iptables(hook, marks, family, table));
            }
            None => commands.push(format!(
                "nft 'insert rule {} {} {} {}'",
                chain.family,
                chain.table,
                chain.name,
                rule(hook, marks),
            )),
        }
    }
    if chains.is_empty() {
        for family in families {
            commands.extend(iptables(hook, marks, *family, "filter"));
        }
    }
    commands
}

/// The rule in the syntax of a chain of nftables.
pub fn rule(hook: Hook, marks: &Marks) -> String {
    match hook {
        // No other program's packets have these marks, because the bits belong to Midspan.
        Hook::Output | Hook::Postrouting => {
            format!("meta mark & {:#010x} != 0 accept", marks.mask)
        }
        Hook::Input | Hook::Prerouting => {
            let all: Vec<String> = marks
                .listeners
                .iter()
                .map(|mark| format!("{mark:#010x}"))
                .collect();
            let all = match &all[..] {
                [one] => one.clone(),
                _ => format!("{{ {} }}", all.join(", ")),
            };
            format!("meta mark & {:#010x} == {all} accept", marks.mask)
        }
    }
}

/// The table of xtables to which a chain belongs, if iptables-nft made it.
fn iptables_table(chain: &BaseChain, hook: Hook) -> Option<&str> {
    let is_one = chain.family != "inet"
        && chain.name == hook.to_string()
        && matches!(
            chain.table.as_str(),
            "filter" | "mangle" | "raw" | "security" | "nat"
        );
    is_one.then_some(chain.table.as_str())
}

fn iptables(hook: Hook, marks: &Marks, family: Family, table: &str) -> Vec<String> {
    let program = match family {
        Family::V4 => "iptables",
        Family::V6 => "ip6tables",
    };
    let table = match table {
        "filter" => String::new(),
        table => format!(" -t {table}"),
    };
    let one =
        |condition: String| format!("{program}{table} -I {hook} -m mark {condition} -j ACCEPT");
    match hook {
        Hook::Output | Hook::Postrouting => vec![one(format!("! --mark 0/{:#010x}", marks.mask))],
        Hook::Input | Hook::Prerouting => marks
            .listeners
            .iter()
            .map(|mark| one(format!("--mark {mark:#010x}/{:#010x}", marks.mask)))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::initial_window::MarkField;

    fn chain(family: &str, table: &str, name: &str) -> BaseChain {
        BaseChain {
            priority: 0,
            family: family.to_owned(),
            table: table.to_owned(),
            name: name.to_owned(),
        }
    }

    fn marks(listeners: usize) -> Marks {
        Marks::new(MarkField::new(0x0f00_0000).unwrap(), listeners, 0).unwrap()
    }

    #[test]
    fn a_chain_of_nftables_gets_a_rule_of_nftables() {
        let chains = [chain("inet", "filter", "input")];
        assert_eq!(
            commands(Hook::Input, &marks(1), &chains, &[Family::V4]),
            ["nft 'insert rule inet filter input meta mark & 0x0f000000 == 0x0b000000 accept'"]
        );
        assert_eq!(
            commands(Hook::Output, &marks(2), &chains[..1], &[Family::V4])[0],
            "nft 'insert rule inet filter input meta mark & 0x0f000000 != 0 accept'"
        );
        assert_eq!(
            rule(Hook::Input, &marks(2)),
            "meta mark & 0x0f000000 == { 0x0b000000, 0x0a000000 } accept"
        );
    }

    #[test]
    fn a_chain_of_iptables_gets_a_rule_of_iptables() {
        let chains = [
            chain("ip6", "filter", "INPUT"),
            chain("ip", "mangle", "INPUT"),
        ];
        assert_eq!(
            commands(Hook::Input, &marks(1), &chains, &[]),
            [
                "ip6tables -I INPUT -m mark --mark 0x0b000000/0x0f000000 -j ACCEPT",
                "iptables -t mangle -I INPUT -m mark --mark 0x0b000000/0x0f000000 -j ACCEPT",
            ]
        );
    }

    #[test]
    fn where_no_chain_is_known_it_is_iptables() {
        assert_eq!(
            commands(Hook::Output, &marks(1), &[], &[Family::V4, Family::V6]),
            [
                "iptables -I OUTPUT -m mark ! --mark 0/0x0f000000 -j ACCEPT",
                "ip6tables -I OUTPUT -m mark ! --mark 0/0x0f000000 -j ACCEPT",
            ]
        );
    }
}
