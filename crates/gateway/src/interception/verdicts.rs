//! The verdicts of the host's firewall that the [express lane](super::express_lane) keeps.

use midspan_linux::nftables;

use super::express_lane::{self, ExpressLane};
use super::{Interception, InterceptionError, Plan, marks};

/// Why connections of listeners with a cache of verdicts would take the usual way on this machine; empty if
/// they would not. Nothing is changed.
///
/// # Errors
/// The mark field is too small, or `nft` cannot be run.
pub fn express_lane_obstacles(plan: &Plan) -> Result<Vec<String>, InterceptionError> {
    Ok(ExpressLane::default().find_obstacles(plan, &marks(plan)?)?)
}

impl Interception {
    /// Why connections of listeners with a cache of verdicts take the usual way all the same; empty if they need not.
    #[must_use]
    pub fn express_lane_obstacles(&self) -> &[String] {
        self.express_lane.obstacles()
    }

    /// Whether listeners have a cache of verdicts, even if it is not used at present.
    #[must_use]
    pub fn keeps_verdicts(&self) -> bool {
        express_lane::families(&self.plan).next().is_some()
    }

    /// Another program has changed rules, perhaps those of the firewall: it is asked about all next connections. Returns the
    /// number of the ruleset after that; `None` if another program may have changed rules meanwhile.
    ///
    /// # Errors
    /// Rules cannot be read or changed.
    pub fn forget_verdicts(&mut self) -> Result<Option<u32>, InterceptionError> {
        let lane = &mut self.express_lane;
        if lane.has_other_obstacles(&self.plan, &self.marks)? {
            self.put_rules()?;
            return Ok(None);
        }
        let flush = lane.flush(&self.plan);
        let generation = nftables::generation_after(|| match flush.is_empty() {
            true => Ok(0),
            false => nftables::apply(&flush).map(|()| 1),
        })?;
        Ok(generation.number())
    }
}
