//! What an answer of `/summary` and of `/sessions` costs the relay's threads. The relay measures this
//! itself: the field `cost` of the answer.

use std::path::Path;
use std::time::Duration;

use midspan_proxy::client::{Place, get};
use serde_json::Value;

use crate::Failure;

/// A page, and what one of its answers may cost.
pub struct Page {
    /// For the table.
    pub name: &'static str,
    target: &'static str,
}

/// The pages: those with the most rows.
pub const PAGES: [Page; 2] = [
    Page {
        name: "/summary",
        target: "/summary?by=session&limit=1000",
    },
    Page {
        name: "/sessions",
        target: "/sessions?limit=1000",
    },
];

/// The largest total time of the relay's threads for one answer.
pub const TOTAL_LIMIT: Duration = Duration::from_millis(50);
/// The largest time of one slice.
pub const SLICE_LIMIT: Duration = Duration::from_millis(1);

/// Time between two answers: rates need 0.9 s.
const PAUSE: Duration = Duration::from_secs(1);

/// What the answers of a page cost, in seconds.
#[derive(Debug, Default)]
pub struct Costs {
    /// All threads and slices of each answer together.
    pub totals: Vec<f64>,
    /// The longest slice of each answer.
    pub longest: Vec<f64>,
    /// Slices of each answer.
    pub slices: Vec<f64>,
}

/// Requests this many answers of a page.
///
/// # Errors
/// The proxy does not answer, or not all of its threads do.
pub fn measure(socket: &Path, page: &Page, answers: u64) -> Result<Costs, Failure> {
    let mut costs = Costs::default();
    for _ in 0..answers {
        std::thread::sleep(PAUSE);
        let (status, text) = get(Place::Socket(socket.to_owned()), page.target)?;
        let answer: Value = serde_json::from_str(&text)
            .map_err(|error| format!("{} has status {status}: {error}", page.name))?;
        if answer["complete"] != true {
            return Err(format!("{}: a thread of the relay did not answer", page.name).into());
        }
        let field = |name: &str| {
            let value = answer["cost"][name].as_f64();
            value.ok_or_else(|| format!("{}: no cost.{name}", page.name))
        };
        costs.totals.push(field("relay_seconds")?);
        costs.longest.push(field("longest_slice_seconds")?);
        costs.slices.push(field("slices")?);
    }
    Ok(costs)
}
