//! The sockets of intercepted connections in the state TIME-WAIT (RFC 9293 §3.3.2).
//!
//! With `net.ipv4.tcp_early_demux`, the kernel does not forward a packet that belongs to a socket, not even
//! if the socket is in TIME-WAIT. So before Midspan restores this parameter, it ends its own sockets in
//! TIME-WAIT. sock_diag(7) lists and ends them.

use std::io;

use crate::nfnetlink::attributes;
use crate::socket_lists::{
    DESTROY, FAMILIES, Identity, NUMBERS, Question, REQUEST, list, message, open, send,
};

/// Bit of the state TIME-WAIT (`TCP_TIME_WAIT` of <net/tcp_states.h>).
const TIME_WAIT: u32 = 1 << 6;
/// `INET_DIAG_MARK`.
const MARK: u16 = 15;

/// Ends the waiting TCP sockets that have a mark in `mask`; how many were found. Kernels without
/// `CONFIG_INET_DIAG_DESTROY` leave them as they are.
///
/// # Errors
/// Those of netlink(7).
pub fn end(mask: u32) -> io::Result<usize> {
    let lists = open()?;
    // What is answered to these is an error, and is not read.
    let endings = open()?;
    let mut found = 0;
    for family in FAMILIES {
        let question = Question {
            family,
            states: TIME_WAIT,
            attributes: 0,
        };
        let mut waiting = Vec::new();
        list(&lists, question, |identity, rest| {
            waiting.extend(ours(rest, mask).then_some(*identity));
        })?;
        found += waiting.len();
        for identity in &waiting {
            send(&endings, &ending(question, identity))?;
        }
    }
    Ok(found)
}

fn ending(question: Question, identity: &Identity) -> Vec<u8> {
    message(DESTROY, REQUEST, question, identity)
}

/// Whether a socket, by what follows its identification, has a mark of ours.
fn ours(rest: &[u8], mask: u32) -> bool {
    let attributes = rest.get(NUMBERS..).map(attributes);
    let mark = attributes.and_then(|mut all| all.find(|(kind, _)| *kind == MARK));
    let mark = mark.and_then(|(_, mark)| mark.try_into().ok());
    mark.is_some_and(|mark| u32::from_ne_bytes(mark) & mask != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_ours_by_its_mark() {
        let mut rest = vec![0; NUMBERS];
        rest.extend([8, 0]);
        rest.extend(MARK.to_ne_bytes());
        rest.extend(0x0102_0000_u32.to_ne_bytes());
        assert!(ours(&rest, 0x00ff_0000));
        assert!(!ours(&rest, 0x0000_ff00));
        for length in 0..rest.len() {
            assert!(!ours(&rest[..length], 0x00ff_0000));
        }
    }
}
