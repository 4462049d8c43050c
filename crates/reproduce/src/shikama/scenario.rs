//! The scenario of §4: the paper's network with the paper's TCP.

use midspan_model::papers::shikama::SEGMENT;
use midspan_path::Path;
use midspan_policy::{LegSettings, Pacing, PacingBy, SessionSettings};
use midspan_sim::proxy::Buffers;
use midspan_sim::tcp::{AckRule, ReceiverConfiguration, SenderConfiguration, Variant};
use midspan_sim::{Flow, FlowId, Results, Scenario};
use midspan_units::{Time, TimeSpan};

use super::bursts::Watch;
use super::conditions::{Condition, FIGURE_10};
use crate::Error;
use crate::run::{CwndWatch, run};

/// Scheme A paces at the rate of the wireless section.
const PACED: &str = "proxy.n1.server_leg.pacing_rate=5 Mbit/s";

/// The schemes that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scheme {
    /// The connection is split, and the proxy paces.
    A,
    /// The connection is split.
    B,
    /// The connection is not split.
    C,
}

/// The values that the figures vary.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setting {
    pub(super) scheme: Scheme,
    /// P_L.
    pub(super) loss: &'static str,
    condition: Condition,
    /// For a split flow: the pacing at the rate that the proxy measures.
    measured: Option<(Pacing, PacingBy)>,
}

impl Setting {
    /// A setting under the condition of Fig. 10.
    pub(super) const fn new(scheme: Scheme, loss: &'static str) -> Self {
        Self {
            scheme,
            loss,
            condition: FIGURE_10,
            measured: None,
        }
    }

    /// A split flow that is paced at the rate that the proxy measures.
    #[cfg(test)]
    pub(super) const fn measured(loss: &'static str, pacing: Pacing, by: PacingBy) -> Self {
        let mut setting = Self::new(Scheme::B, loss);
        setting.measured = Some((pacing, by));
        setting
    }

    /// The setting under another condition.
    pub(super) const fn under(mut self, condition: Condition) -> Self {
        self.condition = condition;
        self
    }

    pub(super) fn run(&self, seed: u64, duration: TimeSpan) -> Result<(Results, Watch), Error> {
        let scenario = self.scenario(seed, duration)?;
        let watch = Watch::new(&scenario)?;
        run(&scenario, watch)
    }

    /// cwnd on the wireless section in segments against time, for a minute, and its mean over this
    /// minute.
    pub(super) fn cwnd(&self) -> Result<(Vec<(f64, f64)>, f64), Error> {
        let duration = TimeSpan::from_seconds(60);
        let watch = CwndWatch::new(1, f64::from(SEGMENT), Time::ZERO);
        let (_, watch) = run(&self.scenario(1, duration)?, watch)?;
        let points = watch.into_points().pop().unwrap_or_default();
        // cwnd is a step function: each value holds from its point to the next.
        let area: f64 = points
            .windows(2)
            .map(|pair| (pair[1].0 - pair[0].0) * pair[0].1)
            .sum();
        let span = points.last().map_or(1.0, |last| last.0.max(1e-9));
        Ok((points, area / span))
    }

    /// Random numbers depend on the seed only; therefore all schemes have the same losses.
    fn scenario(&self, seed: u64, duration: TimeSpan) -> Result<Scenario, Error> {
        let changes: &[String] = match self.scheme {
            Scheme::A => &[PACED.to_owned()],
            Scheme::B | Scheme::C => &[],
        };
        let path = self.condition.path(self.loss, changes)?;
        let mut scenario = Scenario::network(&path, true);
        scenario.seed = seed;
        scenario.duration = duration;
        for flow in &path.flows {
            let flow = scenario.add_flow(self.flow(&path, flow)?);
            self.set_policy(&mut scenario, flow);
        }
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

    /// Buffers and windows are the path's. Each sender keeps to the window of its leg's receiver.
    fn flow(&self, path: &Path, flow: &midspan_path::Flow) -> Result<Flow, Error> {
        let mut flow = Flow::of_path(path, flow, self.scheme != Scheme::C)?;
        flow.receiver = receiver(flow.receiver.buffer);
        flow.sender = sender(flow.receiver.buffer);
        for split in &mut flow.splits {
            split.inbound = receiver(split.inbound.buffer);
            flow.sender = sender(split.inbound.buffer);
            split.outbound = sender(flow.receiver.buffer);
            split.relay.buffers = Buffers::Separate {
                send: flow.receiver.buffer,
            };
        }
        Ok(flow)
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
