//! One request and its answer, as they pass through the proxy (RFC 9112 §6, §9).
//!
//! The caller moves the bytes. For each side, it first calls [`Exchange::wanted`]. Then it passes the bytes
//! that it has read to [`Exchange::look`], or reports the number of opaque bytes that have passed
//! ([`Exchange::handle_passed`]). [`Exchange::outcome`] returns the state after all bytes so far. In this
//! way, the server gets only bytes of this request, and the client only bytes of this answer.

mod answer;
pub(crate) mod body;
mod chunks;
pub(crate) mod fields;
pub(crate) mod head;

use httparse::Status;

use body::Body;
use head::{Found, HeadEnd};

/// Longest head of an answer, in bytes.
pub const LONGEST_ANSWER_HEAD: usize = 32 * 1024;

/// One of the two messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// From the client.
    Request,
    /// From the server.
    Answer,
}

/// The bytes that a message needs from its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// At most this many bytes, at least one, which pass unchanged and are not parsed.
    Opaque(u64),
    /// Bytes that are parsed.
    Bytes,
    /// None: further bytes of the sender do not belong to this message.
    Nothing,
}

/// The treatment of the bytes that were passed in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// This many bytes, at least one, pass unchanged.
    Pass(usize),
    /// This many bytes are kept; nothing is sent for them yet.
    Take(usize),
    /// These bytes pass instead of this many bytes and of all kept bytes.
    Replace(usize, Vec<u8>),
    /// None of the bytes belongs to this message, or the message is broken.
    Stop,
}

/// The state of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The answer is not complete.
    Going,
    /// The answer is complete. If the request is complete as well, the client's connection is free for
    /// another request; otherwise it must be closed.
    Answered {
        /// The answer announced that the client's connection stays open.
        stays_open: bool,
    },
    /// There is no answer. These bytes report the reason to the client before its connection is
    /// closed.
    Unanswered(&'static str),
    /// The answer ended in its middle, and the client must notice this.
    Broken,
    /// From here on, both sides use another protocol; all further bytes pass.
    Tunnel,
}

/// The parts of the request that matter for the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asked {
    /// The method is `HEAD`.
    pub is_head: bool,
    /// Minor version of the request.
    pub version: u8,
    /// The client's connection may be used again.
    pub stays_open: bool,
    /// The client requests an upgrade to another protocol.
    pub upgrade: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Answer {
    /// The part of a head that has been read; there may be several heads (1xx).
    Head { kept: Vec<u8>, end: HeadEnd },
    /// The last head has passed.
    Body(Body),
    /// The server ended its connection in the middle of the body.
    CutOff,
    /// No byte of an answer has passed, and none will.
    None(&'static str),
    /// The answer cannot continue.
    Broken,
    /// The answer was 101.
    Tunnel,
}

/// One request and its answer. The head of the request has passed already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exchange {
    asked: Asked,
    request: Body,
    answer: Answer,
    /// The answer announced that the client's connection stays open.
    stays_open: bool,
}

/// The answer to the client if the server's answer cannot be passed on.
pub(crate) const NO_ANSWER: &str = "HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/plain\r\n\
     Content-Length: 52\r\nConnection: close\r\n\r\n\
     the server ended the connection and has not answered";
pub(crate) const BAD_ANSWER: &str = "HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/plain\r\n\
     Content-Length: 41\r\nConnection: close\r\n\r\n\
     the server's answer is not right HTTP/1.1";
const BAD_BODY: &str = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n\
     Content-Length: 36\r\nConnection: close\r\n\r\n\
     the chunks of the request are broken";

impl Exchange {
    pub(crate) fn new(asked: Asked, request: Body) -> Self {
        Self {
            asked,
            request,
            answer: Answer::Head {
                kept: Vec::new(),
                end: HeadEnd::default(),
            },
            stays_open: false,
        }
    }

    /// Closes the client's connection after the answer, even if the client requests otherwise.
    pub const fn close_afterwards(&mut self) {
        self.asked.stays_open = false;
    }

    /// The bytes that this message needs from its sender.
    #[must_use]
    pub const fn wanted(&self, side: Side) -> Wanted {
        match (side, &self.answer) {
            // The client's bytes belong to the tunnel, but not to this message.
            (Side::Answer, Answer::Tunnel) => Wanted::Opaque(u64::MAX),
            (_, Answer::Tunnel | Answer::None(_) | Answer::Broken) => Wanted::Nothing,
            (Side::Request, _) => self.request.wanted(),
            (Side::Answer, Answer::Head { .. }) => Wanted::Bytes,
            (Side::Answer, Answer::Body(body)) => body.wanted(),
            (Side::Answer, Answer::CutOff) => Wanted::Nothing,
        }
    }

    /// The treatment of the next bytes of a message.
    pub fn look(&mut self, side: Side, input: &[u8]) -> Verdict {
        if self.wanted(side) == Wanted::Nothing {
            return Verdict::Stop;
        }
        match side {
            Side::Request => {
                let verdict = self.request.look(input);
                if self.request.is_malformed() {
                    self.break_off(BAD_BODY);
                }
                verdict
            }
            Side::Answer => {
                let verdict = match &mut self.answer {
                    Answer::Body(body) => body.look(input),
                    Answer::Tunnel => Verdict::Pass(input.len()),
                    _ => self.look_at_head(input),
                };
                if matches!(&self.answer, Answer::Body(body) if body.is_malformed()) {
                    self.answer = Answer::Broken;
                }
                verdict
            }
        }
    }

