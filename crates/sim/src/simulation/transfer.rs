//! Transfers packets from a sender or receiver over links to the other end; handles the timers of
//! both.

use midspan_link::{Output, Stage as _, Waiting};
use midspan_units::Time;

use super::Simulation;
use crate::engine::Event;
use crate::network::{Dropped, Handed};
use crate::observer::Observer;
use crate::packet::{Acknowledgement, Data, Packet, PacketDirection, Passage, Segment};
use crate::scenario::LinkId;

impl<O: Observer> Simulation<O> {
    #[inline]
    pub(super) fn handle_link(&mut self, event: Event, link: u32) {
        let Some(on_its_way) = self.network.on_its_way(link) else {
            self.poll_link(event, link);
            return;
        };
        let now = self.now;
        let Some((_, mut packet)) = on_its_way.front().copied() else {
            self.schedule.done(event);
            return;
        };
        on_its_way.pop_front();
        match on_its_way.front() {
            Some((due, _)) => self.schedule.again(event, (*due).max(now)),
            None => self.schedule.done(event),
        }
        self.pass_on(&mut packet);
    }

    /// Like [`handle_link`](Self::handle_link), for a link on which the fate of a packet is decided
    /// late.
    #[inline(never)]
    fn poll_link(&mut self, event: Event, link: u32) {
        let output = self.network.poll(link, self.now);
        match self.network.poll_timeout(link) {
            Some(at) => self.schedule.again(event, at.max(self.now)),
            None => self.schedule.done(event),
        }
        match output {
            Some((_, Output::Delivered { mut packet, .. })) => self.pass_on(&mut packet),
            Some((
                link,
                Output::Dropped {
                    due,
                    packet,
                    reason,
                },
            )) => self.report_drop(&Dropped {
                at: due,
                link,
                packet,
                reason,
            }),
            None => {}
        }
    }

    /// A packet has come out of a link: it goes to the next one, or has arrived.
    #[inline]
    fn pass_on(&mut self, packet: &mut Packet) {
        if O::WATCHES_QUEUES {
            let (link, up) = self.place_of(packet);
            self.observer.passed(self.now, link, up, packet);
        }
        let leg = &self.legs[packet.connection as usize];
        if packet.passage.hop() + 1 < leg.route(packet.direction()).len() {
            packet.passage.advance();
            self.enter_link(packet);
        } else if packet.passage.is_fragment() {
            self.reassemble(*packet);
        } else {
            self.arrive(packet);
        }
    }

    /// A whole packet has reached the end of its route.
    #[inline]
    fn arrive(&mut self, packet: &Packet) {
        self.observer.delivered(self.now, packet);
        if !self.signals.is_empty() {
            self.receive_signals(packet);
        }
        match &packet.segment {
            Segment::Data(data) => self.deliver_data(packet.connection, data),
            Segment::Acknowledgement(ack) => {
                if !self.regenerate(packet.connection, ack) {
                    self.deliver_ack(packet.connection, ack);
                }
            }
            Segment::Echo(number) => self.deliver_echo(packet, *number),
            Segment::Reset => self.deliver_reset(packet.connection),
            Segment::Datagram => self.deliver_traffic(packet),
        }
    }

    #[cold]
    fn reassemble(&mut self, packet: Packet) {
        if let Some(cell) = &mut self.reassembly {
            cell.handle(self.now, packet);
        }
        self.poll_reassembly();
    }

    pub(super) fn poll_reassembly(&mut self) {
        while let Some(output) = self
            .reassembly
            .as_mut()
            .and_then(|cell| cell.poll(self.now))
        {
            match output {
                Output::Delivered { packet, .. } => self.arrive(&packet),
                Output::Dropped { due, packet, .. } => self.observer.given_up(due, &packet),
            }
        }
        let timeout = self
            .reassembly
            .as_ref()
            .and_then(|cell| cell.poll_timeout());
        if let Some(at) = timeout {
            self.schedule
                .wake(self.places.reassembly(), at.max(self.now));
        }
    }

