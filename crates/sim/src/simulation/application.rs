//! How flows write, and when they end.

use std::ops::Range;

use midspan_link::Stream;
use midspan_units::{Time, TimeSpan};

use super::Simulation;
use crate::observer::Observer;
use crate::random::{Distribution, draw, stream_for};
use crate::results::GaveUp;
use crate::scenario::{Client, Dialogue, Flow, Source};

#[derive(Debug)]
pub(super) struct FlowState {
    pub(super) start: Time,
    /// When the application writes next; `None` if it waits for another event.
    pub(super) next_write: Option<Time>,
    stop: Option<Time>,
    /// The number of bytes at the last receiver that triggers the next action.
    mark: u64,
    source: SourceState,
    pub(super) client: Client,
    pub(super) first_leg: u32,
    legs: u32,
    pub(super) finished: Option<Time>,
    pub(super) gave_up: Option<GaveUp>,
    pub(super) refused: Option<Time>,
    /// It never begins: its session has another overlay route.
    pub(super) unused: bool,
}

#[derive(Debug)]
enum SourceState {
    Bulk,
    Fixed(u64),
    OnOff {
        size: Distribution,
        pause: Distribution,
        stream: Box<Stream>,
    },
    /// The requests of a dialogue, and the flow of its responses.
    Requests {
        dialogue: u32,
        answers: u32,
    },
    /// The responses of a dialogue, and the flow of its requests.
    Answers {
        dialogue: u32,
        requests: u32,
    },
}

/// The remaining part of a dialogue.
#[derive(Debug)]
pub(super) struct DialogueState {
    /// Requests that no connection has sent yet.
    left: u32,
    request: u64,
    answer: u64,
}

const NEVER: u64 = u64::MAX;

impl FlowState {
    pub(super) fn new(flow: &Flow, seed: u64, first_leg: u32, legs: u32) -> Self {
        let start = Time::ZERO + flow.start;
        Self {
            start,
            next_write: Some(start),
            stop: flow.stop.map(|stop| Time::ZERO + (flow.start + stop)),
            mark: NEVER,
            source: match flow.source {
                // A dialogue sets its flows later.
                Source::Bulk | Source::Dialogue => SourceState::Bulk,
                Source::Fixed(size) => SourceState::Fixed(size.bytes()),
                Source::OnOff { size, pause } => SourceState::OnOff {
                    size,
                    pause,
                    stream: Box::new(stream_for(seed, "source", &flow.name)),
                },
            },
            client: flow.client,
            first_leg,
            legs,
            finished: None,
            gave_up: None,
            refused: None,
            unused: false,
        }
    }

    /// Whether the application writes without end, until it is stopped.
    pub(super) const fn is_bulk(&self) -> bool {
        matches!(self.source, SourceState::Bulk)
    }

    /// Whether the flow never finishes.
    pub(super) const fn is_endless(&self) -> bool {
        self.is_bulk() && self.stop.is_none()
    }

    /// Whether nothing more will be delivered.
    pub(super) const fn has_ended(&self) -> bool {
        let has_failed = self.gave_up.is_some() || self.refused.is_some();
        self.finished.is_some() || has_failed || self.unused
    }

    pub(super) const fn legs(&self) -> Range<usize> {
        let first = self.first_leg as usize;
        first..first + self.legs as usize
    }

    pub(super) fn leg(&self, leg: usize) -> Option<usize> {
        self.legs().nth(leg)
    }
}

impl DialogueState {
    /// The state of the next dialogue in order; connects its flows to it.
    pub(super) fn new(number: u32, dialogue: &Dialogue, flows: &mut [FlowState]) -> Self {
        for [requests, answers] in &dialogue.connections {
            let index = |flow: usize| u32::try_from(flow).unwrap_or(u32::MAX);
            if let Some(flow) = flows.get_mut(requests.0) {
                flow.source = SourceState::Requests {
                    dialogue: number,
                    answers: index(answers.0),
                };
            }
            if let Some(flow) = flows.get_mut(answers.0) {
                flow.next_write = None;
                flow.source = SourceState::Answers {
                    dialogue: number,
                    requests: index(requests.0),
                };
            }
        }
        Self {
            left: dialogue.count,
            request: dialogue.request.bytes(),
            answer: dialogue.answer.bytes(),
        }
    }
}

impl<O: Observer> Simulation<O> {
    /// The time of a flow has come, at which it stops or writes.
    pub(super) fn handle_flow(&mut self, index: u32) {
        let now = self.now;
        let flow = &mut self.flows[index as usize];
        if flow.has_ended() {
            return;
        }
        if flow.stop.is_some_and(|stop| stop <= now) && flow.next_write != Some(flow.start) {
            self.senders[flow.first_leg as usize].handle_stop();
            self.finish(index);
            return;
        }
        if flow.next_write.take_if(|at| *at <= now).is_some() {
            self.write_next(index);
        }
        self.wake_flow(index);
    }

