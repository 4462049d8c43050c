//! The uses of marks, connection tracking zones and queues in the host's nftables rules, which could conflict
//! with Midspan's own marks, zones and queues.
//!
//! The rules are read from `nft -j list ruleset` (libnftables-json(5)). That output does not contain rules of
//! xtables extensions.

use std::collections::BTreeSet;

use serde_json::Value;

use midspan_linux::nftables::{self, NftablesError};

/// What a rule does with marks, zones or queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Compares bits of a packet's mark with a value.
    CompareMark {
        /// The compared bits.
        mask: u32,
        /// The value.
        value: u32,
    },
    /// Sets a packet's whole mark.
    SetWholeMark(u32),
    /// Sets these bits of a packet's mark.
    SetMarkBits(u32),
    /// Sets the zone of connection tracking.
    SetZone(u32),
    /// Puts packets into a queue.
    Queue(u32),
}

/// A use of a mark, a zone or a queue, and its chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleUse {
    /// Family, table and chain, as in `"inet filter input"`.
    pub chain: String,
    /// Name of the table.
    pub table: String,
    /// What the rule does.
    pub what: Use,
}

/// The uses of all rules.
///
/// `nft` cannot be run, or reports an error.
pub fn uses() -> Result<Vec<RuleUse>, NftablesError> {
    let rules = nftables::rules()?;
    Ok(rules.iter().flat_map(uses_of).collect())
}

pub(crate) fn uses_of(rule: &Value) -> Vec<RuleUse> {
    let text = |key: &str| rule[key].as_str().unwrap_or_default();
    let chain = format!("{} {} {}", text("family"), text("table"), text("chain"));
    let statements = rule["expr"].as_array().map_or(&[][..], Vec::as_slice);
    statements
        .iter()
        .flat_map(statement)
        .map(|what| RuleUse {
            chain: chain.clone(),
            table: text("table").to_owned(),
            what,
        })
        .collect()
}

fn statement(statement: &Value) -> Vec<Use> {
    if let Some(compared) = statement.get("match") {
        let left = &compared["left"];
        let mask = if is_mark(left) {
            u32::MAX
        } else if let Some([inner, mask]) = operands(left, "&")
            && is_mark(inner)
        {
            number(mask).unwrap_or(u32::MAX)
        } else {
            return Vec::new();
        };
        return numbers(&compared["right"])
            .into_iter()
            .map(|value| Use::CompareMark { mask, value })
            .collect();
    }
    if let Some(set) = statement.get("mangle") {
        return mangle(set).into_iter().collect();
    }
    let queue = statement
        .get("queue")
        .and_then(|queue| number(&queue["num"]));
    queue.map(Use::Queue).into_iter().collect()
}

fn mangle(set: &Value) -> Option<Use> {
    let value = &set["value"];
    if set["key"]["ct"]["key"] == "zone" {
        return number(value).map(Use::SetZone);
    }
    if !is_mark(&set["key"]) {
        return None;
    }
    if let Some(value) = number(value) {
        return Some(Use::SetWholeMark(value));
    }
    match operands(value, "|") {
        // `mark | bits`, or `mark & others | bits`.
        Some([_, bits]) => number(bits).map(Use::SetMarkBits),
        None => operands(value, "&")
            .and_then(|[_, kept]| number(kept))
            .map(|kept| Use::SetMarkBits(!kept)),
    }
}

fn is_mark(value: &Value) -> bool {
    value["meta"]["key"] == "mark"
}

fn operands<'a>(value: &'a Value, operator: &str) -> Option<[&'a Value; 2]> {
    match value.get(operator)?.as_array()?.as_slice() {
        [left, right] => Some([left, right]),
        _ => None,
    }
}

fn number(value: &Value) -> Option<u32> {
    u32::try_from(value.as_u64()?).ok()
}

/// A number, or the numbers of a set.
fn numbers(value: &Value) -> Vec<u32> {
    match value.get("set").and_then(Value::as_array) {
        Some(set) => set.iter().filter_map(number).collect(),
        None => number(value).into_iter().collect(),
    }
}

/// What a rule does with whole connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionUse {
    /// Counts open connections: `ct count`, `connlimit` of iptables.
    Count,
    /// Counts bytes: `quota`.
    Quota,
    /// Assigns a connection tracking helper (`ct helper`). It reads the data of connections, and
    /// detects other connections that the data announces.
    Helper,
}

/// A rule about whole connections, and its chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionRule {
    /// Family, table and chain, as in `"inet filter forward"`.
    pub chain: String,
    /// Name of the table.
    pub table: String,
    /// Whether forwarded packets pass this rule.
    pub is_in_forward: bool,
    /// What the rule does.
    pub what: ConnectionUse,
}

/// All rules that do something with whole connections.
///
/// `nft` cannot be run, or reports an error.
pub fn connection_rules() -> Result<Vec<ConnectionRule>, NftablesError> {
    let forward = nftables::base_chains("forward")?;
    let forward = forward
        .iter()
        .map(|chain| format!("{} {} {}", chain.family, chain.table, chain.name));
    Ok(connection_rules_of(&nftables::rules()?, forward.collect()))
}

