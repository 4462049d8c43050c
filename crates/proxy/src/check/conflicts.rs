//! Names and numbers that may be somebody else's, a Midspan that runs, and what a crashed one
//! has left.

use midspan_gateway::interception::survey::{self, Survey};
use midspan_gateway::ruleset::{self, Use};
use midspan_linux::{nftables, owner::Owner};

use super::{Context, Finding};

pub(super) fn findings(context: &Context<'_>) -> Vec<Finding> {
    let place = &context.configuration.interception.numbers;
    let mut findings = Vec::new();
    let survey = match Survey::take(place) {
        Ok(survey) => survey,
        Err(error) => {
            return vec![Finding::warning(
                "routing rules",
                error.to_string(),
                "run as root",
            )];
        }
    };
    findings.push(running(context, &survey));
    findings.push(routing_table(context, &survey));
    findings.push(priority(context, &survey));
    findings.push(queue(context));
    findings.push(table(context, &survey));
    findings.extend(zones(context));
    findings
}

/// Rules and routes of ours without a process that has made them.
pub(super) fn has_leftovers(context: &Context<'_>, survey: &Survey) -> bool {
    survey.has_ours && context.running.is_none()
}

fn named(owner: Option<&Owner>) -> String {
    owner.map_or_else(
        || "a process that is not to be seen from here".to_owned(),
        ToString::to_string,
    )
}

fn running(context: &Context<'_>, survey: &Survey) -> Finding {
    const CHECK: &str = "another Midspan";
    match &context.running {
        Some(owner) => Finding::ok(CHECK, format!("runs already: {}", named(owner.as_ref()))),
        None if has_leftovers(context, survey) => Finding::warning(
            CHECK,
            "none runs, but one that was killed has left rules and routes; they let everything \
             pass",
            "start midspan run, which removes them first",
        ),
        None => Finding::ok(CHECK, "none runs, and none has left anything"),
    }
}

fn routing_table(context: &Context<'_>, survey: &Survey) -> Finding {
    let number = context.configuration.interception.numbers.routing_table;
    let check = format!("routing table {number}");
    if !survey.routing_tables.contains(&number) {
        return Finding::ok(check, "nobody else's");
    }
    let free = (number..).find(|other| !survey.routing_tables.contains(other));
    Finding::missing(
        check,
        "has routes that are not Midspan's",
        format!(
            "in the configuration: [interception] routing_table = {}",
            free.unwrap_or(number)
        ),
    )
}

/// Equal ones are possible, but which is first is then a matter of time.
fn priority(context: &Context<'_>, survey: &Survey) -> Finding {
    let number = context.configuration.interception.numbers.rule_priority;
    let check = format!("rule priority {number}");
    let is_taken = |number| survey.rules.iter().any(|rule| rule.priority == number);
    if !is_taken(number) {
        return Finding::ok(check, "nobody else's");
    }
    let free = (1..number).rev().find(|number| !is_taken(*number));
    Finding::warning(
        check,
        "somebody else's rule has it too: which one is first is left to chance",
        format!(
            "in the configuration: [interception] rule_priority = {}",
            free.unwrap_or(number)
        ),
    )
}

fn queue(context: &Context<'_>) -> Finding {
    let number = context.configuration.interception.numbers.queue;
    let check = format!("queue {number}");
    match survey::queue_owner(number) {
        None => Finding::ok(check, "nobody else's"),
        Some(owner) if context.running.is_some() => Finding::ok(
            check,
            format!("in use by {}: the Midspan that runs", named(owner.as_ref())),
        ),
        Some(owner) => {
            let free = (number..=u16::MAX).find(|other| survey::queue_owner(*other).is_none());
            Finding::missing(
                check,
                format!("in use by {}", named(owner.as_ref())),
                format!(
                    "in the configuration: [interception] queue = {}",
                    free.unwrap_or(0)
                ),
            )
        }
    }
}

fn table(context: &Context<'_>, survey: &Survey) -> Finding {
    let name = &context.configuration.interception.numbers.table;
    let check = format!("table inet {name}");
    let tables = match nftables::tables() {
        Ok(tables) => tables,
        Err(error) => return Finding::warning(check, error.to_string(), "run as root"),
    };
    let is_there = tables
        .iter()
        .any(|(family, table)| family == "inet" && table == name);
    if !is_there {
        return Finding::ok(check, "nobody else's");
    }
    if context.running.is_some() || survey.has_ours {
        return Finding::ok(check, "Midspan's own");
    }
    Finding::missing(
        check,
        "is there, and not made by Midspan, which would replace it",
        format!("in the configuration: [interception] table = \"{name}_proxy\""),
    )
}

fn zones(context: &Context<'_>) -> Option<Finding> {
    let place = &context.configuration.interception.numbers;
    let zone = u32::from(place.zone);
    let check = format!("conntrack zones {zone}, {}", zone + 1);
    let uses = ruleset::uses().ok()?;
    let clash = uses.iter().find(|rule| {
        let is_ours = rule.table.starts_with(place.table.as_str());
        let is_same =
            matches!(rule.what, Use::SetZone(other) if other == zone || other == zone + 1);
        is_same && !is_ours
    });
    Some(match clash {
        None => Finding::ok(check, "nobody else's"),
        Some(rule) => Finding::missing(
            check,
            format!("chain \"{}\" sets one of them", rule.chain),
            format!(
                "in the configuration: [interception] zone = {}",
                zone ^ 0x80
            ),
        ),
    })
}
