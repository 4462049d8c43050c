//! What of the host's firewall prevents a cache of its verdicts. Without I/O.
//!
//! A verdict can be used again only if it follows from the addresses, the server's port and the interface. It
//! cannot if a rule counts connections, limits their rate, records them, or depends on the time of day.

use std::collections::{BTreeMap, BTreeSet};

use midspan_linux::nftables::BaseChain;
use serde_json::Value;

/// Statements and expressions of nftables by whose effect the verdict about a connection may differ from that
/// about the one before, or which have to see each connection (libnftables-json(5)).
const STATEFUL: [(&str, &str); 13] = [
    ("limit", "limits a rate"),
    ("quota", "has a quota"),
    ("ct count", "counts connections"),
    ("log", "logs connections"),
    ("meter", "keeps a set of connections"),
    ("set", "changes a set"),
    ("map", "changes a map"),
    ("queue", "sends packets to a program"),
    ("numgen", "chooses by chance or in turn"),
    ("synproxy", "answers SYNs"),
    ("ct helper", "sets a helper of connection tracking"),
    ("ct expectation", "expects further connections"),
    ("secmark", "labels connections"),
];
/// The keys of `meta` that depend on the time.
const TIMES: [&str; 3] = ["time", "day", "hour"];
/// Matches and targets of xtables whose result depends on the packet alone, for a SYN of a new connection.
const STATELESS_XTABLES: [&str; 27] = [
    "addrtype",
    "comment",
    "conntrack",
    "CONNMARK",
    "connmark",
    "dscp",
    "DSCP",
    "hl",
    "icmp",
    "icmp6",
    "iprange",
    "length",
    "mac",
    "MARK",
    "mark",
    "multiport",
    "physdev",
    "pkttype",
    "policy",
    "REJECT",
    "rpfilter",
    "set",
    "state",
    "tcp",
    "TCPMSS",
    "ttl",
    "udp",
];
/// Most obstacles that are listed.
const LISTED: usize = 8;

/// A chain: the family and the name of its table, and its name.
type Chain = (String, String, String);

/// The obstacles in the chains at the hook `forward`, except in the tables that are `ours`. `all` has all rules of the host as
/// libnftables-json(5) writes them, `forward` the chains at the hook.
pub fn obstacles(
    all: &[Value],
    forward: &[BaseChain],
    is_ours: impl Fn(&str) -> bool,
) -> Vec<String> {
    let mut rules: BTreeMap<Chain, Vec<&Value>> = BTreeMap::new();
    for rule in all {
        if let Some(chain) = chain_of(rule) {
            rules.entry(chain).or_default().push(&rule["expr"]);
        }
    }
    let of_host = forward.iter().filter(|chain| !is_ours(&chain.table));
    let mut to_visit: Vec<Chain> = of_host
        .map(|chain| {
            let BaseChain { family, table, .. } = chain.clone();
            (family, table, chain.name.clone())
        })
        .collect();
    let mut visited = BTreeSet::new();
    let mut found = BTreeSet::new();
    while let Some(chain) = to_visit.pop() {
        if !visited.insert(chain.clone()) {
            continue;
        }
        let (family, table, name) = &chain;
        for expressions in rules.get(&chain).into_iter().flatten() {
            let mut targets = Vec::new();
            // nft writes statements as text for which libnftables-json(5) has no form, such as those that change a map.
            let mut statements = expressions.as_array().into_iter().flatten();
            if let Some(statement) = statements.find_map(Value::as_str) {
                found.insert(format!(
                    "a rule of chain {family} {table} {name} has \"{statement}\""
                ));
            }
            visit(expressions, &mut |key, value| {
                if let ("jump" | "goto", Some(target)) = (key, value["target"].as_str()) {
                    targets.push(target.to_owned());
                }
                if let Some(what) = obstacle(key, value) {
                    found.insert(format!("a rule of chain {family} {table} {name} {what}"));
                }
            });
            let targets = targets.into_iter();
            to_visit.extend(targets.map(|target| (family.clone(), table.clone(), target)));
        }
    }
    found.into_iter().take(LISTED).collect()
}

fn chain_of(rule: &Value) -> Option<Chain> {
    let text = |key: &str| rule[key].as_str().map(str::to_owned);
    Some((text("family")?, text("table")?, text("chain")?))
}

