//! The express lane in force, and why it is closed if it is.

use std::fs;

use midspan_linux::nftables::{self, NftablesError};

use super::obstacles::obstacles;
use super::{Family, families, flush, removal, ruleset, table};
use crate::interception::plan::{Marks, Plan};

/// The tables of the old kernel interface of iptables, whose changes Midspan does not see.
const LEGACY: [&str; 2] = [
    "/proc/self/net/ip_tables_names",
    "/proc/self/net/ip6_tables_names",
];

/// The express lane of an interception.
#[derive(Debug, Default)]
pub struct ExpressLane {
    /// The families whose tables may be in force.
    put: Vec<Family>,
    /// Why it is closed although the plan has one.
    obstacles: Vec<String>,
    /// Whether the kernel and `nft` have been found to support it.
    is_possible: bool,
}

impl ExpressLane {
    /// Why connections of listeners with a cache of verdicts take the usual way; empty if they need not.
    pub fn obstacles(&self) -> &[String] {
        &self.obstacles
    }

    /// The text for `nft -f` that replaces the tables of the express lane, or removes them if it is closed.
    ///
    /// # Errors
    /// `nft` cannot be run.
    pub fn put(
        &mut self,
        plan: &Plan,
        marks: &Marks,
        taking: bool,
    ) -> Result<String, NftablesError> {
        let old = self.put.drain(..);
        let mut text: String = old.map(|family| removal(&plan.numbers, family)).collect();
        self.obstacles = self.find_obstacles(plan, marks)?;
        if taking && self.obstacles.is_empty() {
            text.push_str(&ruleset(plan, marks));
            self.put = families(plan).collect();
        }
        Ok(text)
    }

    /// Whether other obstacles have been found than when the rules were put, after another program has changed
    /// rules.
    ///
    /// # Errors
    /// `nft` cannot be run.
    pub fn has_other_obstacles(
        &mut self,
        plan: &Plan,
        marks: &Marks,
    ) -> Result<bool, NftablesError> {
        Ok(self.find_obstacles(plan, marks)? != self.obstacles)
    }

    /// The text for `nft -f` after which the firewall is asked about each next connection; empty if the express
    /// lane is closed.
    pub fn flush(&self, plan: &Plan) -> String {
        match self.put.is_empty() {
            true => String::new(),
            false => flush(plan),
        }
    }

    /// Its tables as `nft` prints them, without elements.
    ///
    /// # Errors
    /// `nft` cannot be run.
    pub fn tables(&self, plan: &Plan) -> Result<Vec<Option<String>>, NftablesError> {
        let name = table(&plan.numbers);
        let families = self.put.iter();
        families
            .map(|family| nftables::table_without_elements(family.name, &name))
            .collect()
    }

    /// Why it cannot be used at present; empty if it can, and if the plan has none.
    ///
    /// # Errors
    /// `nft` cannot be run.
    pub fn find_obstacles(
        &mut self,
        plan: &Plan,
        marks: &Marks,
    ) -> Result<Vec<String>, NftablesError> {
        if families(plan).next().is_none() {
            return Ok(Vec::new());
        }
        if !self.is_possible {
            match nftables::check(&ruleset(plan, marks)) {
                Ok(()) => self.is_possible = true,
                Err(NftablesError::Refused { complaint, .. }) => {
                    let complaint = complaint.lines().next().unwrap_or_default();
                    return Ok(vec![format!(
                        "the kernel or nft lacks a feature, such as `dup` (CONFIG_NFT_DUP_IPV4, \
                         CONFIG_NFT_DUP_IPV6): {complaint}"
                    )]);
                }
                Err(error) => return Err(error),
            }
        }
        let own = &plan.numbers.table;
        let is_ours = |table: &str| {
            let rest = table.strip_prefix(own.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
        };
        let chains = nftables::base_chains("forward")?;
        let mut found = obstacles(&nftables::rules()?, &chains, is_ours);
        let legacy = LEGACY.map(|list| fs::read_to_string(list).unwrap_or_default());
        if legacy.iter().any(|list| !list.trim().is_empty()) {
            let what = "there are rules of iptables-legacy, whose changes no program can notice";
            found.push(what.to_owned());
        }
        Ok(found)
    }
}
