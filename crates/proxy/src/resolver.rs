//! Looking up names, in a process of its own.
//!
//! The system's resolver reads files and loads libraries, which the relay may not; and what it
//! reads comes from the network, which is not for the helper. So the relay, before it gives up its
//! rights, starts a process of the same user and without capabilities. That one waits for the
//! first question, then runs this program once more as the resolver itself, and again should that
//! ever crash. The resolver may read files, but neither write them nor run programs. Questions and
//! answers are JSON over a `SOCK_SEQPACKET` pair, the standard input of both.
//!
//! Several threads look up at the same time, since one name of a dead name server takes seconds.
//! The relay sees to it that no client has more than a few of them
//! ([`lookups`](midspan_relay::negotiation)).

use std::net::{IpAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::process::Command;
use std::sync::mpsc::{self, Receiver, TrySendError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use midspan_explicit::MAXIMUM_ADDRESSES;
use midspan_linux::{capability, descriptor_passing, process, sandbox};
use midspan_relay::negotiation::MOST_OF_ALL;
use midspan_relay::negotiation::resolver::{Answer, Question, receive, send};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::SendFlags;

use crate::Error;
use crate::user::USER_VARIABLE;

/// Says to a relay process that it is one of these instead.
const VARIABLE: &str = "MIDSPAN_RESOLVER";
/// The value for the one that waits.
const WAITING: &str = "waiting";
/// The value for the one that looks up.
const LOOKING_UP: &str = "looking-up";

/// How long to wait before a resolver that has crashed is started again.
const PAUSE: Duration = Duration::from_millis(200);

/// Names that are looked up at the same time.
const THREADS: usize = MOST_OF_ALL;
/// Names that wait for one of them.
const QUEUE: usize = 512;
/// Nobody waits any longer for a name that has waited for so long.
const PATIENCE: Duration = Duration::from_secs(10);
/// glibc keeps buffers on the stack.
const STACK: usize = 512 << 10;
/// Whether this process is to call [`main`].
pub(crate) fn is_wanted() -> bool {
    std::env::var_os(VARIABLE).is_some()
}

/// Starts the process that waits; questions go to the other end of this. It ends with the thread
/// that has started it.
///
/// # Errors
/// Those of a socket pair, and of running this program again.
pub(crate) fn start() -> std::io::Result<OwnedFd> {
    let (relay, own) = descriptor_passing::pair()?;
    let mut command = this_program(WAITING, own);
    if let Some(user) = std::env::var_os(USER_VARIABLE) {
        command.env(USER_VARIABLE, user);
    }
    command.spawn()?;
    Ok(relay)
}

/// The resolver process, either of them; returns when the relay has gone.
pub(crate) fn main(relay: OwnedFd) -> Result<(), Error> {
    capability::give_up_all_but(&[])?;
    if std::env::var_os(VARIABLE).is_some_and(|value| value == LOOKING_UP) {
        sandbox::enter_to_read_files()?;
        return serve(&relay).map_err(Error::system("look up names"));
    }
    wait_and_run(&relay).map_err(Error::system("start the resolver"))
}

fn wait_and_run(relay: &OwnedFd) -> std::io::Result<()> {
    loop {
        match poll(&mut [PollFd::new(relay, PollFlags::IN)], None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        let status = this_program(LOOKING_UP, relay.try_clone()?).status()?;
        if status.success() {
            return Ok(());
        }
        // Where and how the relay logs is not known to this process.
        midspan_log::say(&format!(
            "warning: the resolver process has ended: {status}"
        ));
        std::thread::sleep(PAUSE);
    }
}

fn this_program(role: &str, connection: OwnedFd) -> Command {
    let mut command = process::this_program(std::env::args_os().skip(1), connection);
    command.env(VARIABLE, role);
    command
}

/// Answers questions until the other side has gone.
fn serve(relay: &OwnedFd) -> std::io::Result<()> {
    let (questions, waiting) = mpsc::sync_channel::<(Question, Instant)>(QUEUE);
    let waiting = Arc::new(Mutex::new(waiting));
    for number in 0..THREADS {
        let (waiting, relay) = (Arc::clone(&waiting), relay.try_clone()?);
        std::thread::Builder::new()
            .name(format!("names {number}"))
            .stack_size(STACK)
            .spawn(move || look_up_all(&waiting, &relay))?;
    }
    while let Some(question) = receive::<Question>(relay)? {
        // Modules of the system's resolver are other people's programs: one may need more than most.
        while let Some(call) = sandbox::next_refused_call() {
            eprintln!("warning: the sandbox of the resolver has refused {call}");
        }
        match questions.try_send((question, Instant::now())) {
            Ok(()) => {}
            Err(TrySendError::Full((question, _)) | TrySendError::Disconnected((question, _))) => {
                answer(relay, &question, None);
            }
        }
    }
    Ok(())
}

type Waiting = Mutex<Receiver<(Question, Instant)>>;

fn look_up_all(waiting: &Waiting, relay: &OwnedFd) {
    loop {
        let next = waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .recv();
        let Ok((question, since)) = next else {
            return;
        };
        let addresses = (since.elapsed() < PATIENCE).then(|| look_up(&question.name));
        answer(relay, &question, addresses);
    }
}

/// The addresses of a name, in the system's order (RFC 6724); empty where there are none.
fn look_up(name: &str) -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    for found in (name, 0_u16).to_socket_addrs().into_iter().flatten() {
        let address = found.ip().to_canonical();
        let alike = |other: &&IpAddr| other.is_ipv4() == address.is_ipv4();
        // Each family bounded by itself, so that many of one leave room for the other.
        if addresses.iter().filter(alike).count() < MAXIMUM_ADDRESSES
            && !addresses.contains(&address)
        {
            addresses.push(address);
        }
    }
    addresses
}

fn answer(relay: &OwnedFd, question: &Question, addresses: Option<Vec<IpAddr>>) {
    let answer = Answer {
        number: question.number,
        addresses,
    };
    // A relay that has gone needs no answer.
    let _ = send(relay, &answer, SendFlags::NOSIGNAL);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_answered_and_the_end_of_the_relay_ends_it() {
        let (relay, own) = descriptor_passing::pair().unwrap();
        let server = std::thread::spawn(move || serve(&own));
        let ask = |number, name: &str| {
            let question = Question {
                number,
                name: name.to_owned(),
            };
            send(&relay, &question, SendFlags::NOSIGNAL).unwrap();
            receive::<Answer>(&relay).unwrap().unwrap()
        };
        let known = ask(7, "localhost");
        assert_eq!(known.number, 7);
        let addresses = known.addresses.unwrap();
        assert!(!addresses.is_empty() && addresses.iter().all(IpAddr::is_loopback));
        assert_eq!(ask(8, "nonsuch.invalid").addresses, Some(Vec::new()));
        drop(relay);
        server.join().unwrap().unwrap();
    }
}