/// Calls `seen` for each member of each object in `value`.
fn visit(value: &Value, seen: &mut impl FnMut(&str, &Value)) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| visit(item, seen)),
        Value::Object(members) => {
            for (key, member) in members {
                seen(key, member);
                visit(member, seen);
            }
        }
        _ => {}
    }
}

fn obstacle(key: &str, value: &Value) -> Option<String> {
    match key {
        "xt" => match value["name"].as_str() {
            Some(name) if STATELESS_XTABLES.contains(&name) => None,
            Some(name) => Some(format!(
                "uses \"{name}\" of iptables, which may depend on earlier connections"
            )),
            None => Some("uses an extension of iptables that nft does not name".to_owned()),
        },
        "meta" => (value["key"].as_str())
            .filter(|key| TIMES.contains(key))
            .map(|_| "depends on the time".to_owned()),
        // `set` and `map` are statements if they have an operation; otherwise they are values.
        "set" | "map" if value.get("op").is_none() => None,
        _ => (STATEFUL.iter())
            .find(|(statement, _)| *statement == key)
            .map(|(_, what)| (*what).to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rule(table: &str, chain: &str, expr: Value) -> Value {
        json!({"family": "ip", "table": table, "chain": chain, "expr": expr})
    }

    fn forward(table: &str) -> BaseChain {
        BaseChain {
            priority: 0,
            family: "ip".to_owned(),
            table: table.to_owned(),
            name: "FORWARD".to_owned(),
        }
    }

    fn found(rules: &[Value]) -> Vec<String> {
        let chains = [forward("filter"), forward("midspan")];
        obstacles(rules, &chains, |table| table == "midspan")
    }

    #[test]
    fn a_firewall_of_addresses_ports_and_states_is_no_obstacle() {
        let match_set =
            json!({"match": {"op": "==", "left": {"payload": {}}, "right": {"set": [80, 443]}}});
        let rules = [
            rule(
                "filter",
                "FORWARD",
                json!([match_set, {"counter": {"packets": 1}}, {"accept": null}]),
            ),
            rule(
                "filter",
                "FORWARD",
                json!([{"xt": {"type": "match", "name": "conntrack"}}, {"drop": null}]),
            ),
            rule(
                "filter",
                "FORWARD",
                json!([{"vmap": {"key": {"meta": {"key": "iifname"}}, "data": {"set": []}}}]),
            ),
            rule("filter", "INPUT", json!([{"limit": {"rate": 5}}])),
            rule("midspan", "FORWARD", json!([{"limit": {"rate": 5}}])),
        ];
        assert_eq!(found(&rules), Vec::<String>::new());
    }

    #[test]
    fn what_depends_on_earlier_connections_or_the_time_is_an_obstacle() {
        for (expression, what) in [
            (
                json!({"limit": {"rate": 5, "per": "second"}}),
                "limits a rate",
            ),
            (json!({"ct count": {"val": 10}}), "counts connections"),
            (json!({"log": null}), "logs connections"),
            (
                json!({"set": {"op": "add", "elem": {}, "set": "@seen"}}),
                "changes a set",
            ),
            (
                json!({"match": {"op": "<", "left": {"meta": {"key": "hour"}}, "right": "18:00"}}),
                "depends on the time",
            ),
            (
                json!({"xt": {"type": "match", "name": "connlimit"}}),
                "uses \"connlimit\" of iptables, which may depend on earlier connections",
            ),
            (
                json!("update @seen { ip saddr : 1 }"),
                "has \"update @seen { ip saddr : 1 }\"",
            ),
            (
                json!({"xt": null}),
                "uses an extension of iptables that nft does not name",
            ),
        ] {
            let rules = [rule("filter", "FORWARD", json!([expression]))];
            let expected = format!("a rule of chain ip filter FORWARD {what}");
            assert_eq!(found(&rules), [expected]);
        }
    }

    #[test]
    fn chains_are_followed_also_in_circles() {
        let jump = |to: &str| json!([{"jump": {"target": to}}]);
        let rules = [
            rule("filter", "FORWARD", jump("USER")),
            rule(
                "filter",
                "USER",
                json!([{"vmap": {"data": {"set": [[80, {"goto": {"target": "WEB"}}]]}}}]),
            ),
            rule("filter", "WEB", jump("FORWARD")),
            rule("filter", "WEB", json!([{"quota": {"val": 10}}])),
            rule("filter", "OTHER", json!([{"limit": {}}])),
        ];
        assert_eq!(found(&rules), ["a rule of chain ip filter WEB has a quota"]);
    }
}