    /// This many bytes of a message have passed; [`Exchange::wanted`] had returned [`Wanted::Opaque`].
    pub fn handle_passed(&mut self, side: Side, count: u64) {
        match (side, &mut self.answer) {
            (Side::Request, _) => self.request.handle_passed(count),
            (Side::Answer, Answer::Body(body)) => body.handle_passed(count),
            _ => {}
        }
    }

    /// The server's connection has ended: by a FIN, or by a failure.
    pub fn handle_server_end(&mut self, in_order: bool) {
        match &self.answer {
            Answer::Head { .. } => self.answer = Answer::None(NO_ANSWER),
            Answer::Body(body) if body.is_complete() => {}
            Answer::Body(Body::UntilEnd) if in_order => self.answer = Answer::Body(Body::NONE),
            Answer::Body(_) if in_order => self.answer = Answer::CutOff,
            Answer::Body(_) => self.answer = Answer::Broken,
            Answer::CutOff | Answer::None(_) | Answer::Broken | Answer::Tunnel => {}
        }
    }

    /// Whether the server has all of the request.
    #[must_use]
    pub const fn is_request_complete(&self) -> bool {
        self.request.is_complete()
    }

    /// Whether the request violates the rules.
    #[must_use]
    pub const fn is_request_malformed(&self) -> bool {
        self.request.is_malformed()
    }

    /// The state of the exchange.
    #[must_use]
    pub const fn outcome(&self) -> Outcome {
        match &self.answer {
            Answer::Body(body) if body.is_complete() => Outcome::Answered {
                stays_open: self.stays_open,
            },
            Answer::Head { .. } | Answer::Body(_) => Outcome::Going,
            Answer::CutOff => Outcome::Answered { stays_open: false },
            Answer::None(text) => Outcome::Unanswered(text),
            Answer::Broken => Outcome::Broken,
            Answer::Tunnel => Outcome::Tunnel,
        }
    }

    /// Parses all of `input`, appends the bytes to be sent for it to `output`, and returns the number
    /// of its bytes that belong to this message.
    pub fn take_in(&mut self, side: Side, input: &[u8], output: &mut Vec<u8>) -> usize {
        let mut taken = 0;
        while let Some(rest) = input.get(taken..).filter(|rest| !rest.is_empty()) {
            taken += match self.look(side, rest) {
                Verdict::Pass(count) => {
                    output.extend_from_slice(rest.get(..count).unwrap_or(rest));
                    count
                }
                Verdict::Take(count) => count,
                Verdict::Replace(count, bytes) => {
                    output.extend(bytes);
                    count
                }
                Verdict::Stop => break,
            };
        }
        taken
    }

    /// The exchange cannot continue; the client can get a reason as long as no byte of an answer has
    /// passed.
    fn break_off(&mut self, why: &'static str) {
        self.answer = match &self.answer {
            Answer::Head { .. } => Answer::None(why),
            // This is the client's own fault, and the client has its answer.
            Answer::Body(body) if body.is_complete() => return,
            _ => Answer::Broken,
        };
    }

    fn look_at_head(&mut self, input: &[u8]) -> Verdict {
        let Answer::Head { kept, end } = &mut self.answer else {
            return Verdict::Stop;
        };
        // Most heads arrive as a whole and need not be kept.
        let before = kept.len();
        let whole: &[u8] = match kept.is_empty() {
            true => input,
            false => {
                kept.extend_from_slice(input);
                kept
            }
        };
        let seen = whole.get(..LONGEST_ANSWER_HEAD).unwrap_or(whole);
        let length = match end.search(seen) {
            Found::End(length) => length,
            Found::Nothing if whole.len() < LONGEST_ANSWER_HEAD => {
                if before == 0 {
                    kept.extend_from_slice(input);
                }
                return Verdict::Take(input.len());
            }
            Found::Nothing | Found::Wrong => {
                self.break_off(BAD_ANSWER);
                return Verdict::Stop;
            }
        };
        let consumed = length.saturating_sub(before);
        let head = whole.get(..length).unwrap_or(whole);
        let may_stay_open = self.asked.stays_open && self.request.is_complete();
        let read = answer::read(head, &self.asked, may_stay_open);
        let Ok(answer::Head {
            for_client,
            next,
            stays_open,
        }) = read
        else {
            self.break_off(BAD_ANSWER);
            return Verdict::Stop;
        };
        self.stays_open = stays_open;
        self.answer = match next {
            answer::Next::Head => Answer::Head {
                kept: Vec::new(),
                end: HeadEnd::default(),
            },
            answer::Next::Body(body) => Answer::Body(body),
            answer::Next::Tunnel if self.request.is_complete() => Answer::Tunnel,
            answer::Next::Tunnel => {
                self.break_off(BAD_ANSWER);
                return Verdict::Stop;
            }
        };
        Verdict::Replace(consumed, for_client)
    }
}

/// Whether a parser has reached the end of its input.
pub(crate) fn is_whole(parsed: httparse::Result<usize>, length: usize) -> bool {
    matches!(parsed, Ok(Status::Complete(end)) if end == length)
}
