//! A connection in memory: all bytes of the client are there from the beginning.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::rt::{Read, ReadBufCursor, Write};

use super::{Pages, serve_connection};

/// The bytes that a process of this machine would get for these, until the connection ends.
///
/// # Errors
/// The event loop cannot be created.
pub fn answer_to(received: &[u8], pages: Arc<impl Pages>) -> io::Result<Vec<u8>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()?;
    let mut connection = Connection {
        received,
        sent: Vec::new(),
    };
    // If HTTP is violated, the answer still shows it.
    let _ = runtime.block_on(serve_connection(&mut connection, pages, None));
    Ok(connection.sent)
}

struct Connection<'a> {
    received: &'a [u8],
    sent: Vec<u8>,
}

impl Read for Connection<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let count = buffer.remaining().min(self.received.len());
        let (now, later) = self.received.split_at(count);
        buffer.put_slice(now);
        self.received = later;
        Poll::Ready(Ok(()))
    }
}

impl Write for Connection<'_> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.sent.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
