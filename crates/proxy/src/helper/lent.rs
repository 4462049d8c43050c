//! A value on which a thread works from time to time, so that the owner need not wait for the work.
//!
//! While the thread works, it has the value, and no other work can begin. Afterwards the owner gets
//! the value back, unless the work panics.

use std::io::{self, PipeReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use thiserror::Error;

type Work<T> = Box<dyn FnOnce(&mut T) + Send>;

/// The work panicked, and the value is gone.
#[derive(Debug, Error)]
#[error("a thread ended unexpectedly")]
pub(super) struct Lost;

/// The value, or the channel to the thread that has it.
pub(super) struct Lent<T> {
    here: Option<T>,
    /// `None` while this `Lent` is dropped.
    to_thread: Option<SyncSender<(T, Work<T>)>>,
    from_thread: Receiver<T>,
    /// The thread writes a byte after each work. Reading reaches the end if the thread has
    /// panicked.
    ended: PipeReader,
    thread: Option<JoinHandle<()>>,
}

impl<T: Send + 'static> Lent<T> {
    /// Starts the thread, which gets the capabilities that the caller has now.
    ///
    /// # Errors
    /// A pipe or a thread cannot be made; the value is dropped.
    pub fn new(name: &str, value: T) -> io::Result<Self> {
        let (ended, mut tell) = io::pipe()?;
        let (to_thread, orders) = sync_channel::<(T, Work<T>)>(1);
        let (back, from_thread) = sync_channel(1);
        let work = move || {
            while let Ok((mut value, work)) = orders.recv() {
                work(&mut value);
                // The owner waits for the value even when the `Lent` is dropped.
                let _ = back.send(value);
                let _ = tell.write_all(&[0]);
            }
        };
        let thread = std::thread::Builder::new().name(name.to_owned());
        Ok(Self {
            here: Some(value),
            to_thread: Some(to_thread),
            from_thread,
            ended,
            thread: Some(thread.spawn(work)?),
        })
    }

    /// The value, unless the thread has it.
    pub const fn here(&self) -> Option<&T> {
        self.here.as_ref()
    }

    /// A descriptor that becomes readable when the thread has finished its work or has panicked.
    /// The caller then calls [`take_back`](Self::take_back).
    pub fn ended(&self) -> BorrowedFd<'_> {
        self.ended.as_fd()
    }

    /// Starts work on the thread if it is free; returns whether the work begins.
    pub fn begin(&mut self, work: impl FnOnce(&mut T) + Send + 'static) -> bool {
        let (Some(value), Some(thread)) = (self.here.take(), &self.to_thread) else {
            return false;
        };
        // The thread waits for work, so the channel has room. If the thread has ended, the value
        // comes back.
        if let Err(refused) = thread.send((value, Box::new(work))) {
            self.here = Some(refused.0.0);
            return false;
        }
        true
    }

    /// Waits until the value is back, at most for `limit`; returns the value if it is.
    ///
    /// # Errors
    /// The work panicked.
    pub fn take_back(&mut self, limit: Duration) -> Result<Option<&mut T>, Lost> {
        let until = Instant::now() + limit;
        while self.here.is_none() {
            let left = until.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).ok();
            let mut descriptors = [PollFd::new(&self.ended, PollFlags::IN)];
            match poll(&mut descriptors, timeout.as_ref()) {
                Ok(0) if left.is_zero() => return Ok(None),
                Ok(0) | Err(rustix::io::Errno::INTR) => continue,
                Ok(_) => {}
                Err(_) => return Err(Lost),
            }
            match self.ended.read(&mut [0]) {
                Ok(1) => self.here = self.from_thread.recv().ok(),
                _ => return Err(Lost),
            }
        }
        Ok(self.here.as_mut())
    }
}

impl<T> Drop for Lent<T> {
    /// Waits for the work that is being done.
    fn drop(&mut self) {
        self.to_thread = None;
        if let Some(thread) = self.thread.take() {
            // A panic has already been reported.
            let _ = thread.join();
        }
        // Drops the value that the thread had.
        drop(self.from_thread.try_recv());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn nobody_waits_for_the_work_and_no_other_begins() {
        let mut lent = Lent::new("test", vec![1]).unwrap();
        let (go_on, wait) = channel::<()>();
        assert!(lent.begin(move |value| {
            let _ = wait.recv();
            value.push(2);
        }));
        assert_eq!(lent.here(), None);
        assert!(!lent.begin(|value| value.push(3)));
        assert_eq!(lent.take_back(Duration::from_millis(1)).unwrap(), None);
        go_on.send(()).unwrap();
        assert_eq!(lent.take_back(LONG).unwrap(), Some(&mut vec![1, 2]));
        // The end of one work is reported once.
        let mut descriptors = [PollFd::from_borrowed_fd(lent.ended(), PollFlags::IN)];
        assert_eq!(poll(&mut descriptors, Some(&Timespec::default())), Ok(0));
        assert!(lent.begin(|value| value.push(4)));
        assert_eq!(lent.take_back(LONG).unwrap(), Some(&mut vec![1, 2, 4]));
    }

    #[test]
    fn a_value_that_is_away_goes_too() {
        let value = Arc::new(());
        let mut lent = Lent::new("test", Arc::clone(&value)).unwrap();
        let (go_on, wait) = channel::<()>();
        assert!(lent.begin(move |_| {
            let _ = wait.recv();
        }));
        drop(go_on);
        drop(lent);
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    fn a_panic_is_told() {
        let mut lent = Lent::new("test", ()).unwrap();
        assert!(lent.begin(|()| std::panic::resume_unwind(Box::new(()))));
        assert!(lent.take_back(LONG).is_err());
        assert!(!lent.begin(|()| {}));
    }
}
