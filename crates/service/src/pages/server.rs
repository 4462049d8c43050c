//! Where requests come from, and the thread that answers them.

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use midspan_linux::descriptor_passing::{self, PassingError};
use rustix::process::geteuid;
use tokio::io::Interest;
use tokio::net::{TcpListener, TcpStream, UnixDatagram, UnixListener, UnixStream};
use tokio::runtime::Runtime;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::{AbortHandle, JoinHandle, JoinSet};

use super::{Names, Pages, serve_connection};

const CONNECTION_LIMIT: usize = 32;
const CLIENT_LIMIT: usize = 8;
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);
/// Connections of this machine's processes at a time.
const LOCAL_LIMIT: usize = 16;
/// A command may wait for another process, which may take long on a busy machine.
const LOCAL_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause after an error of `accept`, which is likely to occur again at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Where requests come from. All descriptors are non-blocking.
#[derive(Debug)]
pub enum Clients {
    /// The network: a listening socket, and the host names that requests may contain apart from
    /// addresses and `localhost`.
    Network(std::net::TcpListener, Vec<String>),
    /// This machine: only processes of root and of this process's user are answered.
    Local(std::os::unix::net::UnixListener),
    /// Another process of the program, which sends each client's connection over this socket
    /// ([`descriptor_passing`]) and decides who is answered.
    Passed(OwnedFd),
}

/// A server that runs. Without [`stop`](Self::stop), it runs as long as the process.
#[derive(Debug)]
pub struct RunningServer(oneshot::Sender<Stop>);

/// The message that stops a server.
#[derive(Debug)]
struct Stop;

impl RunningServer {
    /// Accepts no more clients. Connections that are being served continue.
    pub fn stop(self) {
        // If the thread has ended, it accepts none.
        let _ = self.0.send(Stop);
    }
}

/// A server that does not run yet.
#[derive(Debug)]
pub struct Server<P> {
    runtime: Runtime,
    clients: Vec<Clients>,
    pages: P,
}

impl<P: Pages> Server<P> {
    /// A server of these pages.
    ///
    /// # Errors
    /// Its event loop cannot be created.
    pub fn new(clients: Vec<Clients>, pages: P) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()?;
        Ok(Self {
            runtime,
            clients,
            pages,
        })
    }

    /// Answers requests in a thread of this name, which ends with the process at the latest. The thread first
    /// calls `prepare`. `failed` gets the error if requests from somewhere can no longer be answered.
    ///
    /// # Errors
    /// The thread cannot be created.
    pub fn start(
        self,
        name: &str,
        prepare: impl FnOnce() + Send + 'static,
        failed: impl Fn(io::Error) + Send + 'static,
    ) -> io::Result<RunningServer> {
        let thread = std::thread::Builder::new().name(name.to_owned());
        let (sender, stop) = oneshot::channel();
        let serve = move || {
            prepare();
            self.runtime
                .block_on(serve_all(self.clients, self.pages, failed, stop));
        };
        thread.spawn(serve).map(|_| RunningServer(sender))
    }
}

async fn serve_all(
    clients: Vec<Clients>,
    pages: impl Pages,
    failed: impl Fn(io::Error),
    stop: oneshot::Receiver<Stop>,
) {
    let pages = Arc::new(pages);
    let mut all = JoinSet::new();
    let mut handles: Vec<AbortHandle> = Vec::new();
    for clients in clients {
        let pages = Arc::clone(&pages);
        handles.push(all.spawn(async move {
            match clients {
                Clients::Network(listener, names) => serve_network(listener, pages, names).await,
                Clients::Local(listener) => serve_local(listener, pages).await,
                Clients::Passed(channel) => serve_passed(channel, pages).await,
            }
        }));
    }
    let stopping = tokio::spawn(async move {
        // If the sender was dropped, the server runs as long as the process.
        let Ok(Stop) = stop.await else {
            return;
        };
        for handle in handles {
            handle.abort();
        }
        // Connections that are being served end with this function.
        tokio::time::sleep(LOCAL_TIMEOUT).await;
    });
    while let Some(ended) = all.join_next().await {
        if let Ok(Err(error)) = ended {
            failed(error);
        }
    }
    let _ = stopping.await;
}

