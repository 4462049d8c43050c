//! Hosts whose new connections pass untouched, as sets and rules. Without I/O.

use std::fmt::Write;

use ipnet::IpNet;

/// The prefixes of each family. A prefix of length 0 is the whole family.
pub struct Bypass {
    families: [Family; 2],
}

struct Family {
    name: &'static str,
    /// The name of the addresses' header in nft's expressions.
    header: &'static str,
    all: bool,
    prefixes: Vec<String>,
}

impl Bypass {
    pub fn of(prefixes: &[IpNet]) -> Self {
        let family = |name, header, is_ipv4| {
            let of_family = || (prefixes.iter()).filter(move |p| p.addr().is_ipv4() == is_ipv4);
            Family {
                name,
                header,
                all: of_family().any(|prefix| prefix.prefix_len() == 0),
                prefixes: of_family()
                    .filter(|prefix| prefix.prefix_len() > 0)
                    .map(IpNet::to_string)
                    .collect(),
            }
        };
        Self {
            families: [family("ipv4", "ip", true), family("ipv6", "ip6", false)],
        }
    }

    /// The names of the [sets](Self::sets).
    pub fn names(&self) -> impl Iterator<Item = String> {
        let with_set = (self.families.iter()).filter(|family| !family.prefixes.is_empty());
        with_set.map(|family| format!("bypass_{}", family.name))
    }

    /// The sets that [`rules`](Self::rules) read.
    pub fn sets(&self) -> String {
        let mut text = String::new();
        for family in &self.families {
            if family.prefixes.is_empty() {
                continue;
            }
            // Writing to a string does not fail. With auto-merge, a prefix may be within another
            // one.
            let _ = writeln!(
                text,
                "\tset bypass_{0} {{\n\t\ttype {0}_addr; flags interval; auto-merge;\n\t\t\
                 elements = {{ {1} }}\n\t}}",
                family.name,
                family.prefixes.join(", ")
            );
        }
        text
    }

    /// The first rules of the chain that intercepts connections.
    pub fn rules(&self) -> Vec<String> {
        let mut rules = Vec::new();
        for Family {
            name,
            header,
            all,
            prefixes,
        } in &self.families
        {
            if *all {
                rules.push(format!("meta nfproto {name} return"));
            }
            if !prefixes.is_empty() {
                rules.push(format!("{header} daddr @bypass_{name} return"));
                rules.push(format!("{header} saddr @bypass_{name} return"));
            }
        }
        rules
    }
}
