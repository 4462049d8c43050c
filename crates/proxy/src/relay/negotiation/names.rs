//! The relay's side of looking up names: the threads ask, the answers find their thread.

use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::net::SendFlags;

use crate::relay::control::Control;
use crate::relay::table::Key;
use crate::resolver::{self, Answer, Question};

/// Where all threads ask.
#[derive(Debug)]
pub struct Names {
    resolver: Mutex<Option<Arc<OwnedFd>>>,
    /// One for each thread; bounded by its negotiations, each of which asks once.
    answers: Vec<Mutex<Vec<Answer>>>,
    control: Arc<Control>,
}

impl Names {
    /// For so many threads; nobody answers yet.
    pub fn new(threads: usize, control: Arc<Control>) -> Self {
        Self {
            resolver: Mutex::default(),
            answers: (0..threads).map(|_| Mutex::default()).collect(),
            control,
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

    /// Asks for a name; whether an answer will come.
    pub fn ask(&self, thread: usize, key: Key, name: &str) -> bool {
        let Some(socket) = lock(&self.resolver).clone() else {
            return false;
        };
        let question = Question {
            thread,
            key: key.number(),
            name: name.to_owned(),
        };
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        resolver::send(&*socket, &question, flags).is_ok()
    }

    /// What has been found out for a thread; `None` where the resolver was too busy.
    pub fn take(&self, thread: usize) -> Vec<(Key, Option<Vec<IpAddr>>)> {
        let Some(answers) = self.answers.get(thread) else {
            return Vec::new();
        };
        let answers = std::mem::take(&mut *lock(answers));
        let content = |answer: Answer| (Key::from_number(answer.key), answer.addresses);
        answers.into_iter().map(content).collect()
    }

    fn listen(&self, socket: &Arc<OwnedFd>) {
        loop {
            match resolver::receive::<Answer>(&**socket) {
                Ok(Some(answer)) => {
                    if let Some(answers) = self.answers.get(answer.thread) {
                        lock(answers).push(answer);
                        self.control.wake();
                    }
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
