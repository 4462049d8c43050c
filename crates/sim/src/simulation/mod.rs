//! The simulation: dispatches each event to the part that handles it.
//!
//! | file | what it does |
//! | --- | --- |
//! | `check` | whether a scenario can be simulated |
//! | `leg` | makes legs, relays and links of a scenario |
//! | `places` | numbers everything that can have an event |
//! | `answers` | receivers that answer a packet as soon as it is sent |
//! | `transfer` | packets: sent, on links, delivered; timers of senders and receivers |
//! | `application` | what flows write, when they end |
//! | `background` | traffic without TCP |
//! | `policies` | carries out the decisions of policies before the first byte, on the scenario |
//! | `control` | carries out what policies decide while data flows |
//! | `overlay` | the choice of overlay routes, and what their nodes measure |
//! | `signals` | timestamps, marks and echoes that accompany data and ACKs; regenerated ACKs |
//! | `outcome` | the results |

mod answers;
mod application;
mod background;
mod check;
mod control;
mod leg;
mod outcome;
mod overlay;
mod places;
mod policies;
mod signals;
mod transfer;

use midspan_link::Reassembly;
use midspan_units::{Time, TimeSpan};

use crate::engine::{Event, Schedule};
use crate::network::Network;
use crate::observer::{NoObserver, Observer};
use crate::packet::Packet;
use crate::proxy::Relay;
use crate::results::{Results, StopReason};
use crate::scenario::{FlowId, Scenario, ScenarioError};
use crate::tcp::{Receiver, Sender};
use application::{DialogueState, FlowState};
use background::TrafficSource;
use control::Control;
use leg::Leg;
use overlay::OverlayState;
use places::{Place, Places};
pub use policies::Policies;
use policies::Session;
use signals::LegSignals;

/// Largest number of packets that are reassembled at the same time, over all hosts.
const REASSEMBLY_LIMIT: usize = 65_536;

/// A running scenario.
#[derive(Debug)]
pub struct Simulation<O = NoObserver> {
    schedule: Schedule,
    places: Places,
    network: Network,
    /// The legs of all flows; those of one flow are neighbours, in the order of its data. After
    /// them come the routes of traffic without TCP.
    legs: Vec<Leg>,
    senders: Vec<Sender>,
    receivers: Vec<Receiver>,
    /// Each relay with its inbound leg; its outbound leg is the next one.
    relays: Vec<(u32, Relay)>,
    flows: Vec<FlowState>,
    dialogues: Vec<DialogueState>,
    traffic: Vec<TrafficSource>,
    /// The policies; `None` if there are none.
    control: Option<Box<Control>>,
    /// The choice of overlay routes; `None` if no session has one.
    overlay: Option<Box<OverlayState>>,
    /// The signals of each leg; empty if no flow uses any.
    signals: Vec<LegSignals>,
    /// Fragments at their hosts; `None` if no link fragments packets.
    reassembly: Option<Box<Reassembly<Packet>>>,
    /// Number of flows that still have data to deliver.
    unfinished: usize,
    end: Time,
    now: Time,
    /// Packets that reach a joined receiver before this time are answered when they are sent.
    answered_before: Time,
    events: u64,
    event_limit: u64,
    observer: O,
}

impl Simulation {
    /// A simulation without an observer.
    ///
    /// # Errors
    /// The scenario cannot be simulated.
    pub fn new(scenario: &Scenario) -> Result<Self, ScenarioError> {
        Self::observed(scenario, NoObserver)
    }
}

impl<O: Observer> Simulation<O> {
    /// A simulation with an observer.
    ///
    /// # Errors
    /// The scenario cannot be simulated.
    pub fn observed(scenario: &Scenario, observer: O) -> Result<Self, ScenarioError> {
        Self::build(scenario, Policies::new(), observer, true)
    }

    /// A simulation whose proxies carry out the decisions of `policies`, with an observer.
    ///
    /// # Errors
    /// The scenario cannot be simulated, or a policy is set for a proxy that does not exist or
    /// decides something that the simulator does not support.
    pub fn with_policies(
        scenario: &Scenario,
        policies: Policies,
        observer: O,
    ) -> Result<Self, ScenarioError> {
        Self::build(scenario, policies, observer, true)
    }

    /// Like [`observed`](Self::observed), but with an event for each link that a packet passes,
    /// even if it could pass several in one step. Slower; the results are the same.
    ///
    /// # Errors
    /// The scenario cannot be simulated.
    pub fn link_by_link(scenario: &Scenario, observer: O) -> Result<Self, ScenarioError> {
        Self::build(scenario, Policies::new(), observer, false)
    }

    fn build(
        scenario: &Scenario,
        policies: Policies,
        observer: O,
        join: bool,
    ) -> Result<Self, ScenarioError> {
        let policies = policies.with_those_of(scenario);
        if policies.is_empty() {
            return Self::assemble(scenario, Vec::new(), observer, join);
        }
        let mut scenario = scenario.clone();
        let sessions = policies.carry_out(&mut scenario)?;
        Self::assemble(&scenario, sessions, observer, join)
    }

