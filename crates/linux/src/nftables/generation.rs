//! The number of the host's ruleset, which shows whether a program has changed rules.

use std::io;

use crate::nfnetlink::{Received, Request, Socket, attributes, message_type, messages};

/// `NFT_MSG_NEWGEN` and `NFT_MSG_GETGEN` of <linux/netfilter/nf_tables.h>.
const NEW_GENERATION: u16 = message_type(10, 15);
const GET_GENERATION: u16 = message_type(10, 16);

/// The number of the ruleset, which the kernel increments with every change by any program.
///
/// # Errors
/// Those of netlink sockets.
pub fn generation() -> io::Result<u32> {
    let socket = Socket::open(0)?;
    let mut request = Request::default();
    request.message(GET_GENERATION, 0, 0, 0, |_| {});
    socket.send(&request)?;
    let mut buffer = [0; 4096];
    let count = socket.receive(&mut buffer)?;
    read(buffer.get(..count).unwrap_or_default()).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// The number in an answer of the kernel.
pub(crate) fn read(answer: &[u8]) -> Option<u32> {
    messages(answer).find_map(|message| match message {
        Received::Message(NEW_GENERATION, content) => attributes(content)
            .find(|(kind, _)| *kind == 1)
            .and_then(|(_, value)| Some(u32::from_be_bytes(value.try_into().ok()?))),
        _ => None,
    })
}

/// The number of the ruleset after this process's own changes.
///
/// If the number were read only after a change, a change by another program in the meantime would
/// not be noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Generation {
    /// This number; no other program has changed rules meanwhile.
    Known(u32),
    /// Another program has changed rules meanwhile, so this process's rules may be gone or changed.
    OthersChanged,
    /// The kernel does not report the number, so the rules themselves have to be checked.
    Unreadable,
}

impl Generation {
    /// The number, if the rules are as this process set them.
    #[must_use]
    pub const fn number(self) -> Option<u32> {
        match self {
            Self::Known(number) => Some(number),
            Self::OthersChanged | Self::Unreadable => None,
        }
    }

    /// The result after `own` changes of this process.
    fn between(before: Option<u32>, own: u32, after: Option<u32>) -> Self {
        match (before, after) {
            (Some(before), Some(after)) if before.wrapping_add(own) == after => Self::Known(after),
            (Some(_), Some(_)) => Self::OthersChanged,
            _ => Self::Unreadable,
        }
    }
}

/// Makes changes; `change` returns their number. Returns whether other programs changed rules
/// during this time.
///
/// # Errors
/// Those of `change`.
pub fn generation_after<E>(change: impl FnOnce() -> Result<u32, E>) -> Result<Generation, E> {
    let before = generation().ok();
    let own = change()?;
    Ok(Generation::between(before, own, generation().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_is_not_told_is_no_change_of_somebody() {
        assert_eq!(
            Generation::between(Some(7), 2, Some(9)),
            Generation::Known(9)
        );
        let wrapped = Generation::between(Some(u32::MAX), 1, Some(0));
        assert_eq!(wrapped, Generation::Known(0));
        let others = Generation::between(Some(7), 2, Some(10));
        assert_eq!(others, Generation::OthersChanged);
        for (before, after) in [(None, None), (None, Some(9)), (Some(7), None)] {
            let generation = Generation::between(before, 2, after);
            assert_eq!(generation, Generation::Unreadable);
            assert_eq!(generation.number(), None);
        }
    }
}
