//! The plan: what to run.

use std::path::PathBuf;

use midspan_conformance::Family;

use crate::case::Case;
use crate::gateway::Gateway;

/// What to run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The cases.
    pub cases: Vec<Case>,
    /// The protocols.
    pub families: Vec<Family>,
    /// The kinds of gateways. Plain routing always runs.
    pub gateways: Vec<Gateway>,
    /// Midspan's executable.
    pub program: PathBuf,
}

impl Plan {
    /// The largest possible number of outcomes.
    #[must_use]
    pub fn outcomes(&self) -> usize {
        let with_midspan = |case: &Case| {
            let gateways = self.gateways.iter();
            gateways
                .filter(|gateway| **gateway != Gateway::Direct && case.runs_with(**gateway))
                .count()
        };
        let families = |case: &Case| {
            let families = case.families.iter();
            families
                .filter(|family| self.families.contains(family))
                .count()
        };
        let cases = self.cases.iter();
        cases
            .map(|case| families(case) * (1 + with_midspan(case)))
            .sum()
    }
}
