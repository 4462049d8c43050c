//! Midspan's routing rules: each leads packets with one mark to one table.

use midspan_linux::netlink::{Netlink, NetlinkError};
use midspan_linux::routing::{family_name, is_same_rule, rules, unless_gone};
use rtnetlink::packet_core::NLM_F_CREATE;
use rtnetlink::packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::ours::protocol;

/// The rules of one purpose.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MarkRules {
    /// For messages, behind the words "the IPv4 rule".
    pub purpose: &'static str,
    /// The priority of all these rules.
    pub priority: u32,
    /// The bits of a mark that belong to Midspan.
    pub mask: u32,
}

impl MarkRules {
    /// The rule that leads packets of this family with this mark to a table.
    pub fn rule(&self, family: AddressFamily, mark: u32, table: u32) -> RuleMessage {
        let mut rule = RuleMessage::default();
        rule.header.family = family;
        rule.header.action = RuleAction::ToTable;
        rule.attributes = vec![
            RuleAttribute::Priority(self.priority),
            RuleAttribute::FwMark(mark),
            RuleAttribute::FwMask(self.mask),
            RuleAttribute::Table(table),
            RuleAttribute::Protocol(protocol()),
        ];
        rule
    }

    /// Adds the missing rules for these marks and their tables; returns their number.
    pub fn ensure(
        &self,
        netlink: &Netlink,
        family: AddressFamily,
        marks_and_tables: impl IntoIterator<Item = (u32, u32)>,
    ) -> Result<usize, NetlinkError> {
        let present = rules(netlink, family)?;
        let mut added = 0;
        for (mark, table) in marks_and_tables {
            let rule = self.rule(family, mark, table);
            if present.iter().any(|other| is_same_rule(other, &rule)) {
                continue;
            }
            netlink.change(
                || format!("add the {} rule {}", family_name(family), self.purpose),
                RouteNetlinkMessage::NewRule(rule),
                NLM_F_CREATE,
            )?;
            added += 1;
        }
        Ok(added)
    }

    /// Removes a rule; returns `false` if it did not exist any more.
    pub fn remove(&self, netlink: &Netlink, rule: RuleMessage) -> Result<bool, NetlinkError> {
        let family = family_name(rule.header.family);
        unless_gone(netlink.change(
            || format!("remove the {family} rule {}", self.purpose),
            RouteNetlinkMessage::DelRule(rule),
            0,
        ))
    }
}
