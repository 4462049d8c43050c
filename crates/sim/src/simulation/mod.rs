//! The simulation itself: who handles which event.

mod check;
mod leg;
mod places;

use midspan_link::Output;
use midspan_units::{Time, TimeSpan};

use crate::engine::{Event, Schedule};
use crate::network::{Dropped, Network};
use crate::observer::{NoObserver, Observer};
use crate::packet::{Acknowledgement, Data, Packet, Segment, Way};
use crate::proxy::Relay;
use crate::results::{FlowResults, LegResults, LinkResults, Results, StopReason};
use crate::scenario::{FlowId, LinkId, Scenario, ScenarioError};
use crate::tcp::{Receiver, Sender};
use leg::{FlowState, Leg};
use places::{Place, Places};

/// A scenario at work.
#[derive(Debug)]
pub struct Simulation<O = NoObserver> {
    schedule: Schedule,
    places: Places,
    network: Network,
    /// The legs of all flows; those of one flow are neighbours, in the order of its data.
    legs: Vec<Leg>,
    senders: Vec<Sender>,
    receivers: Vec<Receiver>,
    /// Each with its inbound leg; its outbound leg is the next one.
    relays: Vec<(u32, Relay)>,
    flows: Vec<FlowState>,
    /// Flows that have data left to deliver.
    unfinished: usize,
    end: Time,
    now: Time,
    events: u64,
    event_limit: u64,
    observer: O,
}

impl Simulation {
    /// A simulation that nobody watches.
    ///
    /// # Errors
    /// The scenario cannot be simulated.
    pub fn new(scenario: &Scenario) -> Result<Self, ScenarioError> {
        Self::observed(scenario, NoObserver)
    }
}

impl<O: Observer> Simulation<O> {
    /// A simulation that `observer` watches.
    ///
    /// # Errors
    /// The scenario cannot be simulated.
    pub fn observed(scenario: &Scenario, observer: O) -> Result<Self, ScenarioError> {
        Self::build(scenario, observer, true)
    }

    /// As [`observed`](Self::observed), but with an event for each link that a packet passes,
    /// also where several could be passed in one step. Slower; the results are the same.
    ///
    /// # Errors
    /// The scenario cannot be simulated.
    pub fn link_by_link(scenario: &Scenario, observer: O) -> Result<Self, ScenarioError> {
        Self::build(scenario, observer, false)
    }

    fn build(scenario: &Scenario, observer: O, join: bool) -> Result<Self, ScenarioError> {
        check::check(scenario)?;
        let parts = leg::build(scenario)?;
        let network = leg::network(scenario, &parts.legs, join)?;
        let places = Places::new(
            network.len(),
            parts.legs.len(),
            parts.relays.len(),
            parts.flows.len(),
        )?;
        let mut schedule = Schedule::new(places.count());
        for (index, flow) in (0..).zip(&parts.flows) {
            schedule.wake(places.flow(index), flow.start);
        }
        Ok(Self {
            schedule,
            places,
            network,
            legs: parts.legs,
            senders: parts.senders,
            receivers: parts.receivers,
            relays: parts.relays,
            unfinished: parts.flows.len(),
            flows: parts.flows,
            end: Time::ZERO + scenario.duration,
            now: Time::ZERO,
            events: 0,
            event_limit: scenario.event_limit,
            observer,
        })
    }

    /// Runs to the end of the scenario.
    pub fn run(&mut self) -> Results {
        self.run_until(TimeSpan::from_nanoseconds(u64::MAX))
    }

