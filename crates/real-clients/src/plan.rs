//! What is to be run.

use std::path::PathBuf;

use midspan_conformance::Family;

use crate::case::Case;
use crate::gateway::Gateway;

/// What to run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The cases.
    pub cases: Vec<Case>,
    /// Over which protocols.
    pub families: Vec<Family>,
    /// What stands on the gateway; plain routing is always tried.
    pub gateways: Vec<Gateway>,
    /// The build of Midspan.
    pub program: PathBuf,
}

impl Plan {
    /// How many outcomes there will be at most.
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
