//! Rules and routes as text for people.

use super::early_demux::EarlyDemux;
use super::machine::{self, Machine, QueueMethod};
use super::plan::Plan;
use super::port_reuse::ReusePorts;
use super::{
    InterceptionError, express_lane, marks, queue_method, queue_target, rules, timeouts, untouched,
};

/// The rules and routes that `plan` needs, as text. Nothing is changed.
///
/// # Errors
/// The mark field is too small, or `nft` cannot be run.
pub fn describe(plan: &Plan) -> Result<String, InterceptionError> {
    let marks = marks(plan)?;
    let method = queue_method(plan)?;
    let machine = Machine {
        queue: method,
        reuse_ports: ReusePorts::EXAMPLE,
        early_demux_was: true,
        takes_vrfs: machine::takes_vrfs(),
    };
    let mut text = rules::ruleset(plan, &marks, machine, true);
    text.push_str(&untouched::ruleset(&plan.numbers, plan.interfaces()));
    text.push_str(&express_lane::ruleset(plan, &marks));
    if timeouts::are_possible(&plan.numbers)? {
        text.push_str(&timeouts::ruleset(&plan.numbers));
    }
    if method == QueueMethod::Target {
        text.push_str(&format!(
            "# tables ip {0} and ip6 {0}, hook forward, priority {1}: NFQUEUE {2} with bypass\n",
            queue_target::table(&plan.numbers),
            plan.numbers.forward_priority.saturating_add(1),
            plan.numbers.queue,
        ));
    }
    for mark in &marks.listeners {
        text.push_str(&format!(
            "# ip rule add priority {} fwmark {mark:#010x}/{:#010x} lookup {}  (and ip -6)\n",
            plan.numbers.rule_priority, marks.mask, plan.numbers.routing_table,
        ));
    }
    text.push_str(&format!(
        "# ip route add local default dev lo table {}  (and ip -6)\n# sysctl {}=0\n",
        plan.numbers.routing_table,
        EarlyDemux::NAME,
    ));
    Ok(text)
}
