//! The relay's side of looking up names: threads request names, and each answer returns to its
//! thread. [`Lookups`] decides which name is looked up when.

use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use std::time::Instant;

use midspan_units::Time;
use rustix::net::SendFlags;

use super::lookups::{Asked, Lookups, Waiter};
use super::resolver::{self, Answer, BEGUN_AGAIN, Question};
use crate::control::Control;
use crate::limits::Client;
use crate::table::Key;

/// The result of a look-up for a negotiation; `None` if the resolver was too busy.
pub type LookedUp = (Key, Option<Vec<IpAddr>>);

/// Answers for one thread; their number is limited by the thread's negotiations, each of which has one
/// request.
type Answers = Mutex<Vec<LookedUp>>;

/// The look-up of names for one thread. Keys of another thread's negotiations never reach it.
#[derive(Debug)]
pub struct NamesOfThread {
    names: Arc<Names>,
    /// The place among all threads that have ever looked names up.
    place: usize,
    answers: Arc<Answers>,
}

/// The look-up of names, shared by all threads.
#[derive(Debug)]
pub struct Names {
    resolver: Mutex<Option<Arc<OwnedFd>>>,
    lookups: Mutex<Lookups>,
    /// The answers for each thread. A thread that is replaced has no place any more.
    threads: Mutex<Vec<Option<Arc<Answers>>>>,
    control: Arc<Control>,
    start: Instant,
}

impl Names {
    /// For no threads; there is no resolver yet.
    pub fn new(control: Arc<Control>) -> Self {
        Self {
            resolver: Mutex::default(),
            lookups: Mutex::default(),
            threads: Mutex::default(),
            control,
            start: Instant::now(),
        }
    }

    /// Sets the resolver, at the other end of `socket`. Starts a thread that receives its answers
    /// and ends with it.
    ///
    /// # Errors
    /// Those of starting a thread.
    pub fn set_resolver(self: &Arc<Self>, socket: OwnedFd) -> std::io::Result<()> {
        let socket = Arc::new(socket);
        let (names, answers) = (Arc::clone(self), Arc::clone(&socket));
        std::thread::Builder::new()
            .name("names".to_owned())
            .spawn(move || names.listen(&answers))?;
        *lock(&self.resolver) = Some(socket);
        self.control.wake();
        Ok(())
    }

    /// The look-up for one more thread.
    pub fn of_thread(self: &Arc<Self>) -> NamesOfThread {
        let answers = Arc::<Answers>::default();
        let mut threads = lock(&self.threads);
        threads.push(Some(Arc::clone(&answers)));
        NamesOfThread {
            names: Arc::clone(self),
            place: threads.len() - 1,
            answers,
        }
    }

    /// Requests the addresses of a name for a client.
    fn ask(&self, waiter: Waiter, client: IpAddr, name: &str) -> Asked {
        let client = Client::of(client);
        let (asked, outgoing) = {
            let mut lookups = lock(&self.lookups);
            let asked = lookups.ask(self.time(), client, name, waiter);
            (asked, lookups.take_outgoing())
        };
        self.send(outgoing);
        asked
    }

    /// Sends look-ups to the resolver. One that cannot be sent is answered as failed.
    fn send(&self, mut outgoing: Vec<(u64, String)>) {
        let socket = lock(&self.resolver).clone();
        while let Some((number, name)) = outgoing.pop() {
            let question = Question { number, name };
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            let sent = socket.as_ref();
            let sent = sent.is_some_and(|socket| resolver::send(socket, &question, flags).is_ok());
            if !sent {
                // Each iteration answers one waiting request, so the loop ends.
                outgoing.extend(self.tell(number, None));
            }
        }
    }

    /// Passes an answer to all its receivers; returns the look-ups to send next, or again if the resolver
    /// has begun again.
    fn tell(&self, number: u64, addresses: Option<Vec<IpAddr>>) -> Vec<(u64, String)> {
        let (told, outgoing) = {
            let mut lookups = lock(&self.lookups);
            let told = match number {
                BEGUN_AGAIN => lookups.ask_again(self.time()),
                number => lookups.answer(self.time(), number, addresses),
            };
            (told, lookups.take_outgoing())
        };
        for ((place, key), addresses) in told {
            let threads = lock(&self.threads);
            if let Some(Some(answers)) = threads.get(place) {
                lock(answers).push((key, addresses));
            }
        }
        self.control.wake();
        outgoing
    }

    /// The time for [`Lookups`].
    fn time(&self) -> Time {
        Time::ZERO + self.start.elapsed().into()
    }

    fn listen(&self, socket: &Arc<OwnedFd>) {
        loop {
            match resolver::receive::<Answer>(&**socket) {
                Ok(Some(answer)) => {
                    let outgoing = self.tell(answer.number, answer.addresses);
                    self.send(outgoing);
                }
                Ok(None) => break,
                Err(error) => {
                    tracing::warn!("the resolver cannot be understood: {error}");
                    break;
                }
            }
        }
        let mut resolver = lock(&self.resolver);
        if resolver
            .as_ref()
            .is_some_and(|current| Arc::ptr_eq(current, socket))
        {
            *resolver = None;
        }
    }
}

impl NamesOfThread {
    /// Requests the addresses of a name for a client's negotiation with this key.
    pub fn ask(&self, key: Key, client: IpAddr, name: &str) -> Asked {
        self.names.ask((self.place, key), client, name)
    }

    /// Whether there is a resolver.
    pub fn can_ask(&self) -> bool {
        lock(&self.names.resolver).is_some()
    }

    /// Takes the answers; `None` if the resolver was too busy.
    pub fn take(&self) -> Vec<LookedUp> {
        std::mem::take(&mut *lock(&self.answers))
    }
}

impl Drop for NamesOfThread {
    fn drop(&mut self) {
        if let Some(place) = lock(&self.names.threads).get_mut(self.place) {
            *place = None;
        }
    }
}

/// No code panics while it holds this lock, so the content is always consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
