//! The actions of one end of a connection and their results, in order, without times.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::io::Errno;

/// An action of an end, or its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// `connect` succeeded.
    Connected,
    /// `connect` failed.
    ConnectFailed(Errno),
    /// The proxy reported by a status that there is no connection; the status stands for several
    /// errors.
    ConnectRefused(u16),
    /// A connection was accepted.
    Accepted,
    /// The end sent this many bytes.
    Sends(u64),
    /// The end sent a byte of urgent data.
    SendsUrgent,
    /// Sending failed.
    SendFailed(Errno),
    /// This many bytes arrived, equal to the sent ones.
    Received(u64),
    /// All bytes that the other end sent arrived; their number depends on buffers.
    ReceivedAll,
    /// Bytes arrived, equal to the sent ones; their number depends on timing.
    ReceivedSome,
    /// Urgent data was announced.
    UrgentAnnounced,
    /// Urgent data arrived, outside the stream.
    ReceivedUrgent,
    /// A received byte differs from the sent one.
    Damaged {
        /// The byte's position in the stream.
        position: u64,
    },
    /// The other end ended its data with a FIN.
    Fin,
    /// Receiving failed.
    Failed(Errno),
    /// The end finished sending (`shutdown`) and continues to receive.
    EndsSending,
    /// The end closed its socket.
    Closes,
    /// The end closed its socket with a reset.
    Resets,
    /// Nothing arrived for a while.
    Silence,
    /// The end could send no more for a while, because the other end does not read.
    Blocked,
    /// At least half of the answers arrived within 0.1 s.
    InTime,
    /// Most answers arrived later.
    Late,
    /// Something expected did not happen within the generous time limit of every step.
    Overdue(&'static str),
    /// Any other event, described by this text.
    Other(&'static str),
    /// This many connections with the same events.
    Many(u64, Vec<Self>),
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connected => f.write_str("connected"),
            Self::ConnectFailed(error) => write!(f, "connect: {}", name(*error)),
            Self::ConnectRefused(code) => write!(f, "connect: status {code}"),
            Self::Accepted => f.write_str("accepted"),
            Self::Sends(count) => write!(f, "sends {count}"),
            Self::SendsUrgent => f.write_str("sends an urgent byte"),
            Self::SendFailed(error) => write!(f, "send: {}", name(*error)),
            Self::Received(count) => write!(f, "gets {count}"),
            Self::ReceivedAll => f.write_str("gets all"),
            Self::ReceivedSome => f.write_str("gets some"),
            Self::UrgentAnnounced => f.write_str("urgent data announced"),
            Self::ReceivedUrgent => f.write_str("gets the urgent byte"),
            Self::Damaged { position } => write!(f, "WRONG BYTE at {position}"),
            Self::Fin => f.write_str("FIN"),
            Self::Failed(error) => write!(f, "receive: {}", name(*error)),
            Self::EndsSending => f.write_str("ends sending"),
            Self::Closes => f.write_str("closes"),
            Self::Resets => f.write_str("resets"),
            Self::Silence => f.write_str("nothing for a while"),
            Self::Blocked => f.write_str("can send no more"),
            Self::InTime => f.write_str("in time"),
            Self::Late => f.write_str("LATE"),
            Self::Overdue(what) => write!(f, "NO {what}"),
            Self::Other(words) => f.write_str(words),
            Self::Many(count, events) => write!(f, "{count} × ({})", list(events)),
        }
    }
}

impl Event {
    /// Whether this event is always a fault, with or without a proxy.
    #[must_use]
    pub fn is_fault(&self) -> bool {
        match self {
            Self::Damaged { .. } | Self::Late | Self::Overdue(_) => true,
            Self::Many(_, events) => events.iter().any(Self::is_fault),
            _ => false,
        }
    }
}

/// Events as one line.
#[must_use]
pub fn list(events: &[Event]) -> String {
    let texts: Vec<String> = events.iter().map(Event::to_string).collect();
    texts.join(", ")
}