async fn serve_network(
    listener: std::net::TcpListener,
    pages: Arc<impl Pages>,
    names: Vec<String>,
) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let names: Arc<[String]> = names.into();
    let mut places = Places::default();
    loop {
        let (stream, client) = accepted(|| listener.accept()).await;
        places.make_room(client.ip());
        let (pages, names) = (Arc::clone(&pages), Arc::clone(&names));
        let connection = async move {
            let stream: TcpStream = stream;
            let served = serve_connection(TokioIo::new(stream), pages, Some(names));
            // An error concerns this client only.
            let _ = tokio::time::timeout(CONNECTION_TIMEOUT, served).await;
        };
        places.0.push((client.ip(), tokio::spawn(connection)));
    }
}

async fn serve_local(
    listener: std::os::unix::net::UnixListener,
    pages: Arc<impl Pages>,
) -> io::Result<()> {
    let listener = UnixListener::from_std(listener)?;
    let places = Arc::new(Semaphore::new(LOCAL_LIMIT));
    loop {
        // More clients wait for a place before they are accepted.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return Ok(());
        };
        let (stream, _) = accepted(|| listener.accept()).await;
        if !is_allowed(&stream) {
            tracing::warn!("a request of another user is refused");
            continue;
        }
        serve_in_place(stream, &pages, place);
    }
}

/// Whether the client is a process of root or of this process's user.
fn is_allowed(stream: &UnixStream) -> bool {
    let user = stream.peer_cred().map(|peer| peer.uid());
    user.is_ok_and(|user| user == 0 || user == geteuid().as_raw())
}

async fn serve_passed(channel: OwnedFd, pages: Arc<impl Pages>) -> io::Result<()> {
    // A type of sockets with messages; tokio only waits for this one.
    let channel = UnixDatagram::from_std(channel.into())?;
    let places = Arc::new(Semaphore::new(LOCAL_LIMIT));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return Ok(());
        };
        let received = channel.async_io(Interest::READABLE, || {
            match descriptor_passing::receive(&channel) {
                Err(PassingError::Io(error)) => Err(error),
                received => Ok(received),
            }
        });
        let message = match received.await? {
            Ok(Some(message)) => message,
            // The other process has ended.
            Ok(None) => return Ok(()),
            // A connection was lost because this process has no more descriptors.
            Err(_) => continue,
        };
        let connection = message.descriptors.into_iter().next();
        let stream = connection.map(std::os::unix::net::UnixStream::from);
        if let Some(Ok(stream)) = stream.map(UnixStream::from_std) {
            serve_in_place(stream, &pages, place);
        }
    }
}

fn serve_in_place(stream: UnixStream, pages: &Arc<impl Pages>, place: OwnedSemaphorePermit) {
    const ANY: Names = None;
    let pages = Arc::clone(pages);
    tokio::spawn(async move {
        let served = serve_connection(TokioIo::new(stream), pages, ANY);
        let _ = tokio::time::timeout(LOCAL_TIMEOUT, served).await;
        drop(place);
    });
}

