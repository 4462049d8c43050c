//! Collects the results of a simulation.

use super::Simulation;
use crate::observer::Observer;
use crate::results::{FlowResults, LegResults, LinkResults, Results, StopReason, TrafficResults};

impl<O: Observer> Simulation<O> {
    pub(super) fn results(&self, stop: StopReason) -> Results {
        let leg = |index: usize| {
            let (sender, receiver) = (&self.senders[index], &self.receivers[index]);
            LegResults {
                sender: *sender.counters(),
                receiver: *receiver.counters(),
                sent: sender.highest(),
                acknowledged: sender.unacknowledged(),
                delivered: receiver.next(),
                round_trip_time: sender.round_trip_time(),
            }
        };
        let flows = self.flows.iter().map(|flow| {
            let legs: Vec<LegResults> = flow.legs().map(leg).collect();
            FlowResults {
                delivered: legs.last().map_or(0, |leg| leg.delivered),
                finished: flow.finished,
                gave_up: flow.gave_up,
                refused: flow.refused,
                unused: flow.unused,
                legs,
            }
        });
        let links = (0..self.network.len()).step_by(2).map(|up| LinkResults {
            up: self.network.counters(up).unwrap_or_default(),
            down: self.network.counters(up + 1).unwrap_or_default(),
        });
        Results {
            until: self.now,
            stop,
            events: self.events,
            flows: flows.collect(),
            links: links.collect(),
            traffic: self.traffic_results(),
            cables: self.network.media().collect(),
        }
    }

    fn traffic_results(&self) -> Vec<TrafficResults> {
        let mut results: Vec<TrafficResults> = Vec::new();
        for source in &self.traffic {
            let index = source.traffic as usize;
            if results.len() <= index {
                results.resize(index + 1, TrafficResults::default());
            }
            if let Some(traffic) = results.get_mut(index) {
                traffic.sent += source.sent;
                traffic.delivered += source.delivered;
            }
        }
        results
    }
}
