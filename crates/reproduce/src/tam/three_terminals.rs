//! §5.2, 2: three terminals share the upstream; and why thinning does not help them at the printed rate.
//!
//! At 80 kbit/s, ACKs for two segments each let the downloads fill the downstream, so thinning has
//! nothing to gain. Other conditions show what it depends on: an upstream of 10 kbit/s, and longer
//! queues, of which one drops ACKs and the other drops data.

use midspan_policy::RoundTripSource;
use midspan_records::Record;

use super::scheme::Scheme;
use super::testbed::{Outcome, QUEUE, Testbed, duration, run};
use crate::run::{number, simulated};
use crate::{Effort, Error, Simulated};

const ITEM: &str = "three terminals";
/// The printed goodput of a terminal, in bit/s.
const RENO: f64 = 110e3;
const THINNED: f64 = 320e3;

const PRINTED: &str = "the printed value does not follow from the printed set-up: one ACK \
    for two packets lets 80 kbit/s carry 3.1 Mbit/s, and three terminals' FIFO drops further ACKs";
const AT_TEN: &str = "the printed value is that of 80 kbit/s; it would fit this rate";

/// What differs from the printed set-up.
#[derive(Debug, Clone, Copy)]
struct Condition {
    /// The end of a case's name.
    name: &'static str,
    /// Upstream rate in bit/s.
    up: u64,
    /// Packets in the queues, as of a [`Testbed`].
    queue_up: u32,
    queue_down: u32,
    /// Why the printed values are next to these; `None`: they are not.
    printed: Option<&'static str>,
}

const CONDITIONS: [Condition; 6] = [
    Condition {
        name: "",
        up: 80_000,
        queue_up: QUEUE,
        queue_down: QUEUE,
        printed: Some(PRINTED),
    },
    Condition {
        name: ", 10 kbit/s up",
        up: 10_000,
        queue_up: QUEUE,
        queue_down: QUEUE,
        printed: Some(AT_TEN),
    },
    Condition {
        name: ", 200 packets upstream",
        up: 80_000,
        queue_up: 200,
        queue_down: QUEUE,
        printed: None,
    },
    Condition {
        name: ", 100 packets downstream",
        up: 80_000,
        queue_up: QUEUE,
        queue_down: 100,
        printed: None,
    },
    Condition {
        name: ", 200 packets upstream and 100 downstream",
        up: 80_000,
        queue_up: 200,
        queue_down: 100,
        printed: None,
    },
    Condition {
        name: ", 10 kbit/s up, 200 packets upstream",
        up: 10_000,
        queue_up: 200,
        queue_down: QUEUE,
        printed: None,
    },
];

const SCHEMES: [(Scheme, Option<f64>); 3] = [
    (Scheme::Reno, Some(RENO)),
    (Scheme::TIMESTAMPS, Some(THINNED)),
    (Scheme::AdaptiveAce(RoundTripSource::Timestamp), None),
];

/// Three terminals under each condition.
pub(super) fn three_terminals(
    effort: &Effort,
    progress: &mut dyn FnMut(&str),
) -> Result<Simulated, Error> {
    progress(ITEM);
    let testbed = |condition: &Condition, scheme| Testbed {
        terminals: 3,
        queue_up: condition.queue_up,
        queue_down: condition.queue_down,
        ..Testbed::new(scheme, condition.up, duration(effort))
    };
    let testbeds: Vec<Testbed> = CONDITIONS
        .iter()
        .flat_map(|condition| SCHEMES.map(|(scheme, _)| testbed(condition, scheme)))
        .collect();
    let outcomes = run(&testbeds, effort)?;
    let mut records = Vec::new();
    for (condition, outcomes) in CONDITIONS.iter().zip(outcomes.chunks(SCHEMES.len())) {
        for ((scheme, paper), outcome) in SCHEMES.iter().zip(outcomes) {
            let case = format!("{}, each of three{}", scheme.name(), condition.name);
            records.extend(of_scheme(&case, outcome, *paper, condition));
        }
        let [reno, thinned, ..] = outcomes else {
            continue;
        };
        let case = format!("ACE thinning against Reno{}", condition.name);
        let ratio = thinned.down / reno.down;
        let ratio = simulated(ITEM, &case, "ratio of goodputs", "", ratio);
        records.push(beside_printed(ratio, Some(THINNED / RENO), condition));
    }
    Ok(Simulated {
        records,
        figures: Vec::new(),
    })
}

/// The goodput of each terminal, and what all three lost.
fn of_scheme(
    case: &str,
    outcome: &Outcome,
    paper: Option<f64>,
    condition: &Condition,
) -> [Record; 4] {
    let goodput = simulated(ITEM, case, "goodput", "bit/s", outcome.down / 3.0);
    let count = |quantity, unit, count| simulated(ITEM, case, quantity, unit, number(count));
    [
        beside_printed(goodput, paper, condition),
        count("dropped downstream", "packets", outcome.dropped_down),
        count("dropped upstream", "packets", outcome.dropped_up),
        count("retransmission time-outs", "time-outs", outcome.timeouts),
    ]
}

fn beside_printed(mut record: Record, paper: Option<f64>, condition: &Condition) -> Record {
    if let (Some(paper), Some(note)) = (paper, condition.printed) {
        record.paper = Some(paper);
        record.note = Some(note.to_owned());
    }
    record
}
