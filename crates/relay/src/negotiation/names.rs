//! The relay's side of looking up names: the threads ask, the answers find their thread. What is
//! asked when is decided by [`Lookups`].

use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use std::time::Instant;

use midspan_units::Time;
use rustix::net::SendFlags;

use super::lookups::{Asked, Lookups, Waiter};
use super::resolver::{self, Answer, Question};
use crate::control::Control;
use crate::limits::Client;
use crate::table::Key;

/// What has been found out for a negotiation; `None` where the resolver was too busy.
pub type Told = (Key, Option<Vec<IpAddr>>);

/// Where all threads ask.
#[derive(Debug)]
pub struct Names {
    resolver: Mutex<Option<Arc<OwnedFd>>>,
    lookups: Mutex<Lookups>,
    /// One for each thread; bounded by its negotiations, each of which asks once.
    answers: Vec<Mutex<Vec<Told>>>,
    control: Arc<Control>,
    start: Instant,
}

impl Names {
    /// For so many threads; nobody answers yet.
    pub fn new(threads: usize, control: Arc<Control>) -> Self {
        Self {
            resolver: Mutex::default(),
            lookups: Mutex::default(),
            answers: (0..threads).map(|_| Mutex::default()).collect(),
            control,
            start: Instant::now(),
        }
    }

    /// The one who answers from now on. The thread that listens to it ends with it.
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
        Ok(())
    }

    /// Asks for a name on behalf of a client.
    pub fn ask(&self, waiter: Waiter, client: IpAddr, name: &str) -> Asked {
        let client = Client::of(client);
        let (asked, outgoing) = {
            let mut lookups = lock(&self.lookups);
            let asked = lookups.ask(self.time(), client, name, waiter);
            (asked, lookups.take_outgoing())
        };
        self.send(outgoing);
        asked
    }

    /// What has been found out for a thread; `None` where the resolver was too busy.
    pub fn take(&self, thread: usize) -> Vec<Told> {
        let answers = self.answers.get(thread);
        answers.map_or_else(Vec::new, |answers| std::mem::take(&mut *lock(answers)))
    }

    /// Sends questions to the resolver. What cannot be sent is answered: nobody could look.
    fn send(&self, mut outgoing: Vec<(u64, String)>) {
        let socket = lock(&self.resolver).clone();
        while let Some((number, name)) = outgoing.pop() {
            let question = Question { number, name };
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            let sent = socket.as_ref();
            let sent = sent.is_some_and(|socket| resolver::send(socket, &question, flags).is_ok());
            if !sent {
                // Each time one less waits, so this comes to an end.
                outgoing.extend(self.tell(number, None));
            }
        }
    }

    /// Tells all who wait for a look-up; what is to be sent next.
    fn tell(&self, number: u64, addresses: Option<Vec<IpAddr>>) -> Vec<(u64, String)> {
        let (told, outgoing) = {
            let mut lookups = lock(&self.lookups);
            let told = lookups.answer(self.time(), number, addresses);
            (told, lookups.take_outgoing())
        };
        for ((thread, key), addresses) in told {
            if let Some(answers) = self.answers.get(thread) {
                lock(answers).push((key, addresses));
            }
        }
        self.control.wake();
        outgoing
    }

    /// The time that [`Lookups`] is told.
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

/// Nothing here panics while it holds a lock, so the content is whole in any case.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
