//! One direction of a link: queue → transmitter → loss → delay, changed by a schedule.

use midspan_units::Time;

use crate::counters::Counters;
use crate::delay::Delay;
use crate::loss::{Bernoulli, Loss, LossModel};
use crate::packet::Packet;
use crate::queue::{DropTail, Queue};
use crate::schedule::{Schedule, ScheduleError, Step, Timeline};
use crate::stage::{Output, Outputs, Stage, Waiting};
use crate::transmitter::Transmitter;

/// One direction of a link.
///
/// Several events at the same instant happen in this order: transmissions end, the schedule changes
/// the link, packets arrive.
///
/// The number of packets in a link is bounded by its queue, and by what its rate can send within
/// its delay. With an unlimited rate, it is bounded only by what arrives within the delay (see
/// [`Stage::held`]). A packet counts as delivered or dropped when it is polled.
#[derive(Debug, Clone)]
pub struct Link<P, Q = DropTail<P>, L = Bernoulli> {
    transmitter: Transmitter<P, Q>,
    loss: Loss<P, L>,
    delay: Delay<P>,
    timeline: Timeline,
    /// Packets that left the link while another packet was handled.
    outputs: Outputs<P>,
    counters: Counters,
    now: Time,
}

impl<P: Packet, Q: Queue<P>, L: LossModel> Link<P, Q, L> {
    /// A link with any queue discipline and any loss model.
    ///
    /// # Errors
    /// When the schedule is not in order.
    pub fn from_stages(
        transmitter: Transmitter<P, Q>,
        loss: Loss<P, L>,
        delay: Delay<P>,
        schedule: Schedule,
    ) -> Result<Self, ScheduleError> {
        Ok(Self {
            transmitter,
            loss,
            delay,
            timeline: Timeline::new(schedule)?,
            outputs: Outputs::default(),
            counters: Counters::default(),
            now: Time::ZERO,
        })
    }

    /// The next packet that leaves the link, up to and including `until`.
    fn run(&mut self, until: Time) -> Option<Output<P>> {
        while let Some(sent) = self.transmitter.poll(until) {
            let Output::Delivered { due, packet } = sent else {
                return Some(sent);
            };
            self.loss.handle(due, packet);
            match self.loss.poll(due) {
                Some(Output::Delivered { due, packet }) => self.delay.handle(due, packet),
                lost => return lost,
            }
        }
        self.delay.poll(until)
    }

    /// As [`run`](Self::run), and applies the changes of the schedule in between.
    fn run_scheduled(&mut self, now: Time) -> Option<Output<P>> {
        loop {
            let change = self.timeline.next_change().filter(|at| *at <= now);
            let output = self.run(change.unwrap_or(now));
            if output.is_some() || change.is_none() {
                return output;
            }
            if self.transmitter.is_idle() {
                self.timeline.skip_repetitions(now);
            }
            if let Some((at, step)) = self.timeline.take(now) {
                self.change(at, step);
            }
        }
    }

    fn change(&mut self, at: Time, step: Step) {
        if let Some(rate) = step.rate {
            self.transmitter.set_rate(at, Some(rate));
        }
        if let Some(delay) = step.delay {
            self.delay.set_delay(delay);
        }
        if let Some(loss) = step.loss {
            self.loss.set_probability(loss);
        }
    }

    fn check_invariants(&self) {
        debug_assert_eq!(
            self.counters.held_packets(),
            self.held() as u64,
            "every packet is delivered, dropped or held"
        );
        debug_assert_eq!(self.loss.held(), 0, "loss takes no time");
    }
}

impl<P: Packet, Q: Queue<P>, L: LossModel> Stage<P> for Link<P, Q, L> {
    fn handle(&mut self, now: Time, packet: P) {
        self.now = self.now.max(now);
        // If the schedule does not change the link by now, the stages catch up by themselves: the
        // transmitter in `handle`, the others in the next poll.
        if self.timeline.next_change().is_some_and(|at| at <= self.now) {
            while let Some(output) = self.run_scheduled(self.now) {
                self.outputs.push(output);
            }
        }
        self.counters.handled.add(packet.size());
        self.transmitter.handle(self.now, packet);
        let queue = self.transmitter.queue();
        self.counters.see_queue(queue.packets(), queue.bytes());
        self.check_invariants();
    }

    fn poll(&mut self, now: Time) -> Option<Output<P>> {
        self.now = self.now.max(now);
        let output = self.outputs.pop().or_else(|| self.run_scheduled(self.now));
        if let Some(output) = &output {
            output.count(&mut self.counters);
        }
        self.check_invariants();
        output
    }

    fn poll_timeout(&self) -> Option<Time> {
        if let Some(due) = self.outputs.due() {
            return Some(due);
        }
        // Packets do not overtake each other: the packet in transmission is delivered after all
        // packets in propagation, so one wake-up for each packet is enough.
        if let Some(due) = self.delay.poll_timeout() {
            return Some(due);
        }
        let end = self.transmitter.poll_timeout()?;
        Some(self.timeline.next_change().map_or(end, |at| at.min(end)))
    }

    fn held(&self) -> usize {
        self.transmitter.held() + self.loss.held() + self.delay.held() + self.outputs.len()
    }

    fn waiting(&self) -> Waiting {
        self.transmitter.waiting()
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}
