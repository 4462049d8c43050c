//! The control socket: requests of an operator on this machine, over HTTP.
//!
//! A thread without privileges reads requests and writes answers ([`super::control_pages`]), so that
//! no client delays the helper. The helper carries commands out between other events. Only processes
//! of root and of the helper's own user are served.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use midspan_linux::capability;
use midspan_service::pages::{Clients, Server};
use rustix::event::{EventfdFlags, eventfd};
use tokio::sync::mpsc::{Receiver, channel};
use tracing::{debug, error, info};

use super::control_pages::{Command, ControlPages};
use crate::Error;
use crate::command::{Answer, Request, default_socket};
use crate::configuration::ControlSocket as Setting;

/// Commands that may wait for the helper.
const COMMAND_LIMIT: usize = 16;
/// How long the former control socket of an upgrade remains, so that the program that has sent the command for the upgrade
/// gets the result.
const FORMER_TIME: Duration = Duration::from_secs(60);
/// How long the present owner of the socket may take to accept a connection.
const PROBE_LIMIT: Duration = Duration::from_millis(200);

/// The control sockets of the proxy, which are not served yet.
pub(super) struct ControlSockets {
    /// The configured one.
    present: Option<ControlSocket>,
    /// The one of the former program, if it is at another place.
    former: Option<ControlSocket>,
}

/// A control socket that is not served yet.
pub(super) struct ControlSocket {
    listener: UnixListener,
    file: SocketFile,
}

/// Where the control socket is, for the next program of this process.
pub(super) struct ControlPlace {
    /// The path.
    pub path: PathBuf,
    /// A duplicate of the listening socket.
    pub socket: OwnedFd,
}

/// The file of the socket, which is removed when this value is dropped.
struct SocketFile {
    path: PathBuf,
    /// Whether it is removed: not as long as the former program may continue with it.
    is_own: bool,
    /// Device and inode of the file, so that no other file is removed.
    file: (u64, u64),
}

/// The commands that arrive over the control socket.
pub(super) struct Commands {
    waiting: Receiver<Command>,
    /// Readable if a command may wait.
    signal: Arc<OwnedFd>,
    _file: Option<SocketFile>,
    /// The file of the former control socket, and when it is removed.
    former: Option<(SocketFile, Instant)>,
}

impl ControlSockets {
    /// The configured control socket, after the one of the `former` program of this process. `None` if there is none.
    ///
    /// # Errors
    /// The configured place cannot be used.
    pub fn open(setting: &Setting, former: Option<ControlSocket>) -> Result<Option<Self>, Error> {
        let place = match setting {
            Setting::None => None,
            Setting::At(path) => Some(path.clone()),
            Setting::Default => default_socket(),
        };
        let stays = |former: &ControlSocket| Some(&former.file.path) == place.as_ref();
        let sockets = match former {
            Some(former) if stays(&former) => Self {
                present: Some(former),
                former: None,
            },
            former => Self {
                present: ControlSocket::open(setting)?,
                former,
            },
        };
        let has_any = sockets.present.is_some() || sockets.former.is_some();
        Ok(has_any.then_some(sockets))
    }

    /// Where the configured one is.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn place(&self) -> io::Result<Option<ControlPlace>> {
        self.present.as_ref().map(ControlSocket::place).transpose()
    }

    /// Serves the control sockets, in a thread that ends with the process. The helper carries out the commands,
    /// which include `/status` and the lists of `/drain`, `/bypass` and `/left-alone`. The relay answers all
    /// other GET requests: for each one, the thread sends the relay one end of a new connection over `relay`.
    ///
    /// # Errors
    /// The thread or its event loop cannot be created.
    pub fn serve(self, relay: OwnedFd) -> Result<Commands, Error> {
        let own = |socket: ControlSocket| {
            let mut file = socket.file;
            file.is_own = true;
            (Clients::Local(socket.listener), file)
        };
        let (present, file) = self.present.map(own).unzip();
        let (former, former_file) = self.former.map(own).unzip();
        let listeners = present.into_iter().chain(former).collect();
        let failed = Error::system("start the thread of the control socket");
        let (waiting, signal) = start(listeners, relay).map_err(failed)?;
        Ok(Commands {
            waiting,
            signal,
            _file: file,
            former: former_file.map(|file| (file, Instant::now() + FORMER_TIME)),
        })
    }
}

/// Starts the thread that reads requests of these clients. Returns the commands, and the descriptor that is readable if
/// a command may wait.
fn start(listeners: Vec<Clients>, relay: OwnedFd) -> io::Result<(Receiver<Command>, Arc<OwnedFd>)> {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    let signal = Arc::new(eventfd(0, flags)?);
    let (commands, waiting) = channel(COMMAND_LIMIT);
    let pages = ControlPages::new(commands, Arc::clone(&signal), relay);
    let give_up = || {
        if let Err(error) = capability::give_up_all_but(&[]) {
            error!("the thread of the control socket keeps its privileges: {error}");
        }
    };
    Server::new(listeners, pages)?.start("control", give_up, |error| {
        error!("commands are no longer accepted: {error}");
    })?;
    Ok((waiting, signal))
}

impl ControlSocket {
    /// Listens at the configured place; `None` if there is none, or if the default place cannot be
    /// used, which is logged.
    ///
    /// # Errors
    /// The configured place cannot be used.
    fn open(setting: &Setting) -> Result<Option<Self>, Error> {
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

    /// The control socket of the former program of this process.
    ///
    /// # Errors
    /// There is no file at its place.
    pub fn adopt(socket: OwnedFd, path: &Path) -> io::Result<Self> {
        let mut file = SocketFile::at(path)?;
        file.is_own = false;
        let listener = UnixListener::from(socket);
        Ok(Self { listener, file })
    }

    fn place(&self) -> io::Result<ControlPlace> {
        Ok(ControlPlace {
            path: self.file.path.clone(),
            socket: self.listener.try_clone()?.into(),
        })
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
        let file = SocketFile::at(path)?;
        Ok(Self { listener, file })
    }
}

impl Commands {
    /// Removes the file of the former control socket when its time is over.
    pub fn remove_former(&mut self, now: Instant) {
        self.former.take_if(|(_, until)| now >= *until);
    }

    /// Removes the file of the former control socket, because another program is about to be executed.
    pub fn end_former(&mut self) {
        self.former = None;
    }

    /// Readable when there is a command.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.signal.as_fd()
    }

    /// Carries out the commands that wait, by `answer`.
    pub fn serve(&mut self, mut answer: impl FnMut(Request) -> Answer) {
        // An error means that there was no signal.
        let _ = rustix::io::read(&self.signal, &mut [0; 8]);
        for _ in 0..COMMAND_LIMIT {
            let Ok(command) = self.waiting.try_recv() else {
                return;
            };
            // The client may no longer wait.
            let _ = command.reply.send(answer(command.request));
        }
        // More commands have arrived meanwhile.
        super::control_pages::signal(&self.signal);
    }
}

impl SocketFile {
    fn at(path: &Path) -> io::Result<Self> {
        let file = fs::symlink_metadata(path)?;
        Ok(Self {
            path: path.to_owned(),
            is_own: true,
            file: (file.dev(), file.ino()),
        })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|file| (file.dev(), file.ino()) == self.file);
        if ours && self.is_own {
            let _ = fs::remove_file(&self.path);
        }
    }
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
