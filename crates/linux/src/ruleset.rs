//! What the host's nftables rules use of what Midspan uses too: marks, conntrack zones, queues.
//!
//! Read from `nft -j list ruleset` (libnftables-json(5)). Rules of xtables extensions are not
//! seen by it.

use serde_json::Value;

use crate::nftables::{self, NftablesError};

/// What a rule does with marks, zones or queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Compares a packet's mark: these bits of it with this value.
    CompareMark {
        /// The bits that count.
        mask: u32,
        /// The value.
        value: u32,
    },
    /// Sets a packet's whole mark.
    SetWholeMark(u32),
    /// Sets these bits of a packet's mark.
    SetMarkBits(u32),
    /// Sets a conntrack zone.
    SetZone(u32),
    /// Puts packets into a queue.
    Queue(u32),
}

/// A use, and in which chain.
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
/// # Errors
/// `nft` cannot be run, or refuses.
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

/// A number, or those of a set.
fn numbers(value: &Value) -> Vec<u32> {
    match value.get("set").and_then(Value::as_array) {
        Some(set) => set.iter().filter_map(number).collect(),
        None => number(value).into_iter().collect(),
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
}
