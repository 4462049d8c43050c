//! The scenario of §4: n0, a wireless link, n1 where the proxy stands, a wire, n2 with a short
//! queue, a narrow link, n3.

use midspan_model::papers::shikama::{SEGMENT, WIRELESS_WINDOW};
use midspan_policy::{LegSettings, Pacing, PacingBy, SessionSettings};
use midspan_sim::proxy::{Buffers, RelayConfiguration};
use midspan_sim::tcp::{AckRule, ReceiverConfiguration, SenderConfiguration, Variant};
use midspan_sim::{Flow, FlowId, NodeId, Results, Scenario};
use midspan_units::{Probability, Time, TimeSpan};

use super::bursts::Watch;
use crate::Error;
use crate::run::{CwndWatch, link, megabits, run};

/// Room of nodes whose buffers do not matter, in packets.
pub(super) const AMPLE: u32 = 1000;
/// The window of the wired section, and of TCP end to end: 128 KB.
const WINDOW: u64 = 128_000;
/// Rate of the wireless section, and of pacing, in Mbit/s.
const WIRELESS: u64 = 5;

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scheme {
    /// Split, paced.
    A,
    /// Split.
    B,
    /// Not split.
    C,
}

/// What the figures vary.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setting {
    pub(super) scheme: Scheme,
    /// P_L.
    pub(super) loss: &'static str,
    /// B_L, in packets.
    queue: u32,
    /// D_W, in ms.
    delay: u64,
    /// B_W, in Mbit/s.
    rate: u64,
    /// Of a split flow: it is paced at the rate that the proxy measures.
    measured: Option<(Pacing, PacingBy)>,
}

impl Setting {
    /// B_L of 20 packets, D_W of 30 ms, B_W of 10 Mbit/s.
    pub(super) const fn new(scheme: Scheme, loss: &'static str) -> Self {
        Self {
            scheme,
            loss,
            queue: 20,
            delay: 30,
            rate: 10,
            measured: None,
        }
    }

    /// Split, and paced at the rate that the proxy measures.
    #[cfg(test)]
    pub(super) const fn measured(loss: &'static str, pacing: Pacing, by: PacingBy) -> Self {
        let mut setting = Self::new(Scheme::B, loss);
        setting.measured = Some((pacing, by));
        setting
    }

    /// With another B_L, in packets.
    pub(super) const fn with_queue(mut self, queue: u32) -> Self {
        self.queue = queue;
        self
    }

    /// With another D_W, in ms, and B_W, in Mbit/s.
    pub(super) const fn with_wire(mut self, delay: u64, rate: u64) -> Self {
        self.delay = delay;
        self.rate = rate;
        self
    }

    pub(super) fn run(&self, seed: u64, duration: TimeSpan) -> Result<(Results, Watch), Error> {
        let scenario = self.scenario(seed, duration)?;
        let watch = Watch::new(&scenario)?;
        run(&scenario, watch)
    }

    /// cwnd on the wireless section in segments against time in a minute, and its mean over that
    /// time.
    pub(super) fn cwnd(&self) -> Result<(Vec<(f64, f64)>, f64), Error> {
        let duration = TimeSpan::from_seconds(60);
        let watch = CwndWatch::new(1, f64::from(SEGMENT), Time::ZERO);
        let (_, watch) = run(&self.scenario(1, duration)?, watch)?;
        let points = watch.into_points().pop().unwrap_or_default();
        // In steps: each value holds from its first point to the next.
        let area: f64 = points
            .windows(2)
            .map(|pair| (pair[1].0 - pair[0].0) * pair[0].1)
            .sum();
        let span = points.last().map_or(1.0, |last| last.0.max(1e-9));
        Ok((points, area / span))
    }

    /// Random draws depend on the seed only, so that schemes meet the same losses.
    fn scenario(&self, seed: u64, duration: TimeSpan) -> Result<Scenario, Error> {
        let mut scenario = Scenario::new(seed, duration);
        let nodes = ["n0", "n1", "n2", "n3"].map(|name| scenario.add_node(name));
        let wireless = |loss| link(WIRELESS, TimeSpan::from_milliseconds(10), loss, AMPLE);
        let (there, back) = (wireless(self.loss.parse()?), wireless(Probability::ZERO));
        scenario.add_link("wireless", nodes[0], nodes[1], &there, &back);
        let wire = link(100, TimeSpan::ZERO, Probability::ZERO, AMPLE);
        scenario.add_link("wire", nodes[1], nodes[2], &wire, &wire);
        let delay = TimeSpan::from_milliseconds(self.delay);
        let narrow = link(self.rate, delay, Probability::ZERO, self.queue);
        scenario.add_link("narrow", nodes[2], nodes[3], &narrow, &narrow);
        let flow = scenario.add_flow(self.flow(nodes));
        self.set_policy(&mut scenario, flow);
        Ok(scenario)
    }

    fn set_policy(&self, scenario: &mut Scenario, flow: FlowId) {
        if let Some((pacing, pacing_by)) = self.measured {
            let server = LegSettings {
                pacing,
                pacing_by,
                ..LegSettings::default()
            };
            let settings = SessionSettings {
                server,
                ..SessionSettings::default()
            };
            scenario.set_policy(flow, 0, &settings);
        }
    }

    fn flow(&self, [n0, n1, _, n3]: [NodeId; 4]) -> Flow {
        let flow = Flow::bulk("file", n0, n3).with_receiver(receiver(WINDOW));
        let pacing = match self.scheme {
            Scheme::C => return flow.with_sender(sender(WINDOW)),
            Scheme::A => megabits(WIRELESS),
            Scheme::B => None,
        };
        let relay = RelayConfiguration {
            buffers: Buffers::Separate { send: WINDOW },
            service: None,
            pacing,
            ..RelayConfiguration::default()
        };
        let mut flow = flow.with_sender(sender(WINDOW)).split_at(n1, relay);
        flow.sender = sender(WIRELESS_WINDOW.bytes());
        for split in &mut flow.splits {
            split.inbound = receiver(WIRELESS_WINDOW.bytes());
        }
        flow
    }
}

fn sender(window_limit: u64) -> SenderConfiguration {
    SenderConfiguration {
        variant: Variant::NewReno,
        initial_window: 2,
        window_limit,
        grow_only_when_limited: false,
        minimum_timeout: TimeSpan::from_milliseconds(200),
        ..SenderConfiguration::default()
    }
}

fn receiver(buffer: u64) -> ReceiverConfiguration {
    ReceiverConfiguration {
        buffer,
        acknowledge: AckRule::Delayed {
            segments: 2,
            timeout: TimeSpan::from_milliseconds(100),
        },
        ..ReceiverConfiguration::default()
    }
}