fn connection_rules_of(rules: &[Value], forward: BTreeSet<String>) -> Vec<ConnectionRule> {
    let text = |rule: &Value, key: &str| rule[key].as_str().unwrap_or_default().to_owned();
    let table = |rule: &Value| format!("{} {}", text(rule, "family"), text(rule, "table"));
    let chain = |rule: &Value| format!("{} {}", table(rule), text(rule, "chain"));
    // The chains that forwarded packets pass: the hook's base chains, and all chains to which they
    // lead.
    let mut reached = forward;
    loop {
        let known = reached.len();
        for rule in rules
            .iter()
            .filter(|rule| reached.contains(&chain(rule)))
            .collect::<Vec<_>>()
        {
            walk(&rule["expr"], &mut |key, value| {
                if matches!(key, "jump" | "goto")
                    && let Some(target) = value["target"].as_str()
                {
                    reached.insert(format!("{} {target}", table(rule)));
                }
            });
        }
        if reached.len() == known {
            break;
        }
    }
    let mut found = Vec::new();
    for rule in rules {
        walk(&rule["expr"], &mut |key, value| {
            let what = match (key, value["name"].as_str()) {
                ("ct count", _) | ("xt", Some("connlimit")) => ConnectionUse::Count,
                ("quota", _) | ("xt", Some("quota")) => ConnectionUse::Quota,
                ("ct helper", _) => ConnectionUse::Helper,
                _ => return,
            };
            found.push(ConnectionRule {
                chain: chain(rule),
                table: text(rule, "table"),
                is_in_forward: reached.contains(&chain(rule)),
                what,
            });
        });
    }
    found
}

/// Calls `visit` for every key and value of all objects inside `value`, at any depth.
fn walk(value: &Value, visit: &mut impl FnMut(&str, &Value)) {
    match value {
        Value::Object(fields) => {
            for (key, inner) in fields {
                visit(key, inner);
                walk(inner, visit);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| walk(item, visit)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn uses_are_read_from_rules() {
        let mark = json!({"meta": {"key": "mark"}});
        let rule = json!({
            "family": "inet", "table": "host", "chain": "pre",
            "expr": [
                {"match": {"op": "==", "left": {"&": [mark, 255]}, "right": 2}},
                {"match": {"op": "==", "left": mark, "right": {"set": [1, 7]}}},
                {"match": {"op": "==", "left": {"payload": {}}, "right": 5}},
                {"mangle": {"key": mark, "value": 3}},
                {"mangle": {"key": mark, "value": {"|": [mark, 16]}}},
                {"mangle": {"key": mark, "value": {"&": [mark, 0xffff_ff00_u32]}}},
                {"mangle": {"key": {"ct": {"key": "zone"}}, "value": 9}},
                {"queue": {"num": 4, "flags": "bypass"}},
                {"counter": null},
                {"xt": null}
            ]
        });
        let uses: Vec<Use> = uses_of(&rule).into_iter().map(|u| u.what).collect();
        let compare = |mask, value| Use::CompareMark { mask, value };
        assert_eq!(
            uses,
            [
                compare(255, 2),
                compare(u32::MAX, 1),
                compare(u32::MAX, 7),
                Use::SetWholeMark(3),
                Use::SetMarkBits(16),
                Use::SetMarkBits(255),
                Use::SetZone(9),
                Use::Queue(4),
            ]
        );
        assert_eq!(uses_of(&json!({})), []);
    }

    #[test]
    fn rules_about_connections_are_found_where_forwarded_packets_come_by() {
        let rule = |chain: &str, expression: Value| {
            json!({
                "family": "inet", "table": "filter", "chain": chain, "expr": expression
            })
        };
        let rules = [
            rule(
                "forward",
                json!([
                    {"match": {"op": "in", "left": {"ct": {"key": "state"}}, "right": "new"}},
                    {"set": {"op": "add", "elem": 1, "set": "@s", "stmt": [{"ct count": {"val": 5}}]}},
                ]),
            ),
            rule(
                "forward",
                json!([{"vmap": {"key": 1, "data": {"set": [[2, {"goto": {"target": "a"}}]]}}}]),
            ),
            rule("a", json!([{"jump": {"target": "b"}}])),
            rule("b", json!([{"quota": {"val": 5}}, {"drop": null}])),
            rule(
                "b",
                json!([{"xt": {"type": "match", "name": "connlimit"}}, {"xt": null}]),
            ),
            rule("input", json!([{"ct count": {"val": 7}}])),
            rule("pre", json!([{"ct helper": "ftp"}])),
        ];
        let forward = ["inet filter forward".to_owned()].into();
        let found: Vec<_> = connection_rules_of(&rules, forward)
            .into_iter()
            .map(|rule| (rule.chain, rule.is_in_forward, rule.what))
            .collect();
        let expected = [
            ("forward", true, ConnectionUse::Count),
            ("b", true, ConnectionUse::Quota),
            ("b", true, ConnectionUse::Count),
            ("input", false, ConnectionUse::Count),
            ("pre", false, ConnectionUse::Helper),
        ];
        assert_eq!(
            found,
            expected.map(|(chain, of, what)| (format!("inet filter {chain}"), of, what))
        );
        assert_eq!(
            connection_rules_of(&[json!({}), json!([])], BTreeSet::new()),
            []
        );
    }
}
