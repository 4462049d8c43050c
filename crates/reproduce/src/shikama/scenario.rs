//! The scenario of §4: n0, a wireless link, n1 where the proxy stands, a wire, n2 with a short
//! queue, a narrow link, n3.

use midspan_model::papers::shikama::WIRELESS_WINDOW;
use midspan_sim::proxy::{Buffers, RelayConfiguration};
use midspan_sim::tcp::{AckRule, ReceiverConfiguration, SenderConfiguration, Variant};
use midspan_sim::{Flow, LinkId, NodeId, Results, Scenario};
use midspan_units::{Probability, TimeSpan};

use super::bursts::Bursts;
use crate::Error;
use crate::run::{link, megabits, run};

/// The link from n2 to n3.
pub(super) const NARROW: LinkId = LinkId(2);
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
    pub(super) loss: Probability,
    /// B_L, in packets.
    pub(super) queue: u32,
    pub(super) duration: TimeSpan,
}

impl Setting {
    pub(super) fn run(&self, seed: u64) -> Result<(Results, Bursts), Error> {
        run(&self.scenario(seed), Bursts::default())
    }

    /// Random draws depend on the seed only, so that schemes meet the same losses.
    fn scenario(&self, seed: u64) -> Scenario {
        let mut scenario = Scenario::new(seed, self.duration);
        let nodes = ["n0", "n1", "n2", "n3"].map(|name| scenario.add_node(name));
        let wireless = |loss| link(WIRELESS, TimeSpan::from_milliseconds(10), loss, AMPLE);
        let (there, back) = (wireless(self.loss), wireless(Probability::ZERO));
        scenario.add_link("wireless", nodes[0], nodes[1], &there, &back);
        let wire = link(100, TimeSpan::ZERO, Probability::ZERO, AMPLE);
        scenario.add_link("wire", nodes[1], nodes[2], &wire, &wire);
        let delay = TimeSpan::from_milliseconds(30);
        let narrow = link(10, delay, Probability::ZERO, self.queue);
        scenario.add_link("narrow", nodes[2], nodes[3], &narrow, &narrow);
        scenario.add_flow(self.flow(nodes));
        scenario
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