    /// A simulation of a scenario that policies have changed already.
    fn assemble(
        scenario: &Scenario,
        policies: Vec<Session>,
        observer: O,
        join: bool,
    ) -> Result<Self, ScenarioError> {
        check::check(scenario)?;
        let mut parts = leg::build(scenario)?;
        let network = leg::network(scenario, &parts.legs, join)?;
        let mut directions = scenario.links.iter().flat_map(|link| &link.directions);
        let cuts = directions.any(|direction| direction.mtu.is_some());
        let signals = signals::signals(scenario);
        if join && !O::WATCHES && !cuts && signals.is_empty() {
            answers::join(&mut parts, &network);
        }
        let places = Places::new([
            network.len(),
            parts.senders.len(),
            parts.senders.len(),
            parts.relays.len(),
            1,
            parts.flows.len(),
            parts.traffic.len(),
            parts.relays.len(),
            1,
        ])?;
        let mut schedule = Schedule::new(places.count(), places.links());
        let overlay = OverlayState::of(scenario, &mut parts.flows)?.map(Box::new);
        if overlay.is_some() {
            schedule.wake(places.overlay(), Time::ZERO);
        }
        for (index, flow) in (0..).zip(&parts.flows) {
            if let Some(at) = flow.next_write {
                schedule.wake(places.flow(index), at);
            }
        }
        for (index, source) in (0..).zip(&parts.traffic) {
            schedule.wake(places.traffic(index), source.start);
        }
        let reassembly = cuts.then(|| {
            let timeout = scenario.reassembly_timeout;
            Box::new(Reassembly::new(timeout, REASSEMBLY_LIMIT))
        });
        let mut simulation = Self {
            schedule,
            places,
            network,
            legs: parts.legs,
            senders: parts.senders,
            receivers: parts.receivers,
            relays: parts.relays,
            // Traffic without flows runs for the whole time.
            unfinished: parts
                .flows
                .len()
                .max(usize::from(!parts.traffic.is_empty())),
            flows: parts.flows,
            dialogues: parts.dialogues,
            traffic: parts.traffic,
            control: None,
            overlay,
            signals,
            reassembly,
            end: Time::ZERO + scenario.duration,
            now: Time::ZERO,
            answered_before: Time::ZERO,
            events: 0,
            event_limit: scenario.event_limit,
            observer,
        };
        for session in policies {
            // A policy may change the congestion control while data flows.
            if let Some(state) = simulation.flows.get(session.flow.0)
                && let Some(outbound) = state.leg(session.split + 1)
                && let Some(flow) = scenario.flows.get(session.flow.0)
            {
                let stream = leg::gain_cycle(scenario.seed, &flow.name, session.split + 1);
                simulation.senders[outbound].track(stream);
            }
            simulation.add_policy(session);
        }
        Ok(simulation)
    }

    /// Runs to the end of the scenario.
    pub fn run(&mut self) -> Results {
        self.run_until(TimeSpan::from_nanoseconds(u64::MAX))
    }

    /// Runs up to and including `until`, but not beyond the end of the scenario. Returns the
    /// results so far.
    pub fn run_until(&mut self, until: TimeSpan) -> Results {
        let until = (Time::ZERO + until).min(self.end);
        self.answered_before = self.answers_before(until);
        let stop = loop {
            if self.unfinished == 0 {
                break StopReason::Finished;
            }
            if self.events >= self.event_limit {
                break StopReason::EventLimit;
            }
            let Some(event) = self.schedule.next(until) else {
                self.now = self.now.max(until);
                break if self.schedule.is_empty() && !self.flows.is_empty() {
                    StopReason::Stalled
                } else {
                    StopReason::TimeIsUp
                };
            };
            self.events += 1;
            self.now = event.at;
            self.handle(event);
        };
        self.results(stop)
    }

    /// The time up to which it has run.
    pub const fn now(&self) -> Time {
        self.now
    }

    /// The observer.
    pub const fn observer(&self) -> &O {
        &self.observer
    }

    /// Ends the simulation and returns the observer.
    pub fn into_observer(self) -> O {
        self.observer
    }

    /// The sender of a leg, counted from 0; `None` if it does not exist.
    pub fn sender(&self, flow: FlowId, leg: usize) -> Option<&Sender> {
        self.senders.get(self.flows.get(flow.0)?.leg(leg)?)
    }

    /// The receiver of a leg, counted from 0; `None` if it does not exist.
    pub fn receiver(&self, flow: FlowId, leg: usize) -> Option<&Receiver> {
        self.receivers.get(self.flows.get(flow.0)?.leg(leg)?)
    }

    /// Packets on links, and fragments that wait for others, at this time. Packets on a link that
    /// will be lost are not counted.
    pub fn packets_on_the_way(&self) -> u64 {
        use midspan_link::Stage as _;
        let waiting = self.reassembly.as_ref().map_or(0, |cell| cell.held());
        self.network.on_the_way() + waiting as u64
    }

    fn handle(&mut self, event: Event) {
        match self.places.what(event.place) {
            Place::Link(link) => self.handle_link(event, link),
            Place::Receiver(leg) => self.handle_receiver_timer(event, leg),
            Place::Sender(leg) => self.handle_sender_timer(event, leg),
            Place::Relay(relay) => {
                self.schedule.done(event);
                self.run_relay(relay);
            }
            Place::Overlay => {
                self.schedule.done(event);
                self.handle_overlay();
            }
            Place::Flow(flow) => {
                self.schedule.done(event);
                self.handle_flow(flow);
            }
            Place::Traffic(source) => {
                self.schedule.done(event);
                self.send_traffic(source);
            }
            Place::Control(relay) => {
                self.schedule.done(event);
                self.handle_control(relay);
            }
            Place::Reassembly => {
                self.schedule.done(event);
                self.poll_reassembly();
            }
        }
    }
}
