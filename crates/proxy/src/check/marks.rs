//! Other users of marks.

use midspan_gateway::interception::Marks;
use midspan_gateway::interception::survey::{ForeignRule, Survey};
use midspan_gateway::ruleset::{self, RuleUse, Use};

use super::{Context, Finding};

const CHECK: &str = "marks";

pub(super) fn findings(context: &Context<'_>) -> Vec<Finding> {
    let place = &context.configuration.interception.numbers;
    let ours = place.marks.mask();
    let rules = match Survey::take(place) {
        Ok(survey) => survey.rules,
        Err(error) => return vec![Finding::warning(CHECK, error.to_string(), "run as root")],
    };
    let mut problem = None;
    // Without nft or without privileges, only routing rules are visible.
    let uses: Vec<RuleUse> = match ruleset::uses() {
        Ok(uses) => uses,
        Err(error) => {
            problem = Some(Finding::warning(CHECK, error.to_string(), "run as root"));
            Vec::new()
        }
    };
    let own = |name: &str| {
        name.strip_prefix(place.table.as_str())
            .is_some_and(|rest| matches!(rest, "" | "_queue" | "_probe" | "_check" | "_timeouts"))
    };
    // The error recommends a rule that lets Midspan's packets pass.
    let listeners = context.configuration.transparent().count();
    let listeners =
        Marks::new(place.marks, listeners, 0).map_or_else(|_| Vec::new(), |m| m.listeners);
    let lets_pass = |what: Use| {
        matches!(what, Use::CompareMark { mask, value }
            if mask == ours && (value == 0 || listeners.contains(&value)))
    };
    let uses: Vec<RuleUse> = uses
        .into_iter()
        .filter(|rule| !own(&rule.table) && !lets_pass(rule.what))
        .collect();
    let free = free_mask(ours, &rules, &uses);
    let mut findings: Vec<Finding> = rules
        .iter()
        .filter_map(|rule| routing_rule(rule, ours, free))
        .chain(uses.iter().filter_map(|use_| rule(use_, ours, free)))
        .collect();
    findings.dedup();
    findings.extend(problem);
    if findings.is_empty() {
        let found = format!("no other program uses the bits {ours:#010x}");
        findings.push(Finding::ok(CHECK, found));
    }
    findings
}

fn routing_rule(rule: &ForeignRule, ours: u32, free: Option<u32>) -> Option<Finding> {
    let (mark, mask) = rule.mark?;
    if mask & ours == 0 {
        return None;
    }
    let text = format!(
        "the routing rule {}: fwmark {mark:#x}/{mask:#x} lookup {}",
        rule.priority, rule.table
    );
    if mark & ours != 0 {
        return Some(Finding::missing(
            CHECK,
            format!("{text} uses bits of Midspan's mask {ours:#010x}"),
            other_mask(free),
        ));
    }
    Some(Finding::warning(
        CHECK,
        format!("{text} compares all bits, and does not match where Midspan's are set"),
        format!("in that rule: fwmark {mark:#x}/{:#x}", mask & !ours),
    ))
}

fn rule(rule: &RuleUse, ours: u32, free: Option<u32>) -> Option<Finding> {
    let chain = &rule.chain;
    match rule.what {
        Use::CompareMark { mask, value } if mask & value & ours != 0 => Some(Finding::missing(
            CHECK,
            format!("chain \"{chain}\" uses bits of Midspan's mask {ours:#010x}"),
            other_mask(free),
        )),
        Use::CompareMark { mask, value } if mask & ours != 0 && mask == u32::MAX && value != 0 => {
            Some(Finding::warning(
                CHECK,
                format!(
                    "chain \"{chain}\" compares all bits of marks with {value:#x}, and does not \
                     match where Midspan's are set"
                ),
                format!("in that rule: meta mark & {:#010x} == {value:#x}", !ours),
            ))
        }
        Use::SetMarkBits(bits) if bits & ours != 0 => Some(Finding::missing(
            CHECK,
            format!("chain \"{chain}\" sets bits of Midspan's mask {ours:#010x}"),
            other_mask(free),
        )),
        Use::SetWholeMark(value) if value & ours != 0 => Some(Finding::missing(
            CHECK,
            format!("chain \"{chain}\" sets bits of Midspan's mask {ours:#010x}"),
            other_mask(free),
        )),
        Use::SetWholeMark(value) => Some(Finding::warning(
            CHECK,
            format!("chain \"{chain}\" sets whole marks, and Midspan's bits in them to 0"),
            format!("in that rule: meta mark set meta mark & {ours:#010x} | {value:#x}"),
        )),
        _ => None,
    }
}

fn other_mask(free: Option<u32>) -> String {
    match free {
        Some(mask) => format!("in the configuration: [marks] mask = {mask:#010x}"),
        None => "other bits for [marks] mask, or for the other user".to_owned(),
    }
}

/// The same number of bits that no other program uses, the highest first.
fn free_mask(ours: u32, rules: &[ForeignRule], uses: &[RuleUse]) -> Option<u32> {
    let in_rules = rules
        .iter()
        .filter_map(|rule| rule.mark)
        // A rule that compares all bits uses those of its mark.
        .map(|(mark, mask)| if mask == u32::MAX { mark } else { mask });
    let in_uses = uses.iter().map(|rule| match rule.what {
        Use::CompareMark { mask, value } if mask == u32::MAX => value,
        Use::CompareMark { mask, .. } => mask,
        Use::SetWholeMark(bits) | Use::SetMarkBits(bits) => bits,
        Use::SetZone(_) | Use::Queue(_) => 0,
    });
    let used = in_rules.chain(in_uses).fold(0, |all, bits| all | bits);
    let field = ours >> ours.trailing_zeros();
    (0..=field.leading_zeros())
        .rev()
        .map(|shift| field << shift)
        .find(|mask| mask & used == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::State;

    const OURS: u32 = 0x0f00_0000;

    fn foreign(mark: u32, mask: u32) -> ForeignRule {
        ForeignRule {
            priority: 1000,
            mark: Some((mark, mask)),
            table: 200,
        }
    }

    #[test]
    fn rules_beside_and_rules_in_the_way() {
        assert_eq!(routing_rule(&foreign(2, 0xff), OURS, None), None);
        let clash = routing_rule(&foreign(0x0100_0000, 0xff00_0000), OURS, Some(0xf0)).unwrap();
        assert_eq!(clash.state, State::Missing);
        assert!(clash.mend.unwrap().ends_with("mask = 0x000000f0"));
        let whole = routing_rule(&foreign(2, u32::MAX), OURS, None).unwrap();
        assert_eq!(whole.state, State::Warning);
        assert_eq!(whole.mend.unwrap(), "in that rule: fwmark 0x2/0xf0ffffff");
    }

    #[test]
    fn a_free_mask_is_as_wide_and_nobodys() {
        assert_eq!(free_mask(OURS, &[], &[]), Some(0xf000_0000));
        let rules = [foreign(0x8000_0000, u32::MAX), foreign(0x0100_0000, OURS)];
        assert_eq!(free_mask(OURS, &rules, &[]), Some(0x00f0_0000));
        assert_eq!(free_mask(u32::MAX, &rules, &[]), None);
    }
}
