//! Looks up names, in a process of its own.
//!
//! The system's resolver reads files and loads libraries, which the relay may not do, and it reads data from
//! the network, which the helper must not do. So before the relay gives up its privileges, it starts another
//! process, which becomes the same user and gives up all capabilities. That process waits for a request, and
//! then runs this program again as the resolver itself. If the resolver crashes, the process waits for the
//! next request and runs the resolver again. The resolver may read files, but it may not write files or run
//! programs. Requests and answers are JSON over a `SOCK_SEQPACKET` pair, of which both processes have one end
//! as their standard input.
//!
//! Several threads look names up at the same time, because a name whose server does not answer takes seconds.
//! The relay limits each client to a few look-ups ([`lookups`](midspan_relay::negotiation)).

use std::net::{IpAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::process::Command;
use std::sync::mpsc::{self, Receiver, TrySendError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use midspan_explicit::MAXIMUM_ADDRESSES;
use midspan_linux::{capability, descriptor_passing, sandbox};
use midspan_relay::negotiation::resolver::{Answer, BEGUN_AGAIN, Question, receive, send};
use midspan_relay::negotiation::{LONGEST_LOOK_UP, MOST_OF_ALL};
use midspan_service::child;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::SendFlags;

use crate::Error;

/// The environment variable by which a relay process becomes one of these processes instead.
const VARIABLE: &str = "MIDSPAN_RESOLVER";
/// Its value for the process that waits.
const WAITING: &str = "waiting";
/// Its value for the resolver.
const LOOKING_UP: &str = "looking-up";

/// How long to wait before a resolver that has crashed is started again.
const PAUSE: Duration = Duration::from_millis(200);

/// Names that are looked up at the same time.
const THREADS: usize = MOST_OF_ALL;
/// Most names that wait for a thread.
const QUEUE: usize = 512;
/// glibc keeps buffers on the stack.
const STACK: usize = 512 << 10;
/// Whether this process is to call [`main`].
pub(crate) fn is_wanted() -> bool {
    std::env::var_os(VARIABLE).is_some()
}

/// Starts the process that waits; requests are sent through the returned socket. The process ends
/// with the thread that has started it.
///
/// # Errors
/// Those of a socket pair, and of running this program again.
pub(crate) fn start() -> std::io::Result<OwnedFd> {
    let (relay, own) = descriptor_passing::pair()?;
    let mut command = this_program(WAITING, own);
    child::pass_user_on(&mut command);
    command.spawn()?;
    Ok(relay)
}

/// The main function of both processes; returns when the relay has ended.
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
        // This process has no settings of the relay's log.
        midspan_log::say(&format!(
            "warning: the resolver process has ended: {status}"
        ));
        std::thread::sleep(PAUSE);
        // The new resolver gets once more what the old one had read.
        let begun_again = Answer {
            number: BEGUN_AGAIN,
            addresses: None,
        };
        send(relay, &begun_again, SendFlags::NOSIGNAL)?;
    }
}

fn this_program(role: &str, connection: OwnedFd) -> Command {
    let mut command = child::this_program(std::env::args_os().skip(1), connection);
    command.env(VARIABLE, role);
    command
}

/// Answers requests until the other process has ended.
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
        // Modules of the system's resolver come from other projects; one may need more calls than
        // most.
        while let Some(call) = sandbox::next_refused_call() {
            // This process has no settings of the relay's log either.
            midspan_log::say(&format!(
                "warning: the sandbox of the resolver has refused {call}"
            ));
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
        let addresses = is_awaited(since).then(|| look_up(&question.name));
        answer(relay, &question, addresses);
    }
}

/// Whether a negotiation can still wait for the answer to a question that has come at this time.
fn is_awaited(since: Instant) -> bool {
    since.elapsed().as_nanos() < u128::from(LONGEST_LOOK_UP.nanoseconds())
}

/// The addresses of a name, in the system's order (RFC 6724); empty where there are none.
fn look_up(name: &str) -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    for found in (name, 0_u16).to_socket_addrs().into_iter().flatten() {
        let address = found.ip().to_canonical();
        let alike = |other: &&IpAddr| other.is_ipv4() == address.is_ipv4();
        // Each family has a limit of its own, so that many addresses of one leave room for the
        // other.
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
    // If the relay has ended, it needs no answer.
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