    #[inline]
    fn deliver_data(&mut self, leg: u32, data: &Data) {
        let receiver = &mut self.receivers[leg as usize];
        if let Some(relay) = self.legs[leg as usize].onward {
            let (_, joined) = &mut self.relays[relay as usize];
            if joined.refuses() {
                self.refuse(leg);
                return;
            }
            joined.handle_segment(self.now, data, receiver);
            self.run_relay(relay);
        } else {
            receiver.handle_segment(self.now, data);
            // The application at the end reads at once.
            receiver.handle_release(self.now, u64::MAX);
            self.flush_receiver(leg);
            self.check_mark(leg);
        }
    }

    #[inline]
    fn deliver_ack(&mut self, leg: u32, ack: &Acknowledgement) {
        let sender = &mut self.senders[leg as usize];
        sender.handle_acknowledgement(self.now, ack);
        self.observer.sender(self.now, leg, sender);
        match self.legs[leg as usize].feeder {
            Some(relay) => self.run_relay(relay),
            None => self.flush_sender(leg),
        }
    }

    pub(super) fn handle_receiver_timer(&mut self, event: Event, leg: u32) {
        let own = self.receivers[leg as usize].poll_timeout();
        let deadline = own.map(|(at, _)| at);
        let held = self.held_ack_deadline(leg);
        if self.postpone(event, deadline.into_iter().chain(held).min()) {
            return;
        }
        self.receivers[leg as usize].handle_timeout(self.now);
        self.release_held_ack(leg);
        self.flush_receiver(leg);
    }

    pub(super) fn handle_sender_timer(&mut self, event: Event, leg: u32) {
        let own = self.senders[leg as usize].poll_timeout();
        let deadline = own.map(|(at, _)| at);
        let regenerated = self.regenerated_deadline(leg);
        if self.postpone(event, deadline.into_iter().chain(regenerated).min()) {
            return;
        }
        while let Some(ack) = self.poll_regenerated(leg) {
            self.deliver_ack(leg, &ack);
        }
        if let Some(at) = self.regenerated_deadline(leg) {
            self.schedule.wake(self.places.sender(leg), at);
        }
        let sender = &mut self.senders[leg as usize];
        sender.handle_timeout(self.now);
        self.observer.sender(self.now, leg, sender);
        if sender.has_given_up() {
            self.give_up(leg);
            return;
        }
        match self.legs[leg as usize].feeder {
            Some(relay) if self.relays[relay as usize].1.limits_unsent() => self.run_relay(relay),
            _ => self.flush_sender(leg),
        }
    }

    /// Moves an event to its deadline, if that is in the future. Returns whether it was moved.
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

    pub(super) fn run_relay(&mut self, index: u32) {
        loop {
            let (inbound, relay) = &mut self.relays[index as usize];
            let (inbound, outbound) = (*inbound, *inbound + 1);
            let receiver = &mut self.receivers[inbound as usize];
            let sender = &mut self.senders[outbound as usize];
            let sent = sender.highest();
            let forwarded = relay.run(self.now, receiver, sender);
            if forwarded > 0 {
                self.observer.forwarded(self.now, inbound, forwarded);
            }
            self.flush_receiver(inbound);
            self.flush_sender(outbound);
            let (_, relay) = &self.relays[index as usize];
            let sender = &self.senders[outbound as usize];
            if relay.limits_unsent() && sender.highest() > sent {
                continue;
            }
            if let Some(at) = relay.poll_timeout(sender) {
                self.schedule.wake(self.places.relay(index), at);
            }
            break;
        }
    }

    #[inline]
    pub(super) fn flush_sender(&mut self, leg: u32) {
        while let Some(data) = self.senders[leg as usize].poll_transmit(self.now) {
            let size = data.length + self.legs[leg as usize].header_size;
            self.send_data(leg, size, data);
        }
        if let Some((at, _)) = self.senders[leg as usize].poll_timeout() {
            self.schedule.wake(self.places.sender(leg), at);
        }
    }

