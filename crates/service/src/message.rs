//! Messages between two processes of a daemon: JSON over a `SOCK_SEQPACKET` pair, with descriptors.
//!
//! The end of either process closes the connection.

use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use midspan_linux::descriptor_passing::{self, PassingError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

/// A message could not be sent or received.
#[derive(Debug, Error)]
pub enum MessageError {
    /// It could not be passed.
    #[error(transparent)]
    Passing(#[from] PassingError),
    /// It could not be converted to JSON or from JSON.
    #[error(
        "a message between the helper and a process of its own cannot be converted to or from \
         JSON: {0}"
    )]
    Format(#[from] serde_json::Error),
}

/// Sends a message. Waits while the other process does not read, unless the socket is
/// non-blocking.
///
/// # Errors
/// The other process is gone, or the message is too large.
pub fn send(
    socket: impl AsFd,
    message: &impl Serialize,
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), MessageError> {
    let bytes = serde_json::to_vec(message)?;
    Ok(descriptor_passing::send(socket, &bytes, descriptors)?)
}

/// Sends a message if there is room for it; returns whether there was.
///
/// # Errors
/// As [`send`].
pub fn try_send(socket: impl AsFd, message: &impl Serialize) -> Result<bool, MessageError> {
    let bytes = serde_json::to_vec(message)?;
    match descriptor_passing::try_send(socket, &bytes) {
        Ok(()) => Ok(true),
        Err(PassingError::Io(error)) if error.kind() == ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Receives a message and its descriptors; `None` where the other process is gone.
///
/// # Errors
/// The message is not of this type, or was cut off.
pub fn receive<T: DeserializeOwned>(
    socket: impl AsFd,
) -> Result<Option<(T, Vec<OwnedFd>)>, MessageError> {
    let Some(message) = descriptor_passing::receive(socket)? else {
        return Ok(None);
    };
    let content = serde_json::from_slice(&message.bytes)?;
    Ok(Some((content, message.descriptors)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_arrives_with_its_descriptors() {
        let (here, there) = descriptor_passing::pair().unwrap();
        send(&here, &("text", 7), &[here.as_fd(), there.as_fd()]).unwrap();
        let (message, descriptors) = receive::<(String, u8)>(&there).unwrap().unwrap();
        assert_eq!(message, ("text".to_owned(), 7));
        assert_eq!(descriptors.len(), 2);
        drop(descriptors);
        drop(here);
        assert!(receive::<u8>(&there).unwrap().is_none());
    }

    #[test]
    fn bytes_that_are_not_a_message_are_an_error() {
        let (here, there) = descriptor_passing::pair().unwrap();
        descriptor_passing::send(&here, b"{\"Drain\":1", &[]).unwrap();
        assert!(matches!(
            receive::<u8>(&there),
            Err(MessageError::Format(_))
        ));
    }

    #[test]
    fn a_process_that_does_not_read_is_not_waited_for() {
        let (here, _there) = descriptor_passing::pair().unwrap();
        let full = (0..100_000).any(|_| !try_send(&here, &vec![0_u64; 512]).unwrap());
        assert!(full);
    }
}
