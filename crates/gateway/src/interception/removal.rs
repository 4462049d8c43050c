//! Removes rules and routes.

use midspan_linux::netlink::Netlink;
use midspan_linux::nftables;

use super::plan::InterceptionNumbers;
use super::probe::Probe;
use super::{Interception, InterceptionError, claim, local_delivery, queue_target, rules};
use super::{express_lane, timeouts, untouched};

/// Removes all tables of these numbers, as far as possible.
///
/// # Errors
/// The first table that could not be removed.
pub(super) fn remove_tables(numbers: &InterceptionNumbers) -> Result<(), InterceptionError> {
    let names = [
        numbers.table.clone(),
        timeouts::table(numbers),
        untouched::table(numbers),
    ];
    let removed = names.map(|name| nftables::apply(&rules::removal(&name)));
    let queue = queue_target::remove(&queue_target::table(numbers));
    let express_lane = express_lane::remove(numbers);
    Probe::remove(numbers)?;
    queue
        .and(express_lane)
        .map_err(InterceptionError::NoQueue)?;
    for result in removed {
        result?;
    }
    Ok(())
}

/// Removes the leftovers of a killed process that had these numbers, unless another process uses them.
///
/// # Errors
/// A leftover cannot be removed.
pub(super) fn remove_leftovers(numbers: &InterceptionNumbers) -> Result<(), InterceptionError> {
    let Ok(_claim) = claim(numbers) else {
        return Ok(());
    };
    local_delivery::remove(&Netlink::open()?, numbers)?;
    remove_tables(numbers)
}

/// Removes what only `numbers` have, and not `others`.
///
/// # Errors
/// Something could not be removed.
pub(super) fn remove_others(
    netlink: &Netlink,
    numbers: &InterceptionNumbers,
    others: &InterceptionNumbers,
) -> Result<(), InterceptionError> {
    let tables = match numbers.table == others.table {
        true => Ok(()),
        false => remove_tables(numbers),
    };
    if numbers.routing_table != others.routing_table {
        local_delivery::remove(netlink, numbers)?;
    }
    tables
}

impl Drop for Interception {
    fn drop(&mut self) {
        let numbers = &self.plan.numbers;
        // At a drop, an error cannot be returned. Without a relay the rules let all packets pass,
        // and the next run replaces them.
        if let Some(former) = &self.replaced {
            let _ = match self.is_own {
                true => remove_others(&self.netlink, former, numbers),
                false => remove_others(&self.netlink, numbers, former),
            };
        }
        if !self.is_own {
            return;
        }
        let _ = remove_tables(numbers);
        let _ = local_delivery::remove(&self.netlink, numbers);
        if self.early_demux.was_on() {
            let former = self.plan.former_sessions.iter().map(|former| former.mask);
            for mask in former.chain([self.marks.mask]) {
                let _ = midspan_linux::waiting_sockets::end(mask);
            }
        }
        self.early_demux.restore();
    }
}
