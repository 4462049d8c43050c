//! Connection tracking: whether its table is large enough for the expected connections, whether it
//! deletes entries of live sessions, and rules of the host that see only a part of a session.

use midspan_gateway::interception::timeouts;
use midspan_gateway::ruleset::{self, ConnectionUse};
use midspan_linux::connection_tracking::Occupancy;
use midspan_policy::Leg;
use midspan_units::TimeSpan;

use super::sysctls::number;
use super::{Context, Finding};
use crate::configuration::ports;

/// Fewer entries than this are used up by a few thousand sessions.
const FEW_ENTRIES: u64 = 32_768;

pub(super) fn findings(context: &Context<'_>) -> Vec<Finding> {
    let place = &context.configuration.interception.numbers;
    let has_timeouts = timeouts::are_possible(place).unwrap_or(false);
    let mut findings = table();
    findings.extend(established(context, has_timeouts));
    findings.push(helper_ports(context));
    findings.extend(rules(context));
    findings
}

fn table() -> Vec<Finding> {
    const NAME: &str = "net.netfilter.nf_conntrack_max";
    let check = format!("sysctl {NAME}");
    let Some(Occupancy { entries, limit }) = Occupancy::read_files() else {
        return vec![Finding::ok(check, "the module is not loaded yet")];
    };
    let Some(limit) = limit else {
        return vec![Finding::ok(check, format!("no limit; {entries} in use"))];
    };
    let found = format!(
        "{entries} of {limit} in use; an intercepted connection takes two entries, and above 7/8 \
         new ones pass untouched"
    );
    let is_tight = limit < FEW_ENTRIES || entries.saturating_mul(5) > limit.saturating_mul(4);
    let wanted = limit.saturating_mul(4).max(262_144);
    vec![match is_tight {
        true => Finding::warning(check, found, format!("sysctl -w {NAME}={wanted}")),
        false => Finding::ok(check, found),
    }]
}

/// If an entry expires before its session, a strict firewall drops the client's packets.
fn established(context: &Context<'_>, has_timeouts: bool) -> Option<Finding> {
    const NAME: &str = "net.netfilter.nf_conntrack_tcp_timeout_established";
    let host = number(NAME)?;
    let check = format!("sysctl {NAME}");
    let found = format!("{host} s");
    if has_timeouts {
        let found = format!("{found}; Midspan's own entries stay for 5 days at least");
        return Some(Finding::ok(check, found));
    }
    let longest = context
        .configuration
        .legs()
        .filter(|(listener, ..)| listener.transparent().is_some())
        .map(|(listener, leg, settings)| (settings.keepalive, listener, leg))
        .max_by_key(|(keepalive, ..)| (keepalive.is_none(), *keepalive));
    let (keepalive, listener, leg) = longest?;
    let leg = match leg {
        Leg::Client => "client_leg",
        Leg::Server => "server_leg",
    };
    let said = match keepalive {
        Some(keepalive) if keepalive < TimeSpan::from_seconds(host) => {
            let found = format!("{found}, longer than every keepalive ({keepalive} at most)");
            return Some(Finding::ok(check, found));
        }
        Some(keepalive) => format!("not longer than keepalive = \"{keepalive}\""),
        None => "and there is no keepalive".to_owned(),
    };
    Some(Finding::warning(
        check,
        format!(
            "{found}, {said} ({leg} of \"{}\"): a session that is idle for so long hangs where \
             `input` accepts established connections only",
            listener.relay.name
        ),
        "a keepalive below it, and in the chain `input`, first: meta l4proto tcp socket \
         transparent 1 accept",
    ))
}

fn helper_ports(context: &Context<'_>) -> Finding {
    const CHECK: &str = "helpers of connection tracking";
    let settings = &context.configuration.interception;
    let helper_rule = ruleset::connection_rules()
        .unwrap_or_default()
        .into_iter()
        .find(|rule| rule.what == ConnectionUse::Helper);
    let taken = context
        .configuration
        .transparent()
        .map(|(listener, transparent)| (listener, settings.helper_ports_taken(transparent)))
        .find(|(_, taken)| !taken.is_empty());
    match (taken, helper_rule) {
        (Some((listener, taken)), Some(rule)) => Finding::warning(
            CHECK,
            format!(
                "chain \"{}\" gives connections a helper, which sees nothing of those that \
                 listener \"{}\" takes, among them ports {}: their data connections (FTP, SIP \
                 and others) fail",
                rule.chain,
                listener.relay.name,
                ports(&taken)
            ),
            "in the configuration: except_ports of the listener, or interception.helper_ports, \
             with the helper's ports",
        ),
        (Some((listener, taken)), None) => Finding::ok(
            CHECK,
            format!(
                "listener \"{}\" takes ports {}, and no rule gives connections a helper",
                listener.relay.name,
                ports(&taken)
            ),
        ),
        (None, _) => Finding::ok(CHECK, "their control ports are left alone, or not taken"),
    }
}

/// Rules that see only the first segment of a session.
fn rules(context: &Context<'_>) -> Vec<Finding> {
    const CHECK: &str = "rules that count connections";
    let own = &context.configuration.interception.numbers.table;
    // Without privileges the rules are not visible, which another check reports.
    let Ok(rules) = ruleset::connection_rules() else {
        return Vec::new();
    };
    let mut findings: Vec<Finding> = rules
        .iter()
        .filter(|rule| rule.is_in_forward && !rule.table.starts_with(own.as_str()))
        .filter_map(|rule| {
            let chain = &rule.chain;
            match rule.what {
                ConnectionUse::Count => Some(Finding::warning(
                    CHECK,
                    format!(
                        "chain \"{chain}\" limits open connections (ct count, connlimit), and does \
                         not count those that Midspan takes"
                    ),
                    "in the configuration: sessions_per_client of the listener, or in [limits]",
                )),
                ConnectionUse::Quota => Some(Finding::warning(
                    CHECK,
                    format!(
                        "chain \"{chain}\" has a quota, which counts the first segment only of \
                         connections that Midspan takes"
                    ),
                    "count in prerouting and postrouting, which see every packet, or put the \
                     clients into `except`",
                )),
                ConnectionUse::Helper => None,
            }
        })
        .collect();
    findings.dedup();
    if findings.is_empty() {
        findings.push(Finding::ok(CHECK, "none in forward"));
    }
    findings
}
