//! One request and its answer, on their way through the proxy (RFC 9112 §6, §9).
//!
//! Whoever moves the bytes asks for each side what is [`Exchange::wanted`], and shows what it has
//! read to [`Exchange::look`], or tells how many opaque bytes have passed
//! ([`Exchange::handle_passed`]). [`Exchange::outcome`] tells what follows from all that has been
//! seen. So the server gets the bytes of this request and no others, and the client gets those of
//! this answer and no others.

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

/// A message of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// From the client.
    Request,
    /// From the server.
    Answer,
}

/// What is wanted of the sender of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// At most so many bytes, at least one, which pass as they are and need not be looked at.
    Opaque(u64),
    /// Bytes that must be looked at.
    Bytes,
    /// Nothing: what the sender sends is not of this message.
    Nothing,
}

/// What becomes of the bytes that were shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// So many, at least one, pass as they are.
    Pass(usize),
    /// So many are kept; nothing is to be sent for them yet.
    Take(usize),
    /// Instead of so many, and of all that was kept, these bytes pass.
    Replace(usize, Vec<u8>),
    /// None of them is of this message, or the message is broken.
    Stop,
}

/// What follows from all that has been seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The answer is not complete.
    Going,
    /// The answer is complete. Once the request is as well, the client's connection is free for
    /// another request; else it must be closed.
    Answered {
        /// The client was told that its connection stays open.
        stays_open: bool,
    },
    /// There is no answer, and the client can be told why: by these bytes, before it is closed.
    Unanswered(&'static str),
    /// The answer is broken off in its middle, and the client must see that.
    Broken,
    /// The server speaks another protocol from here on, with whatever follows from either side.
    Tunnel,
}

/// What the client has asked for, as far as it matters for the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asked {
    /// The method is `HEAD`.
    pub is_head: bool,
    /// Minor version of the request.
    pub version: u8,
    /// Its connection may be used again.
    pub stays_open: bool,
    /// It would rather speak another protocol.
    pub upgrade: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Answer {
    /// What has been read of a head, which may be one of several (1xx).
    Head { kept: Vec<u8>, end: HeadEnd },
    /// The last head has passed.
    Body(Body),
    /// The server ended its connection in the middle of the body.
    CutOff,
    /// Nothing of an answer has passed, and none will.
    None(&'static str),
    /// It cannot go on.
    Broken,
    /// It was 101.
    Tunnel,
}

/// One request and its answer. The head of the request has passed already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exchange {
    asked: Asked,
    request: Body,
    answer: Answer,
    /// The client was told that its connection stays open.
    stays_open: bool,
}

/// What is said to the client where the server's answer cannot be passed on.
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

    /// The client's connection is to be closed after the answer, whatever the client wants.
    pub const fn close_afterwards(&mut self) {
        self.asked.stays_open = false;
    }

    /// What is wanted of the sender of this message.
    #[must_use]
    pub const fn wanted(&self, side: Side) -> Wanted {
        match (side, &self.answer) {
            // What the client sends is of the tunnel, too, but not of this message.
            (Side::Answer, Answer::Tunnel) => Wanted::Opaque(u64::MAX),
            (_, Answer::Tunnel | Answer::None(_) | Answer::Broken) => Wanted::Nothing,
            (Side::Request, _) => self.request.wanted(),
            (Side::Answer, Answer::Head { .. }) => Wanted::Bytes,
            (Side::Answer, Answer::Body(body)) => body.wanted(),
            (Side::Answer, Answer::CutOff) => Wanted::Nothing,
        }
    }

    /// What becomes of the next bytes of a message.
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

    /// So many bytes of a message, of which [`Wanted::Opaque`] bytes were wanted, have passed.
    pub fn handle_passed(&mut self, side: Side, count: u64) {
        match (side, &mut self.answer) {
            (Side::Request, _) => self.request.handle_passed(count),
            (Side::Answer, Answer::Body(body)) => body.handle_passed(count),
            _ => {}
        }
    }

    /// The server's connection has ended: in order, or by a failure.
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

    /// Whether it is the request that breaks the rules.
    #[must_use]
    pub const fn is_request_malformed(&self) -> bool {
        self.request.is_malformed()
    }

    /// What follows.
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

    /// Looks at all of `input`, appends to `output` what is to be sent for it, and returns how
    /// many bytes of it are of this message.
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

    /// It cannot go on; the client can be told while nothing of an answer has passed.
    fn break_off(&mut self, why: &'static str) {
        self.answer = match &self.answer {
            Answer::Head { .. } => Answer::None(why),
            // The client's own fault, and it has its answer.
            Answer::Body(body) if body.is_complete() => return,
            _ => Answer::Broken,
        };
    }

    fn look_at_head(&mut self, input: &[u8]) -> Verdict {
        let Answer::Head { kept, end } = &mut self.answer else {
            return Verdict::Stop;
        };
        // Most heads come at once and need not be kept.
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

/// Whether a parser has come to the end of what it was given.
pub(crate) fn is_whole(parsed: httparse::Result<usize>, length: usize) -> bool {
    matches!(parsed, Ok(Status::Complete(end)) if end == length)
}
