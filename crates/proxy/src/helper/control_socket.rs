//! The control socket: commands of an operator on this machine.
//!
//! The helper serves it between other events and never waits for a client: requests and answers are
//! stored until they are complete, within limits of size, time and number. Only processes of root
//! and of the helper's own user are served.

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;
use tracing::{debug, info, warn};

use crate::Error;
use crate::command::{Answer, REQUEST_LIMIT, Request, default_socket};
use crate::configuration::ControlSocket as Setting;

/// Clients at a time.
const CLIENT_LIMIT: usize = 16;
/// How long a client may take to send its request, and then to read the answer.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(5);
/// Connections accepted in one turn.
const ACCEPTS_PER_TURN: usize = 32;
/// How long the present owner of the socket may take to accept a connection.
const PROBE_LIMIT: Duration = Duration::from_millis(200);

/// A control socket and its clients. The file is removed when this value is dropped.
pub(super) struct ControlSocket {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode of the file, so that no other file is removed.
    file: (u64, u64),
    clients: Vec<Client>,
}

struct Client {
    stream: UnixStream,
    received: Vec<u8>,
    answer: Option<Vec<u8>>,
    until: Instant,
}

/// The state of a client.
enum Turn {
    Wait,
    Ask(Request),
    Refuse(String),
    Close,
}

impl ControlSocket {
    /// Listens at the configured place; `None` if there is none, or if the default place cannot be
    /// used, which is logged.
    ///
    /// # Errors
    /// The configured place cannot be used.
    pub fn open(setting: &Setting) -> Result<Option<Self>, Error> {
        match setting {
            Setting::None => Ok(None),
            Setting::At(path) => match Self::listen(path) {
                Ok(socket) => Ok(Some(socket)),
                Err(source) => Err(Error::ControlSocket {
                    path: path.clone(),
                    source,
                }),
            },
            Setting::Default => {
                let Some(path) = default_socket() else {
                    debug!("no directory for a control socket: no commands are accepted");
                    return Ok(None);
                };
                match Self::listen_in_directory(&path) {
                    Ok(socket) => Ok(Some(socket)),
                    Err(error) => {
                        info!(
                            "no commands are accepted, because {} cannot be used: {error} \
                             (control.socket names another place)",
                            path.display()
                        );
                        Ok(None)
                    }
                }
            }
        }
    }

