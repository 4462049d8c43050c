//! The answer to the request of a hop.

use std::mem::MaybeUninit;

use httparse::{Header, ParserConfig};
use midspan_policy::overlay::{NextHop, NodeKind};
use thiserror::Error;

use super::proxy_status::HopFailure;
use super::server_timing::{self, ConnectTime};
use crate::exchange::head::{Found, HeadEnd};
use crate::exchange::is_whole;
use crate::http::LONGEST_HEAD;

/// Most header fields of an answer.
const MOST_FIELDS: usize = 64;

/// The answer to the request of a hop. The default is a success without times.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HopAnswer {
    /// Why there is no connection to the server; `None` if there is one.
    pub failure: Option<HopFailure>,
    /// How long nodes took to connect, the exit first.
    pub connect_times: Vec<ConnectTime>,
}

/// Why bytes are not the answer to the request of a hop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum InvalidAnswer {
    /// Its head has more than [`LONGEST_HEAD`] bytes, with those of interim answers.
    #[error("the head of the answer is larger than {LONGEST_HEAD} bytes")]
    TooLarge,
    /// It is not the head of an HTTP answer.
    #[error("this is no HTTP answer")]
    Malformed,
}

/// Reads the head of an answer, and no byte behind it.
#[derive(Debug, Clone, Default)]
pub struct AnswerReader {
    /// The part of the present head that has been read.
    head: Vec<u8>,
    end: HeadEnd,
    /// Bytes of the heads before it.
    before: usize,
}

impl AnswerReader {
    /// Reads the next bytes. Returns how many of them belong to the head, and the answer if its head is
    /// complete; without an answer, all bytes belong to the head. Interim answers (1xx) are skipped.
    ///
    /// # Errors
    /// The bytes are no answer, or its head is too large.
    pub fn take(&mut self, bytes: &[u8]) -> Result<(usize, Option<HopAnswer>), InvalidAnswer> {
        let mut taken = 0;
        loop {
            let known = self.head.len();
            let rest = bytes.get(taken..).unwrap_or_default();
            if rest.is_empty() {
                return Ok((taken, None));
            }
            let room = LONGEST_HEAD.saturating_sub(self.before + known);
            self.head
                .extend_from_slice(rest.get(..room).unwrap_or(rest));
            match self.end.search(&self.head) {
                Found::Nothing if rest.len() < room => return Ok((bytes.len(), None)),
                Found::Nothing => return Err(InvalidAnswer::TooLarge),
                Found::Wrong => return Err(InvalidAnswer::Malformed),
                Found::End(length) => {
                    taken += length.saturating_sub(known);
                    self.head.truncate(length);
                    self.before += length;
                    let answer = HopAnswer::parse(&self.head)?;
                    (self.head, self.end) = (Vec::new(), HeadEnd::default());
                    if answer.is_some() {
                        return Ok((taken, answer));
                    }
                }
            }
        }
    }
}

impl HopAnswer {
    /// Reads a whole head; `None` for an interim answer.
    fn parse(head: &[u8]) -> Result<Option<Self>, InvalidAnswer> {
        let mut fields = [const { MaybeUninit::<Header<'_>>::uninit() }; MOST_FIELDS];
        let mut response = httparse::Response::new(&mut []);
        let parsed = ParserConfig::default().parse_response_with_uninit_headers(
            &mut response,
            head,
            &mut fields,
        );
        if !is_whole(parsed, head.len()) {
            return Err(InvalidAnswer::Malformed);
        }
        let head = &*response.headers;
        let failure = match response.code {
            // Another protocol was not requested.
            None | Some(..100 | 101) => return Err(InvalidAnswer::Malformed),
            Some(100..200) => return Ok(None),
            Some(200..300) => None,
            Some(status) => Some(HopFailure::read(head, status)),
        };
        Ok(Some(Self {
            failure,
            connect_times: server_timing::read(head),
        }))
    }

    /// The answer, as that of the node `next`: a proxy of another kind does not have the name that the
    /// overlay has given it.
    #[must_use]
    pub fn of_node(mut self, next: &NextHop) -> Self {
        if next.kind == NodeKind::Connect {
            self.connect_times.clear();
            if let Some(failure) = &mut self.failure {
                failure.node = Some(next.node.clone());
            }
        }
        self
    }

    /// The bytes of the answer.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let status = match &self.failure {
            None => "200 Connection established",
            Some(failure) => failure.error.status(),
        };
        let mut head = format!("HTTP/1.1 {status}\r\n");
        server_timing::write(&mut head, &self.connect_times);
        if let Some(failure) = &self.failure {
            failure.write(&mut head);
            head.push_str("Content-Length: 0\r\nConnection: close\r\n");
        }
        head.push_str("\r\n");
        head.into_bytes()
    }
}
