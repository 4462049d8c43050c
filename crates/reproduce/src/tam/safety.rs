//! Checks whether thinning is safe if packets are lost in both directions: time-outs, ACKs for each
//! window, fast retransmit. The paper claims that it is safe (§2.3, §3.2), and prints no figure.

use std::collections::VecDeque;

use midspan_path::Workload;
use midspan_policy::RoundTripSource;
use midspan_policy::ack_thinning::AceSettings;
use midspan_records::Record;
use midspan_sim::tcp::{
    AckRule, ReceiverConfiguration, Sender, SenderConfiguration, Thinning, Variant,
};
use midspan_sim::{Flow, Observer, Packet, Scenario, Segment, Simulation};
use midspan_sweep::in_parallel;
use midspan_units::{ByteSize, Time, TimeSpan};

use super::scheme::MAXIMUM;
use crate::network::Network;
use crate::run::{number, simulated};
use crate::{Effort, Error, Simulated};

const SEGMENT: u32 = 1448;
const HEADER: u32 = 52;
/// The rates of the testbed in one link that loses packets in both directions.
const LINE: Network = Network::new("lossy-line", include_str!("lossy-line.toml"));
/// Loss in each direction.
const LOSSES: [&str; 3] = ["0.1 %", "0.5 %", "1 %"];
/// Sizes of the transfers, bytes.
const SIZES: [u64; 3] = [10_000, 100_000, 1_000_000];
const SENDERS: [(Variant, &str); 2] = [(Variant::Reno, "Reno"), (Variant::Cubic, "CUBIC")];
/// Delayed ACKs as in Linux.
const DELAYED: AckRule = AckRule::Delayed {
    segments: DELAYED_SEGMENTS,
    timeout: DELAYED_TIMEOUT,
};
const DELAYED_SEGMENTS: u32 = 2;
const DELAYED_TIMEOUT: TimeSpan = TimeSpan::from_milliseconds(40);
/// The name of a scheme, and how its receiver acknowledges.
type Scheme = (&'static str, fn() -> AckRule);
/// The paper's receiver, and a host with `midspan thin`.
const SCHEMES: [Scheme; 2] = [
    ("ACE thinning", || {
        AckRule::Thinned(ace(AceSettings::default()))
    }),
    ("midspan thin", || AckRule::DelayedAndThinned {
        segments: DELAYED_SEGMENTS,
        timeout: DELAYED_TIMEOUT,
        thinning: ace(AceSettings::of_hosts()),
    }),
];
/// The upper bound of the ratio of time-outs with thinning to time-outs without.
const MORE: f64 = 1.1;
const TOO_LARGE: &str =
    "above 0: after a loss, cwnd can be below the packets that are counted in a round trip";
/// The receiver sends a duplicate ACK for each segment behind a gap. The third makes the sender
/// retransmit.
const DUPLICATES: u64 = 3;

/// One transfer over a lossy path: 4 Mbit/s downstream, 100 kbit/s upstream, 40 ms.
#[derive(Debug, Clone, Copy)]
struct Transfer {
    acknowledge: AckRule,
    variant: Variant,
    loss: &'static str,
    size: u64,
}

impl Transfer {
    fn scenario(&self, seed: u64) -> Result<Scenario, Error> {
        let mut path = LINE.path(&[format!("link.line.loss={}", self.loss)])?;
        let size = ByteSize::from_bytes(self.size);
        let mut scenario = Scenario::network(&path, false);
        scenario.seed = seed;
        scenario.duration = TimeSpan::from_seconds(3600);
        let sender = SenderConfiguration {
            variant: self.variant,
            segment_size: SEGMENT,
            header_size: HEADER,
            minimum_timeout: TimeSpan::from_milliseconds(200),
            ..SenderConfiguration::default()
        };
        let receiver = ReceiverConfiguration {
            buffer: 128 * u64::from(SEGMENT),
            acknowledge: self.acknowledge,
            header_size: HEADER,
            segment_size: SEGMENT,
            ..ReceiverConfiguration::default()
        };
        for flow in &mut path.flows {
            flow.workload = Workload::Download { size };
        }
        for flow in &path.flows {
            let flow = Flow::of_path(&path, flow, false)?
                .with_sender(sender)
                .with_receiver(receiver);
            scenario.add_flow(flow);
        }
        Ok(scenario)
    }

    fn run(&self, seed: u64) -> Result<(u64, Watch), Error> {
        let scenario = self.scenario(seed)?;
        let mut simulation = Simulation::observed(&scenario, Watch::default())?;
        let results = simulation.run();
        let timeouts = results.flows.first().and_then(|flow| flow.legs.first());
        let timeouts = timeouts.map_or(0, |leg| leg.sender.timeouts);
        Ok((timeouts, simulation.into_observer()))
    }
}

/// Watches a transfer's ACKs.
#[derive(Debug, Clone, Default)]
struct Watch {
    /// cwnd in segments.
    window: u64,
    /// For each sent segment that is not acknowledged yet: its end, and cwnd when it was sent.
    sent: VecDeque<(u64, u64)>,
    /// The end of the data that arrived without a gap, and the end of the last data that arrived.
    next: u64,
    highest: u64,
    acknowledged: u64,
    /// ACKs of data in order, and those of them that covered more than a third of cwnd.
    acks: u64,
    too_large: u64,
    /// Those of the latter that covered more than the two segments of a host's own ACK.
    thinned: u64,
    /// Segments that arrived behind a gap, and duplicate ACKs, since the last ACK of new data.
    behind: u64,
    duplicates: u64,
    /// The largest number of segments behind a gap until the third duplicate ACK.
    latest: u64,
}

impl Watch {
    /// Adds the counts of another watch.
    fn add(&mut self, other: &Self) {
        self.acks += other.acks;
        self.too_large += other.too_large;
        self.thinned += other.thinned;
        self.latest = self.latest.max(other.latest);
    }
}

impl Observer for Watch {
    fn sender(&mut self, _: Time, _: u32, sender: &Sender) {
        self.window = sender.cwnd() / u64::from(SEGMENT);
    }

    fn delivered(&mut self, _: Time, packet: &Packet) {
        let Segment::Data(data) = packet.segment else {
            return;
        };
        let end = data.sequence + u64::from(data.length);
        if data.sequence <= self.next && self.highest <= self.next {
            self.next = self.next.max(end);
        } else if data.sequence > self.next {
            self.behind += 1;
        }
        self.highest = self.highest.max(end);
    }

    fn sent(&mut self, _: Time, packet: &Packet) {
        let ack = match packet.segment {
            Segment::Acknowledgement(ack) => ack,
            Segment::Data(data) => {
                let end = data.sequence + u64::from(data.length);
                if self.sent.back().is_none_or(|(last, _)| *last < end) {
                    self.sent.push_back((end, self.window));
                }
                return;
            }
            _ => return,
        };
        let covered = ack.number.saturating_sub(self.acknowledged);
        if covered == 0 {
            self.duplicates += 1;
            if self.duplicates == DUPLICATES && self.behind > 0 {
                self.latest = self.latest.max(self.behind);
            }
            return;
        }
        let segments = covered.div_ceil(u64::from(SEGMENT));
        let mut window = self.window;
        while let Some((_, then)) = self.sent.pop_front_if(|(end, _)| *end <= ack.number) {
            window = then;
        }
        // The ACK of a segment that fills a gap is sent at once, however much it covers; it does
        // not count.
        if self.behind == 0 && ack.number == self.next {
            self.acks += 1;
            let third = (window / 3).max(1);
            if segments > third {
                self.too_large += 1;
                self.thinned += u64::from(segments > u64::from(DELAYED_SEGMENTS));
            }
        }
        self.acknowledged = ack.number;
        self.duplicates = 0;
        self.behind = 0;
        self.next = self.next.max(ack.number);
    }
}

/// The number of transfers of each kind.
const fn transfers(effort: &Effort) -> u64 {
    if effort.quick { 200 } else { 1000 }
}

/// The time-outs for 1,000 transfers of a kind, and the watched ACKs of all its transfers.
fn all(transfer: Transfer, effort: &Effort) -> Result<(f64, Watch), Error> {
    let count = transfers(effort);
    let runs = in_parallel(
        usize::try_from(count).unwrap_or(1),
        effort.threads,
        |run| transfer.run(run as u64 + 1),
        |_| (),
    )?;
    let mut sum = Watch::default();
    let mut timeouts = 0;
    for (these, watch) in runs {
        timeouts += these;
        sum.add(&watch);
    }
    Ok((number(timeouts) * 1000.0 / number(count), sum))
}

const fn ace(settings: AceSettings) -> Thinning {
    Thinning::Ace {
        settings,
        round_trip: RoundTripSource::Timestamp,
    }
}

/// The share of a scheme's ACKs that each cover more than a third of the cwnd with which their last
/// segment was sent. With such ACKs, a window has fewer than three. In a window below six segments,
/// each ACK of two segments counts, so the second record has the share of those that cover more: a host
/// without thinning does not send them.
fn too_large(item: &str, case: &str, watched: &Watch) -> [Record; 2] {
    let share = |quantity, count| {
        let share = number(count) / number(watched.acks.max(1));
        simulated(item, case, quantity, "share", share)
    };
    [
        share("ACKs of more than a third of cwnd", watched.too_large),
        share(
            "ACKs of more than a third of cwnd and of more than two segments",
            watched.thinned,
        ),
    ]
}

/// The records about ACKs: how much of a window they cover, and how late a retransmission starts.
fn kept(item: &str, case: &str, watched: &Watch) -> [Record; 3] {
    let [mut large, mut thinned] = too_large(item, case, watched);
    for (record, count) in [
        (&mut large, watched.too_large),
        (&mut thinned, watched.thinned),
    ] {
        if count > 0 {
            record.note = Some(TOO_LARGE.to_owned());
        }
    }
    let late = simulated(
        item,
        case,
        "segments behind a gap at the third duplicate",
        "",
        number(watched.latest),
    );
    let allowed = DUPLICATES + u64::from(MAXIMUM);
    [large, thinned, late.with_ok(watched.latest <= allowed)]
}

/// The ratio of time-outs for 1,000 transfers with thinning to those without, and the share of a
/// window that each ACK covers.
pub(super) fn safety(effort: &Effort, progress: &mut dyn FnMut(&str)) -> Result<Simulated, Error> {
    let item = "loss both ways";
    let mut records: Vec<Record> = Vec::new();
    for (variant, name) in SENDERS {
        for loss in LOSSES {
            let all_sizes = |acknowledge| -> Result<(f64, Watch), Error> {
                let (mut timeouts, mut watched) = (0.0, Watch::default());
                for size in SIZES {
                    let transfer = Transfer {
                        acknowledge,
                        variant,
                        loss,
                        size,
                    };
                    let (these, watch) = all(transfer, effort)?;
                    timeouts += these;
                    watched.add(&watch);
                }
                Ok((timeouts / number(SIZES.len() as u64), watched))
            };
            let case = |scheme: &str| format!("{scheme}, {name}, loss {loss}");
            let timeouts = |case: &str, value: f64| {
                simulated(item, case, "time-outs for 1,000 transfers", "", value)
            };
            let (without, watched) = all_sizes(DELAYED)?;
            let delayed = case("delayed ACKs");
            records.push(timeouts(&delayed, without));
            records.extend(too_large(item, &delayed, &watched));
            for (scheme, acknowledge) in SCHEMES {
                let (with, watched) = all_sizes(acknowledge())?;
                let case = case(scheme);
                records.push(timeouts(&case, with).with_ok(with <= MORE * without));
                records.extend(kept(item, &case, &watched));
                progress(&case);
            }
        }
    }
    Ok(Simulated {
        records,
        figures: Vec::new(),
    })
}