    fn wake_flow(&mut self, index: u32) {
        let flow = &self.flows[index as usize];
        for at in [flow.next_write, flow.stop].into_iter().flatten() {
            self.schedule
                .wake(self.places.flow(index), at.max(self.now));
        }
    }

    /// Writes the next data of a flow's source.
    fn write_next(&mut self, index: u32) {
        let bytes = match &mut self.flows[index as usize].source {
            SourceState::Bulk => NEVER,
            SourceState::Fixed(size) => *size,
            SourceState::OnOff { size, stream, .. } => whole(draw(stream, *size)),
            SourceState::Requests { dialogue, .. } => {
                let dialogue = &mut self.dialogues[*dialogue as usize];
                if dialogue.left == 0 {
                    // Other connections took the last requests.
                    self.finish_dialogue(index);
                    return;
                }
                dialogue.left -= 1;
                dialogue.request
            }
            SourceState::Answers { dialogue, .. } => self.dialogues[*dialogue as usize].answer,
        };
        let flow = &mut self.flows[index as usize];
        let first = flow.first_leg;
        let sender = &mut self.senders[first as usize];
        sender.handle_write(bytes);
        sender.handle_open();
        flow.mark = sender.written();
        self.flush_sender(first);
    }

    /// Whether the data that a flow waits for has arrived at its end.
    #[inline]
    pub(super) fn check_mark(&mut self, leg: u32) {
        let index = self.legs[leg as usize].flow;
        if self.receivers[leg as usize].next() >= self.flows[index as usize].mark {
            self.reach_mark(index);
        }
    }

    #[cold]
    fn reach_mark(&mut self, index: u32) {
        let now = self.now;
        let flow = &mut self.flows[index as usize];
        flow.mark = NEVER;
        match &mut flow.source {
            SourceState::Bulk => {}
            SourceState::Fixed(_) => self.finish(index),
            SourceState::OnOff { pause, stream, .. } => {
                flow.next_write = Some(now + seconds(draw(stream, *pause)));
                self.wake_flow(index);
            }
            SourceState::Requests { answers, .. } => {
                let answers = *answers;
                self.answer(index);
                self.share_round_trips(index, answers);
                self.write_next(answers);
            }
            SourceState::Answers { requests, .. } => {
                let requests = *requests;
                self.answer(index);
                self.write_next(requests);
            }
        }
    }

    /// Sends the response to the data that a flow has delivered, over the same connection.
    fn answer(&mut self, index: u32) {
        let flow = &self.flows[index as usize];
        let last = flow.first_leg + flow.legs.saturating_sub(1);
        self.receivers[last as usize].handle_answer();
        self.flush_receiver(last);
    }

    /// A connection of a dialogue is finished.
    fn finish_dialogue(&mut self, requests: u32) {
        self.finish(requests);
        if let SourceState::Requests { answers, .. } = self.flows[requests as usize].source {
            self.finish(answers);
        }
    }

    fn finish(&mut self, flow: u32) {
        let state = &mut self.flows[flow as usize];
        if !state.has_ended() {
            state.finished = Some(self.now);
            self.unfinished -= 1;
            self.end_sessions(flow);
        }
    }

    /// The sender of a leg has given up: its flow ends, together with the other direction of the
    /// connection.
    pub(super) fn give_up(&mut self, leg: u32) {
        let at = self.now;
        self.end_connection(leg, |flow| {
            let leg = (leg as usize).saturating_sub(flow.first_leg as usize);
            flow.gave_up = Some(GaveUp { at, leg });
        });
    }

    /// The sender of a flow has received a reset.
    pub(super) fn end_refused(&mut self, leg: u32) {
        let at = self.now;
        self.end_connection(leg, |flow| flow.refused = Some(at));
    }

    /// Ends the flow of a leg and that of the other direction of its connection.
    fn end_connection(&mut self, leg: u32, note: impl Fn(&mut FlowState)) {
        let index = self.legs[leg as usize].flow;
        let partner = match self.flows[index as usize].source {
            SourceState::Requests { answers, .. } => Some(answers),
            SourceState::Answers { requests, .. } => Some(requests),
            SourceState::Bulk | SourceState::Fixed(_) | SourceState::OnOff { .. } => None,
        };
        for flow in [Some(index), partner].into_iter().flatten() {
            let state = &mut self.flows[flow as usize];
            if !state.has_ended() {
                note(state);
                self.unfinished -= 1;
                self.end_sessions(flow);
            }
            for leg in self.flows[flow as usize].legs() {
                self.senders[leg].handle_abort();
            }
        }
    }
}

/// A drawn size in whole bytes, at least one.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Saturates.
fn whole(size: f64) -> u64 {
    (libm::round(size) as u64).max(1)
}

/// A drawn time.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Saturates.
pub(super) fn seconds(time: f64) -> TimeSpan {
    TimeSpan::from_nanoseconds(libm::round(time * 1e9) as u64)
}