/// What `accept` returns, when it returns no error.
async fn accepted<T, F: Future<Output = io::Result<T>>>(accept: impl Fn() -> F) -> T {
    loop {
        match accept().await {
            Ok(accepted) => return accepted,
            Err(error) => {
                tracing::debug!("no connection of a request can be accepted: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Connections that are being served, the oldest first.
#[derive(Debug, Default)]
struct Places(Vec<(IpAddr, JoinHandle<()>)>);

impl Places {
    /// Closes the oldest connection of a client that has reached its limit, or of the client with the
    /// most connections. Otherwise a client with idle connections could block the others for 10 s.
    fn make_room(&mut self, client: IpAddr) {
        self.0.retain(|(_, task)| !task.is_finished());
        let count = |of: IpAddr| self.0.iter().filter(|(other, _)| *other == of).count();
        let most = || self.0.iter().map(|(of, _)| *of).max_by_key(|of| count(*of));
        let from = match count(client) >= CLIENT_LIMIT {
            true => Some(client),
            false if self.0.len() >= CONNECTION_LIMIT => most(),
            false => None,
        };
        let oldest = from.and_then(|from| self.0.iter().position(|(of, _)| *of == from));
        if let Some(oldest) = oldest {
            self.0.remove(oldest).1.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Method, Reply, StatusCode, text};
    use super::*;
    use crate::pages::HEAD_TIMEOUT;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;

    struct Hello;
    impl Pages for Hello {
        async fn page(&self, _: &str, _: &str) -> Reply {
            text(StatusCode::OK, "hello\n")
        }

        async fn change(&self, method: &Method, path: &str, query: &str) -> Reply {
            text(StatusCode::OK, format!("{method} {path} {query}\n"))
        }
    }

    fn start(clients: Clients) -> RunningServer {
        let server = Server::new(vec![clients], Hello).unwrap();
        server
            .start("pages", || {}, |error| panic!("{error}"))
            .unwrap()
    }

    /// Another process may accept at a duplicate of the socket.
    #[test]
    fn a_server_that_was_stopped_accepts_no_more() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let other = listener.try_clone().unwrap();
        let address = listener.local_addr().unwrap();
        let request = "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
        let server = start(Clients::Network(listener, Vec::new()));
        let open = std::net::TcpStream::connect(address).unwrap();
        let answer = ask(std::net::TcpStream::connect(address).unwrap(), request);
        assert!(answer.ends_with("hello\n"), "{answer}");
        server.stop();
        let answer = ask(open, request);
        assert!(answer.ends_with("hello\n"), "{answer}");
        // After the answer, the server has been stopped or is about to be.
        let accepted = (0..100).any(|_| {
            let _client = std::net::TcpStream::connect(address).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(20));
            other.accept().is_ok()
        });
        assert!(accepted);
    }

    fn ask(mut stream: impl Read + Write, request: &str) -> String {
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn processes_of_this_machine_may_change_something() {
        use std::os::unix::net::{UnixListener, UnixStream};
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("socket");
        let listener = UnixListener::bind(&place).unwrap();
        listener.set_nonblocking(true).unwrap();
        start(Clients::Local(listener));
        let connect = || UnixStream::connect(&place).unwrap();
        let answer = ask(connect(), "POST /a?b HTTP/1.1\r\nHost: any\r\n\r\n");
        assert!(answer.ends_with("POST /a b\n"), "{answer}");
        // More clients than places: those that send nothing lose their places.
        let silent: Vec<_> = (0..3 * LOCAL_LIMIT).map(|_| connect()).collect();
        let answer = ask(connect(), "GET / HTTP/1.1\r\n\r\n");
        assert!(answer.ends_with("hello\n"), "{answer}");
        drop(silent);
    }

    #[test]
    fn a_passed_connection_is_served() {
        let (here, there) = descriptor_passing::pair().unwrap();
        rustix::io::ioctl_fionbio(&there, true).unwrap();
        start(Clients::Passed(there));
        for _ in 0..3 * LOCAL_LIMIT {
            let (asking, asked) = std::os::unix::net::UnixStream::pair().unwrap();
            asked.set_nonblocking(true).unwrap();
            descriptor_passing::send(&here, b"1", &[asked.as_fd()]).unwrap();
            drop(asked);
            let answer = ask(asking, "GET / HTTP/1.1\r\n\r\n");
            assert!(answer.ends_with("hello\n"), "{answer}");
        }
        // A message without a connection changes nothing.
        descriptor_passing::send(&here, b"1", &[]).unwrap();
    }

    /// Clients that send nothing, or half a request, on all connections do not block other clients.
    #[test]
    fn silent_connections_keep_nobody_from_asking() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        start(Clients::Network(listener, Vec::new()));
        let connect = || std::net::TcpStream::connect(address).unwrap();
        let mut silent: Vec<_> = (0..3 * CONNECTION_LIMIT).map(|_| connect()).collect();
        for stream in &mut silent {
            let _ = stream.write_all(b"GET / HTTP/1.1\r\nHost: lo");
        }
        let start = std::time::Instant::now();
        let mut asking = connect();
        asking
            .write_all(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            .unwrap();
        let mut answer = String::new();
        asking.read_to_string(&mut answer).unwrap();
        assert!(
            answer.starts_with("HTTP/1.1 200") && answer.ends_with("hello\n"),
            "{answer}"
        );
        // The answer came before the first silent connection timed out.
        assert!(start.elapsed() < HEAD_TIMEOUT, "{:?}", start.elapsed());
        drop(silent);
    }

    #[test]
    fn room_is_made_by_whoever_has_most() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let of = |last: u8| IpAddr::from([192, 0, 2, last]);
        let mut places = Places::default();
        let add = |places: &mut Places, client| {
            places.make_room(client);
            let task = runtime.spawn(std::future::pending::<()>());
            places.0.push((client, task));
        };
        let count =
            |places: &Places, client| places.0.iter().filter(|(of, _)| *of == client).count();
        for _ in 0..20 {
            add(&mut places, of(1));
        }
        assert_eq!(count(&places, of(1)), CLIENT_LIMIT);
        for client in 2..200 {
            add(&mut places, of(client));
            assert!(places.0.len() <= CONNECTION_LIMIT);
            assert_eq!(count(&places, of(client)), 1);
        }
        assert_eq!(count(&places, of(1)), 1);
    }
}