    /// Runs up to and including a time, at most to the end of the scenario, and returns what has
    /// happened so far.
    pub fn run_until(&mut self, until: TimeSpan) -> Results {
        let until = (Time::ZERO + until).min(self.end);
        let stop = loop {
            if self.unfinished == 0 {
                break StopReason::Finished;
            }
            if self.events >= self.event_limit {
                break StopReason::EventLimit;
            }
            let Some(event) = self.schedule.next(until) else {
                self.now = self.now.max(until);
                break if self.schedule.is_empty() {
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

    /// The sender of a leg, counted from 0; `None` where there is none.
    pub fn sender(&self, flow: FlowId, leg: usize) -> Option<&Sender> {
        self.senders.get(self.flows.get(flow.0)?.leg(leg)?)
    }

    /// The receiver of a leg, counted from 0; `None` where there is none.
    pub fn receiver(&self, flow: FlowId, leg: usize) -> Option<&Receiver> {
        self.receivers.get(self.flows.get(flow.0)?.leg(leg)?)
    }

    /// Packets on links, at this time. What was handed to a link and is to be lost is not counted.
    pub fn packets_on_the_way(&self) -> u64 {
        self.network.on_the_way()
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
            Place::Flow(flow) => {
                self.schedule.done(event);
                self.start_or_stop(flow);
            }
        }
    }

    fn handle_link(&mut self, event: Event, link: u32) {
        let output = self.network.poll(link, self.now);
        match self.network.poll_timeout(link) {
            Some(at) => self.schedule.again(event, at.max(self.now)),
            None => self.schedule.done(event),
        }
        match output {
            Some(Output::Delivered { packet, .. }) => self.pass_on(packet),
            Some(Output::Dropped {
                due,
                packet,
                reason,
            }) => self.tell_drop(&Dropped {
                at: due,
                link,
                packet,
                reason,
            }),
            None => {}
        }
    }

    /// A packet has come out of a link: it goes to the next one, or has arrived.
    fn pass_on(&mut self, mut packet: Packet) {
        let leg = &self.legs[packet.connection as usize];
        let route = leg.route(packet.way);
        if usize::from(packet.hop) + 1 < route.len() {
            packet.hop += 1;
            let dropped = self
                .network
                .handle(&mut self.schedule, self.now, route, packet);
            if let Some(dropped) = dropped {
                self.tell_drop(&dropped);
            }
            return;
        }
        self.observer.delivered(self.now, &packet);
        match packet.segment {
            Segment::Data(data) => self.deliver_data(packet.connection, &data),
            Segment::Acknowledgement(ack) => self.deliver_ack(packet.connection, &ack),
        }
    }

    fn deliver_data(&mut self, leg: u32, data: &Data) {
        let receiver = &mut self.receivers[leg as usize];
        if let Some(relay) = self.legs[leg as usize].onward {
            let (_, joined) = &mut self.relays[relay as usize];
            joined.handle_segment(self.now, data, receiver);
            self.run_relay(relay);
        } else {
            receiver.handle_segment(self.now, data);
            // The application at the end reads at once.
            receiver.handle_release(u64::MAX);
            self.flush_receiver(leg);
            self.check_finished(leg);
        }
    }

    fn deliver_ack(&mut self, leg: u32, ack: &Acknowledgement) {
        self.senders[leg as usize].handle_acknowledgement(self.now, ack);
        match self.legs[leg as usize].feeder {
            Some(relay) => self.run_relay(relay),
            None => self.flush_sender(leg),
        }
    }

    fn handle_receiver_timer(&mut self, event: Event, leg: u32) {
        let deadline = self.receivers[leg as usize].poll_timeout();
        if self.postpone(event, deadline.map(|(at, _)| at)) {
            return;
        }
        self.receivers[leg as usize].handle_timeout(self.now);
        self.flush_receiver(leg);
    }

    fn handle_sender_timer(&mut self, event: Event, leg: u32) {
        let deadline = self.senders[leg as usize].poll_timeout();
        if self.postpone(event, deadline.map(|(at, _)| at)) {
            return;
        }
        self.senders[leg as usize].handle_timeout(self.now);
        self.flush_sender(leg);
    }

    /// Puts an event off to its deadline, if that has not come. Returns whether it was.
    fn postpone(&mut self, event: Event, deadline: Option<Time>) -> bool {
        match deadline {
            Some(at) if at > self.now => {
                self.schedule.again(event, at);
                true
            }
            Some(_) => {
                self.schedule.done(event);
                false
            }
            None => {
                self.schedule.done(event);
                true
            }
        }
    }

    fn run_relay(&mut self, index: u32) {
        let (inbound, relay) = &mut self.relays[index as usize];
        let (inbound, outbound) = (*inbound, *inbound + 1);
        let receiver = &mut self.receivers[inbound as usize];
        let sender = &mut self.senders[outbound as usize];
        let forwarded = relay.run(self.now, receiver, sender);
        if forwarded > 0 {
            self.observer.forwarded(self.now, inbound, forwarded);
        }
        self.flush_receiver(inbound);
        self.flush_sender(outbound);
        let (_, relay) = &self.relays[index as usize];
        if let Some(at) = relay.poll_timeout(&self.senders[outbound as usize]) {
            self.schedule.wake(self.places.relay(index), at);
        }
    }

    fn start_or_stop(&mut self, index: u32) {
        let flow = &mut self.flows[index as usize];
        if flow.started {
            self.senders[flow.first_leg as usize].handle_stop();
            self.finish(index);
            return;
        }
        flow.started = true;
        if let Some(stop) = flow.stop {
            self.schedule.wake(self.places.flow(index), stop);
        }
        let (first, bytes) = (flow.first_leg, flow.size.unwrap_or(u64::MAX));
        let sender = &mut self.senders[first as usize];
        sender.handle_write(bytes);
        sender.handle_open();
        self.flush_sender(first);
    }

    fn flush_sender(&mut self, leg: u32) {
        while let Some(data) = self.senders[leg as usize].poll_transmit(self.now) {
            let size = data.length + self.legs[leg as usize].header_size;
            self.send(leg, Way::Forward, size, Segment::Data(data));
        }
        if let Some((at, _)) = self.senders[leg as usize].poll_timeout() {
            self.schedule.wake(self.places.sender(leg), at);
        }
    }

    fn flush_receiver(&mut self, leg: u32) {
        if let Some(ack) = self.receivers[leg as usize].poll_transmit() {
            let size = self.receivers[leg as usize].size_of(&ack);
            self.send(leg, Way::Back, size, Segment::Acknowledgement(ack));
        }
        if let Some((at, _)) = self.receivers[leg as usize].poll_timeout() {
            self.schedule.wake(self.places.receiver(leg), at);
        }
    }

    fn send(&mut self, leg: u32, way: Way, size: u32, segment: Segment) {
        let packet = Packet {
            connection: leg,
            size,
            way,
            hop: 0,
            segment,
        };
        self.observer.sent(self.now, &packet);
        let route = self.legs[leg as usize].route(way);
        let dropped = self
            .network
            .handle(&mut self.schedule, self.now, route, packet);
        if let Some(dropped) = dropped {
            self.tell_drop(&dropped);
        }
    }

    fn tell_drop(&mut self, dropped: &Dropped) {
        let link = LinkId(dropped.link as usize / 2);
        let up = dropped.link.is_multiple_of(2);
        self.observer
            .dropped(dropped.at, link, up, &dropped.packet, dropped.reason);
    }

    fn check_finished(&mut self, leg: u32) {
        let index = self.legs[leg as usize].flow;
        let size = self.flows[index as usize].size;
        if size.is_some_and(|size| self.receivers[leg as usize].next() >= size) {
            self.finish(index);
        }
    }

    fn finish(&mut self, flow: u32) {
        let finished = &mut self.flows[flow as usize].finished;
        if finished.is_none() {
            *finished = Some(self.now);
            self.unfinished -= 1;
        }
    }

    fn results(&self, stop: StopReason) -> Results {
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
        }
    }
}