    fn listen_in_directory(path: &Path) -> io::Result<Self> {
        if let Some(directory) = path.parent() {
            match fs::DirBuilder::new().mode(0o755).create(directory) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        Self::listen(path)
    }

    fn listen(path: &Path) -> io::Result<Self> {
        remove_stale(path)?;
        // With this mask, no other user can connect before the mode is changed.
        let old = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
        let listener = UnixListener::bind(path);
        rustix::process::umask(old);
        let listener = listener?;
        listener.set_nonblocking(true)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        let file = fs::symlink_metadata(path)?;
        Ok(Self {
            listener,
            path: path.to_owned(),
            file: (file.dev(), file.ino()),
            clients: Vec::new(),
        })
    }

    /// The descriptors and events to wait for.
    pub fn interests(&self) -> impl Iterator<Item = (BorrowedFd<'_>, PollFlags)> {
        let clients = self.clients.iter().map(|client| {
            let interest = match client.answer {
                Some(_) => PollFlags::OUT,
                None => PollFlags::IN,
            };
            (client.stream.as_fd(), interest)
        });
        // More clients would wait in vain.
        let has_room = self.clients.len() < CLIENT_LIMIT;
        let listener = has_room.then(|| (self.listener.as_fd(), PollFlags::IN));
        listener.into_iter().chain(clients)
    }

    /// When to call [`serve`](Self::serve) at the latest.
    pub fn next(&self) -> Option<Instant> {
        self.clients.iter().map(|client| client.until).min()
    }

    /// Reads requests and writes answers as far as possible; `answer` carries requests out.
    pub fn serve(&mut self, now: Instant, mut answer: impl FnMut(Request) -> Answer) {
        self.accept(now);
        let mut clients = std::mem::take(&mut self.clients);
        clients.retain_mut(|client| {
            if client.answer.is_none() {
                let answer = match client.read() {
                    Turn::Wait => return now < client.until,
                    Turn::Close => return false,
                    Turn::Refuse(error) => Answer::error(error),
                    Turn::Ask(request) => answer(request),
                };
                client.set_answer(&answer);
            }
            client.write() && Instant::now() < client.until
        });
        self.clients = clients;
    }

    fn accept(&mut self, now: Instant) {
        for _ in 0..ACCEPTS_PER_TURN {
            if self.clients.len() >= CLIENT_LIMIT {
                return;
            }
            let Ok((stream, _)) = self.listener.accept() else {
                return;
            };
            if !is_allowed(&stream) {
                warn!("a command of another user is refused");
                continue;
            }
            if stream.set_nonblocking(true).is_ok() {
                self.clients.push(Client {
                    stream,
                    received: Vec::new(),
                    answer: None,
                    until: now + CLIENT_TIMEOUT,
                });
            }
        }
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        let ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|file| (file.dev(), file.ino()) == self.file);
        if ours {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Client {
    fn read(&mut self) -> Turn {
        let mut buffer = [0; REQUEST_LIMIT];
        loop {
            let count = match (&self.stream).read(&mut buffer) {
                Ok(0) => return Turn::Close,
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Turn::Wait,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return Turn::Close,
            };
            self.received.extend(&buffer[..count]);
            match Request::read(&self.received) {
                Some(Ok(request)) => return Turn::Ask(request),
                Some(Err(refusal)) => return Turn::Refuse(refusal),
                None => {}
            }
        }
    }

    fn set_answer(&mut self, answer: &Answer) {
        let mut bytes = serde_json::to_vec(answer).unwrap_or_default();
        bytes.push(b'\n');
        self.answer = Some(bytes);
        self.until = Instant::now() + CLIENT_TIMEOUT;
    }

    /// Writes as much as possible; returns whether something is left.
    fn write(&mut self) -> bool {
        let Some(answer) = &mut self.answer else {
            return false;
        };
        while !answer.is_empty() {
            match (&self.stream).write(answer) {
                Ok(count) => {
                    answer.drain(..count);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        // Reads further data of the client, because closing the socket with unread data would
        // destroy the answer.
        let _ = (&self.stream).read(&mut [0; REQUEST_LIMIT]);
        false
    }
}

/// Whether the client is a process of root or of the helper's user.
fn is_allowed(stream: &UnixStream) -> bool {
    socket_peercred(stream).is_ok_and(|peer| peer.uid.is_root() || peer.uid == geteuid())
}

/// Removes the socket of a Midspan that no longer runs. Fails if a running one answers, or if the
/// file is no socket.
fn remove_stale(path: &Path) -> io::Result<()> {
    let file = match fs::symlink_metadata(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !file.file_type().is_socket() {
        let message = "there is a file that is not a socket";
        return Err(io::Error::new(ErrorKind::AlreadyExists, message));
    }
    match is_answered(path) {
        Ok(false) => fs::remove_file(path),
        Ok(true) => {
            let message = "another Midspan answers there";
            Err(io::Error::new(ErrorKind::AddrInUse, message))
        }
        Err(error) => Err(error),
    }
}

/// Whether a program listens; a full queue counts as an answer.
fn is_answered(path: &Path) -> io::Result<bool> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect};
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let start = Instant::now();
    loop {
        return match connect(&socket, &SocketAddrUnix::new(path)?) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::CONNREFUSED | rustix::io::Errno::NOENT) => Ok(false),
            Err(rustix::io::Errno::AGAIN) if start.elapsed() < PROBE_LIMIT => {
                std::thread::sleep(Duration::from_millis(10));
                continue;
            }
            Err(rustix::io::Errno::AGAIN) => Ok(true),
            Err(error) => Err(error.into()),
        };
    }
}