/// The events of both ends and of the proxy in one run of a case.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Transcript {
    /// Events of the end that connects.
    pub client: Vec<Event>,
    /// Events of the end that accepts.
    pub server: Vec<Event>,
    /// What the proxy left behind or failed to do; empty if there is no such fault.
    pub proxy: Vec<Event>,
}

impl fmt::Display for Transcript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "client: {}", list(&self.client))?;
        write!(f, "; server: {}", list(&self.server))?;
        if !self.proxy.is_empty() {
            write!(f, "; proxy: {}", list(&self.proxy))?;
        }
        Ok(())
    }
}

/// The events of one end while the case runs; clones share them.
#[derive(Debug, Clone, Default)]
pub struct Log(Arc<Mutex<Vec<Event>>>);

impl Log {
    /// Adds an event. Consecutive events of sent or received bytes become one.
    pub fn add(&self, event: Event) {
        let mut events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match (events.last_mut(), &event) {
            (Some(Event::Received(before)), Event::Received(count))
            | (Some(Event::Sends(before)), Event::Sends(count)) => *before += count,
            (Some(Event::ReceivedSome), Event::ReceivedSome) => {}
            _ => events.push(event),
        }
    }

    /// All events so far.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        (self.0.lock().unwrap_or_else(PoisonError::into_inner)).clone()
    }

    /// Adds the events of several connections. Equal ones become one event; the most frequent comes
    /// first.
    pub fn add_many(&self, logs: &[Self]) {
        let mut groups: Vec<(u64, Vec<Event>)> = Vec::new();
        for log in logs {
            let events = log.events();
            match groups.iter_mut().find(|(_, known)| *known == events) {
                Some((count, _)) => *count += 1,
                None => groups.push((1, events)),
            }
        }
        groups.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
        for (count, events) in groups {
            self.add(Event::Many(count, events));
        }
    }
}

/// The number of an I/O error of a socket.
pub(crate) fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// A socket's error with its name from errno(3).
fn name(error: Errno) -> String {
    let known = match error {
        Errno::CONNREFUSED => "ECONNREFUSED",
        Errno::CONNRESET => "ECONNRESET",
        Errno::CONNABORTED => "ECONNABORTED",
        Errno::TIMEDOUT => "ETIMEDOUT",
        Errno::HOSTUNREACH => "EHOSTUNREACH",
        Errno::NETUNREACH => "ENETUNREACH",
        Errno::PIPE => "EPIPE",
        Errno::ACCESS => "EACCES",
        Errno::PERM => "EPERM",
        Errno::NOTCONN => "ENOTCONN",
        Errno::ADDRNOTAVAIL => "EADDRNOTAVAIL",
        Errno::ADDRINUSE => "EADDRINUSE",
        Errno::MSGSIZE => "EMSGSIZE",
        Errno::PROTO => "EPROTO",
        other => return format!("error {}", other.raw_os_error()),
    };
    known.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_in_a_row_are_one_event() {
        let log = Log::default();
        for event in [
            Event::Connected,
            Event::Received(3),
            Event::Received(4),
            Event::Fin,
            Event::Received(1),
        ] {
            log.add(event);
        }
        assert_eq!(list(&log.events()), "connected, gets 7, FIN, gets 1");
    }

    #[test]
    fn equal_connections_are_counted() {
        let logs: Vec<Log> = (0..5).map(|_| Log::default()).collect();
        for (index, log) in logs.iter().enumerate() {
            log.add(Event::Connected);
            log.add(if index == 2 {
                Event::Fin
            } else {
                Event::Failed(Errno::CONNRESET)
            });
        }
        let all = Log::default();
        all.add_many(&logs);
        assert_eq!(
            list(&all.events()),
            "4 × (connected, receive: ECONNRESET), 1 × (connected, FIN)"
        );
    }

    #[test]
    fn a_fault_among_many_is_a_fault() {
        let many = |event| Event::Many(1, vec![Event::Connected, event]);
        assert!(many(Event::Damaged { position: 3 }).is_fault());
        assert!(many(Event::Overdue("FIN")).is_fault());
        assert!(!many(Event::Fin).is_fault());
    }
}