    #[inline]
    pub(super) fn flush_receiver(&mut self, leg: u32) {
        while let Some(ack) = self.receivers[leg as usize].poll_transmit() {
            if self.control.is_some() {
                self.thin(leg, ack);
            } else {
                self.send_ack(leg, ack);
            }
        }
        if let Some((at, _)) = self.receivers[leg as usize].poll_timeout() {
            self.schedule.wake(self.places.receiver(leg), at);
        }
    }

    /// A proxy answers every packet on a leg with a reset.
    #[cold]
    fn refuse(&mut self, leg: u32) {
        let size = self.receivers[leg as usize].header_size();
        self.send(leg, PacketDirection::Back, size, Segment::Reset);
    }

    /// A reset has reached the sender of a leg: the connection is refused. A proxy passes it on.
    #[cold]
    fn deliver_reset(&mut self, leg: u32) {
        self.senders[leg as usize].handle_abort();
        match self.legs[leg as usize].feeder {
            Some(relay) => {
                let (inbound, _) = self.relays[relay as usize];
                self.refuse(inbound);
            }
            None => self.end_refused(leg),
        }
    }

    // Always inlined. Otherwise the compiler writes the ACK to memory in small pieces and reads it
    // in larger ones: the processor cannot forward such stores to the loads, and waits.
    #[inline(always)]
    pub(super) fn send_ack(&mut self, leg: u32, ack: Acknowledgement) {
        if !self.signals.is_empty() {
            let timestamp = self.timestamp();
            self.receivers[leg as usize].handle_sent(self.now, timestamp);
        }
        let size = self.receivers[leg as usize].size_of(&ack);
        self.send(
            leg,
            PacketDirection::Back,
            size,
            Segment::Acknowledgement(ack),
        );
    }

    #[inline]
    pub(super) fn send(
        &mut self,
        leg: u32,
        direction: PacketDirection,
        size: u32,
        segment: Segment,
    ) {
        let mut packet = Packet {
            connection: leg,
            size,
            passage: Passage::new(direction),
            signals: self.signals_of(leg, direction),
            segment,
        };
        self.observer.sent(self.now, &packet);
        self.enter_link(&mut packet);
    }

    #[inline]
    fn enter_link(&mut self, packet: &mut Packet) {
        let leg = &self.legs[packet.connection as usize];
        let route = leg.route(packet.direction());
        let handed = self
            .network
            .handle(&mut self.schedule, self.now, route, packet, Time::ZERO);
        if O::WATCHES_QUEUES {
            self.report_queue(packet);
        }
        if let Handed::Dropped(dropped) = handed {
            self.report_drop(&dropped);
        }
        if self.network.has_dropped_fragments() {
            for dropped in self.network.take_dropped_fragments() {
                self.report_drop(&dropped);
            }
        }
    }

    /// Reports the queue that a packet has just entered.
    fn report_queue(&mut self, packet: &Packet) {
        let route = self.legs[packet.connection as usize].route(packet.direction());
        let Waiting { packets, bytes } = self.network.waiting(route[packet.passage.hop()]);
        let (link, up) = self.place_of(packet);
        self.observer.queue(self.now, link, up, packets, bytes);
    }

    /// The link on which a packet is, and whether it goes from the link's first node to its second.
    fn place_of(&self, packet: &Packet) -> (LinkId, bool) {
        let route = self.legs[packet.connection as usize].route(packet.direction());
        let place = route[packet.passage.hop()];
        (LinkId(place as usize / 2), place.is_multiple_of(2))
    }

    fn report_drop(&mut self, dropped: &Dropped) {
        let link = LinkId(dropped.link as usize / 2);
        let up = dropped.link.is_multiple_of(2);
        self.observer
            .dropped(dropped.at, link, up, &dropped.packet, dropped.reason);
    }
}
