//! How a client learns that there will be no session.

use midspan_explicit::{Failure, Outcome};
use midspan_units::{Time, TimeSpan};
use rustix::io::Errno;

use super::super::{PARTING_TIME, Reason, flush};
use super::{NegotiatingClient, PARTING_BYTES, Speaker, Stage, Step};
use crate::system;

impl NegotiatingClient {
    /// Informs the client that there will be no session.
    pub fn fail(&mut self, failure: Failure, reason: Option<Reason>, now: Time) -> Step {
        let outcome = Outcome::Failed(failure);
        let reply = match &self.language {
            Speaker::Nobody(_) => Vec::new(),
            Speaker::Socks5(socks) => socks.answer(outcome),
            Speaker::Http(http) => http.answer(outcome),
            Speaker::Hop(hop) => hop.answer(outcome, TimeSpan::ZERO),
        };
        self.refuse(reply, reason, now)
    }

    pub(super) fn refuse(&mut self, reply: Vec<u8>, reason: Option<Reason>, now: Time) -> Step {
        self.to_client.extend(reply);
        self.input = Vec::new();
        if self.to_client.is_empty() {
            // The client's protocol is unknown, or it has no such message: a reset.
            self.stage = Stage::Over;
            return Step::End(reason);
        }
        self.deadline = now + PARTING_TIME;
        self.stage = Stage::Refusing {
            reason,
            left: PARTING_BYTES,
            is_shut: false,
        };
        self.part()
    }

    /// Waits for the client's FIN, so that the client can read the answer: closing a socket with
    /// unread data sends a reset, and the client would lose the answer.
    pub(super) fn part(&mut self) -> Step {
        self.may_have_more = true;
        let Stage::Refusing {
            reason,
            left,
            is_shut,
        } = &mut self.stage
        else {
            return Step::Wait;
        };
        if flush(&self.client, &mut self.to_client).is_err() {
            return Step::End(*reason);
        }
        if !self.to_client.is_empty() {
            return Step::Wait;
        }
        if !*is_shut {
            *is_shut = true;
            let _ = self.client.end_writing();
        }
        let mut buffer = [0_u8; 4096];
        while *left > 0 {
            match self.client.receive(&mut buffer) {
                Ok(0) => {
                    let _ = system::set_reset_on_close(&self.client, false);
                    return Step::End(*reason);
                }
                Ok(count) => *left = left.saturating_sub(count),
                Err(Errno::AGAIN) => return Step::Wait,
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        Step::End(*reason)
    }
}
