//! The relay on tokio: one current-thread runtime per thread, one task per session.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll, ready};

use tokio::io::Interest;
use tokio::net::{TcpListener, TcpStream};

use crate::direction::{Direction, Shared, Waits};

thread_local! {
    static SHARED: RefCell<Shared> = RefCell::new(Shared::new());
}

/// Serves `listener` without end.
pub fn run(listener: std::net::TcpListener, servers: Vec<SocketAddr>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    runtime.block_on(async move {
        let listener = TcpListener::from_std(listener)?;
        for server in servers.iter().cycle() {
            if let Ok((client, _)) = listener.accept().await {
                tokio::spawn(session(client, *server));
            }
        }
        Ok(())
    })
}

async fn session(client: TcpStream, to: SocketAddr) -> io::Result<()> {
    let server = TcpStream::connect(to).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let mut upward = Direction::new();
    let mut downward = Direction::new();
    poll_fn(|context| {
        SHARED.with_borrow_mut(|shared| {
            let up = drive(context, &mut upward, &client, &server, shared);
            let down = drive(context, &mut downward, &server, &client, shared);
            match (up, down) {
                (Poll::Ready(Err(error)), _) | (_, Poll::Ready(Err(error))) => {
                    Poll::Ready(Err(error))
                }
                (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => Poll::Ready(Ok(())),
                _ => Poll::Pending,
            }
        })
    })
    .await
}

/// Moves as much data as possible; ready when all data and its end are forwarded.
fn drive(
    context: &mut Context<'_>,
    direction: &mut Direction,
    from: &TcpStream,
    to: &TcpStream,
    shared: &mut Shared,
) -> Poll<io::Result<()>> {
    loop {
        match direction.waits {
            Waits::Read => ready!(from.poll_read_ready(context))?,
            Waits::Write => ready!(to.poll_write_ready(context))?,
            Waits::Turn => {}
            Waits::Nothing => return Poll::Ready(Ok(())),
        }
        match direction.advance(from, to, false, shared)? {
            Waits::Read => forget(from, Interest::READABLE),
            Waits::Write => forget(to, Interest::WRITABLE),
            Waits::Turn => {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            Waits::Nothing => {}
        }
    }
}

/// Marks a socket as not ready in the runtime. A closed read side stays ready.
fn forget(socket: &TcpStream, interest: Interest) {
    let _ = socket.try_io(interest, || {
        Err::<(), _>(io::Error::from(io::ErrorKind::WouldBlock))
    });
}
