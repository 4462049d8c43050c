//! Hasegawa: Figs 8 to 12, and how a session comes to oversized segments (§6.2), by simulation.

mod figure_12;
mod figures;
mod starts;
mod testbed;
#[cfg(test)]
mod tests;

use crate::{Effort, Error, Simulated};

/// What is asked for.
pub(crate) fn simulate(
    effort: &Effort,
    progress: &mut dyn FnMut(&str),
) -> Result<Simulated, Error> {
    type Make = fn(&Effort) -> Result<Simulated, Error>;
    let parts: [(&[&str], Make); 4] = [
        (&["figure 8", "figure 11"], figures::without_delay),
        (&["figure 9", "figure 10"], figures::with_delay),
        (&["figure 12"], |_| figure_12::figure_12()),
        (&[starts::ITEM], starts::starts),
    ];
    let mut out = Simulated::default();
    for (items, make) in parts {
        if items.iter().any(|item| effort.wants(item)) {
            progress(&items.join(", "));
            let made = make(effort)?;
            out.records.extend(made.records);
            out.figures.extend(made.figures);
        }
    }
    Ok(out)
}
