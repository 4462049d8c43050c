//! What sessions have left for later ones, `GET /learned`: the paths to peers, cold starts, asymmetric
//! routes, what splitting gains, and verdicts about clients.
//!
//! | module | content |
//! | --- | --- |
//! | `query` | the query, and the place in the list from which to continue |
//! | `rows` | the rows of an answer |
//!
//! Threads of the relay wait while entries are read or forgotten, so at most 256 are read or forgotten at
//! once. `docs/control-api.md` describes the fields.

mod query;
mod rows;

use midspan_policy::hosts::Hosts;
use midspan_relay::SharedKnowledge;
use midspan_relay::remembered::Remembered;
use midspan_units::Time;
use serde::{Deserialize, Serialize};

use crate::summary::{self, Gain};
pub use query::{Place, Query};
pub use rows::{
    AsymmetricRouteRow, ColdStartRow, ForgottenCounts, GainRow, LeftAloneRow, PathRow, VerdictRow,
};

/// Entries that are read or forgotten at a time, while threads of the relay wait: about 0.1 ms.
const AT_A_TIME: usize = 256;

/// The answer to `GET /learned`. Each kind has its list, in this order.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Learned {
    /// What splitting gains by size of the flow, over all hosts.
    pub gain: Vec<Gain>,
    /// Known paths to peers.
    pub paths: Vec<PathRow>,
    /// Peers without a known path, whose short sessions lost segments.
    pub cold_starts: Vec<ColdStartRow>,
    /// Routes on which the answers of servers do not come back through Midspan.
    pub asymmetric_routes: Vec<AsymmetricRouteRow>,
    /// What splitting gains on single routes.
    pub gains: Vec<GainRow>,
    /// Whether clients with an access profile accept oversized segments.
    pub verdicts: Vec<VerdictRow>,
    /// The parameter `after` with which the next answer continues; `None` at the end.
    pub next: Option<String>,
}

impl Learned {
    /// Reads the rows of a query.
    pub(crate) fn read(
        query: &Query,
        knowledge: &SharedKnowledge,
        verdicts: &Remembered,
        now: Time,
    ) -> Self {
        let mut learned = Self {
            gain: summary::gains(&knowledge.flows_by_size().gains()),
            ..Self::default()
        };
        let mut left = query.limit;
        let mut place = Some(query.after);
        while let Some(from) = place
            && left > 0
        {
            let most = left.min(AT_A_TIME);
            let (next, rows) = match from {
                Place::Verdict(after) => {
                    let known = verdicts.known(&query.hosts, after, most);
                    let last = known.last().map(|(client, ..)| *client);
                    let rows = known.len();
                    learned
                        .verdicts
                        .extend(known.into_iter().filter_map(rows::verdict));
                    ((rows == most).then_some(Place::Verdict(last)), rows)
                }
                from => learned.take(from, knowledge, &query.hosts, (now, most)),
            };
            left -= rows;
            place = next;
        }
        learned.next = place.map(|place| place.to_string());
        learned
    }

    /// Adds at most `most` rows of one kind; returns where to continue, and how many there were.
    fn take(
        &mut self,
        from: Place,
        knowledge: &SharedKnowledge,
        hosts: &Hosts,
        (now, most): (Time, usize),
    ) -> (Option<Place>, usize) {
        let next = |rows: usize, has_more: bool, same: Place, other: Place| {
            (Some(if has_more { same } else { other }), rows)
        };
        match from {
            Place::Path(after) => {
                let (found, has_more) = knowledge.list(
                    most,
                    |part, most| part.paths.known(now, hosts, after, most),
                    |path| path.peer,
                );
                let last = found.last().map(|path| path.peer);
                self.paths.extend(found.iter().map(PathRow::from));
                let other = Place::ColdStart(None);
                next(found.len(), has_more, Place::Path(last), other)
            }
            Place::ColdStart(after) => {
                let (found, has_more) = knowledge.list(
                    most,
                    |part, most| part.paths.known_cold_starts(now, hosts, after, most),
                    |start| start.peer,
                );
                let last = found.last().map(|start| start.peer);
                self.cold_starts
                    .extend(found.iter().map(ColdStartRow::from));
                let other = Place::AsymmetricRoute(None);
                next(found.len(), has_more, Place::ColdStart(last), other)
            }
            Place::AsymmetricRoute(after) => {
                let (found, has_more) = knowledge.list(
                    most,
                    |part, most| part.routes.known(now, hosts, after, most),
                    |asymmetry| asymmetry.route,
                );
                let last = found.last().map(|asymmetry| asymmetry.route);
                let rows = found.iter().map(AsymmetricRouteRow::from);
                self.asymmetric_routes.extend(rows);
                let other = Place::Gain(None);
                next(found.len(), has_more, Place::AsymmetricRoute(last), other)
            }
            Place::Gain(after) => {
                let (found, has_more) = knowledge.list(
                    most,
                    |part, most| part.gains.known(now, hosts, after, most),
                    |gain| gain.route,
                );
                let last = found.last().map(|gain| gain.route);
                self.gains.extend(found.iter().map(GainRow::from));
                let other = Place::Verdict(None);
                next(found.len(), has_more, Place::Gain(last), other)
            }
            Place::Verdict(_) => (None, 0),
        }
    }

    /// Adds the rows of the answer that follows this one.
    pub fn append(&mut self, mut following: Self) {
        self.paths.append(&mut following.paths);
        self.cold_starts.append(&mut following.cold_starts);
        self.asymmetric_routes
            .append(&mut following.asymmetric_routes);
        self.gains.append(&mut following.gains);
        self.verdicts.append(&mut following.verdicts);
        self.next = following.next;
    }
}

/// Forgets what was learned about these hosts, in parts, between which threads of the relay continue.
pub(crate) fn forget(
    hosts: &Hosts,
    knowledge: &SharedKnowledge,
    verdicts: &Remembered,
) -> ForgottenCounts {
    let mut all = ForgottenCounts::default();
    knowledge.forget(hosts, AT_A_TIME, |some| all.add(some));
    let mut has_more = true;
    while has_more {
        let some = verdicts.forget(hosts, AT_A_TIME);
        has_more = some >= AT_A_TIME;
        all.verdicts += some as u64;
    }
    all
}

#[cfg(test)]
mod tests;
