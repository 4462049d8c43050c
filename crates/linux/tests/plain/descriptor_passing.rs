//! Messages with descriptors, over a real socket pair.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use midspan_linux::descriptor_passing::{
    DESCRIPTOR_LIMIT, MESSAGE_LIMIT, PassingError, inherited, pair, receive, send,
};
use rustix::io::FdFlags;

fn open() -> OwnedFd {
    File::open("/dev/null").unwrap().into()
}

#[test]
fn descriptors_arrive_in_order_and_are_closed_on_exec() {
    let (here, there) = pair().unwrap();
    let mut files: Vec<File> = (0..DESCRIPTOR_LIMIT).map(|_| memory_file()).collect();
    for (number, file) in files.iter_mut().enumerate() {
        write!(file, "{number}").unwrap();
    }
    let descriptors: Vec<BorrowedFd<'_>> = files.iter().map(AsFd::as_fd).collect();
    send(&here, b"these", &descriptors).unwrap();
    let message = receive(&there).unwrap().unwrap();
    assert_eq!(message.bytes, b"these");
    assert_eq!(message.descriptors.len(), DESCRIPTOR_LIMIT);
    for (number, descriptor) in message.descriptors.into_iter().enumerate() {
        let flags = rustix::io::fcntl_getfd(&descriptor).unwrap();
        assert!(flags.contains(FdFlags::CLOEXEC));
        let mut file = File::from(descriptor);
        let mut text = String::new();
        file.seek(SeekFrom::Start(0)).unwrap();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, number.to_string());
    }
}

fn memory_file() -> File {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    rustix::fs::memfd_create("test", flags).unwrap().into()
}

#[test]
fn messages_keep_their_bounds_and_the_end_is_seen() {
    let (here, there) = pair().unwrap();
    let large = vec![7; MESSAGE_LIMIT];
    send(&here, b"one", &[]).unwrap();
    send(&here, &large, &[]).unwrap();
    drop(here);
    assert_eq!(receive(&there).unwrap().unwrap().bytes, b"one");
    assert_eq!(receive(&there).unwrap().unwrap().bytes, large);
    assert!(receive(&there).unwrap().is_none());
}

#[test]
fn what_is_too_large_is_not_sent() {
    let (here, there) = pair().unwrap();
    let large = vec![7; MESSAGE_LIMIT + 1];
    assert!(matches!(
        send(&here, &large, &[]),
        Err(PassingError::TooLarge { .. })
    ));
    let null = open();
    let many = vec![null.as_fd(); DESCRIPTOR_LIMIT + 1];
    assert!(matches!(
        send(&here, b"x", &many),
        Err(PassingError::TooLarge { .. })
    ));
    assert!(matches!(send(&here, b"", &[]), Err(PassingError::Empty)));
    drop(here);
    assert!(receive(&there).unwrap().is_none());
}

/// Another sender on the same socket could send more than [`send`] does.
#[test]
fn a_truncated_message_is_refused() {
    let (here, there) = pair().unwrap();
    let large = vec![7; MESSAGE_LIMIT + 1];
    rustix::net::send(&here, &large, rustix::net::SendFlags::empty()).unwrap();
    assert!(matches!(receive(&there), Err(PassingError::Truncated)));
    send(&here, b"next", &[]).unwrap();
    assert_eq!(receive(&there).unwrap().unwrap().bytes, b"next");
}

#[test]
fn a_peer_that_is_gone_is_an_error_not_a_signal() {
    let (here, there) = pair().unwrap();
    drop(there);
    let error = send(&here, b"x", &[]).unwrap_err();
    let PassingError::Io(error) = error else {
        panic!("{error}");
    };
    assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
}

#[test]
fn an_inherited_descriptor_is_copied_and_not_handed_on() {
    let (mut reader, writer) = std::io::pipe().unwrap();
    let number = std::os::fd::AsRawFd::as_raw_fd(&writer);
    rustix::io::fcntl_setfd(&writer, FdFlags::empty()).unwrap();
    let copy = inherited(number).unwrap();
    for descriptor in [copy.as_fd(), writer.as_fd()] {
        let flags = rustix::io::fcntl_getfd(descriptor).unwrap();
        assert!(flags.contains(FdFlags::CLOEXEC));
    }
    drop(writer);
    File::from(copy).write_all(b"x").unwrap();
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(text, "x");

    assert!(inherited(-1).is_err());
    assert!(inherited(1_000_000).is_err());
}
