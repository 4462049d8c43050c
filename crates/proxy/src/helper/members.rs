//! When the file of overlay members has changed, so that it is read again.
//!
//! A file that is missing or wrong changes nothing: the last valid members stay. Another program may write the file at
//! any moment, so it is read only once it has stayed the same for [`INTERVAL`].

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use tracing::{error, info};

use crate::Error;

/// Time between two looks at the file's metadata.
const INTERVAL: Duration = Duration::from_secs(1);

/// After how long new members that could not be put in force are tried again, although the file is the same.
const RETRY: Duration = Duration::from_secs(30);

/// What differs if a file is replaced or written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    /// Seconds and nanoseconds of the last change.
    changed: (i64, i64),
}

impl Stamp {
    /// `None` if there is no such file.
    fn of(file: &Path) -> Option<Self> {
        let metadata = std::fs::metadata(file).ok()?;
        Some(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}

/// The file of members as it was seen last.
#[derive(Debug)]
pub(super) struct MembersWatch {
    /// At the last look.
    seen: Option<Stamp>,
    /// When the file was read last; nothing has been read yet at the start, so that no change between the start and
    /// the first look is missed.
    read: Option<Read>,
    next: Instant,
    /// Why the members in force are not those of the file.
    error: Option<String>,
}

#[derive(Debug)]
struct Read {
    stamp: Option<Stamp>,
    /// When the same file is read again.
    again: Option<Instant>,
}

impl MembersWatch {
    pub fn new(now: Instant) -> Self {
        Self {
            seen: None,
            read: None,
            next: now,
            error: None,
        }
    }

    /// When to call [`look`](Self::look) at the latest.
    pub const fn next(&self) -> Instant {
        self.next
    }

    /// Why the members in force are not those of the file.
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// Whether the file has to be read now.
    pub fn look(&mut self, file: Option<&Path>, now: Instant) -> bool {
        if now < self.next {
            return false;
        }
        self.next = now + INTERVAL;
        let Some(file) = file else {
            self.error = None;
            return false;
        };
        self.compare(Stamp::of(file), now)
    }

    fn compare(&mut self, stamp: Option<Stamp>, now: Instant) -> bool {
        let is_settled = std::mem::replace(&mut self.seen, stamp) == stamp;
        let is_read = (self.read.as_ref())
            .is_some_and(|read| read.stamp == stamp && read.again.is_none_or(|again| now < again));
        let is_due = is_settled && !is_read;
        if is_due {
            let again = None;
            self.read = Some(Read { stamp, again });
        }
        is_due
    }

    /// The result of the reading: whether the members have changed.
    pub fn note(&mut self, result: Result<bool, Error>, now: Instant) {
        match result {
            Ok(is_changed) => {
                if is_changed {
                    info!("the file of members has changed: the new members are in force");
                } else if self.error.is_some() {
                    info!("the file of members has the members in force again");
                }
                self.error = None;
            }
            Err(error) => {
                let error = error.to_string();
                if self.error.as_ref() != Some(&error) {
                    error!("the file of members is not used, the last members stay: {error}");
                }
                self.error = Some(error);
                if let Some(read) = &mut self.read {
                    read.again = Some(now + RETRY);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(inode: u64) -> Option<Stamp> {
        Some(Stamp {
            device: 1,
            inode,
            size: 100,
            changed: (5, 0),
        })
    }

    #[test]
    fn a_file_is_read_once_after_it_has_stayed_the_same() {
        let now = Instant::now();
        let mut watch = MembersWatch::new(now);
        // The first look may come long after the configuration was read.
        assert!(!watch.compare(stamp(1), now));
        assert!(watch.compare(stamp(1), now));
        assert!(!watch.compare(stamp(1), now));
        // While another program replaces it again and again, it is not read.
        for inode in 2..10 {
            assert!(!watch.compare(stamp(inode), now));
        }
        assert!(watch.compare(stamp(9), now));
        assert!(!watch.compare(stamp(9), now));
    }

    #[test]
    fn a_missing_file_is_noticed_once_and_read_when_it_is_back() {
        let now = Instant::now();
        let mut watch = MembersWatch::new(now);
        watch.compare(stamp(1), now);
        assert!(watch.compare(stamp(1), now));
        assert!(!watch.compare(None, now));
        assert!(watch.compare(None, now));
        assert!(!watch.compare(None, now));
        assert!(!watch.compare(stamp(1), now));
        assert!(watch.compare(stamp(1), now));
    }

    #[test]
    fn what_failed_is_tried_again_later_and_reported_until_it_works() {
        let mut now = Instant::now();
        let mut watch = MembersWatch::new(now);
        watch.compare(stamp(1), now);
        assert!(watch.compare(stamp(1), now));
        watch.note(Err(Error::RelayNotReloaded), now);
        assert!(watch.error().is_some());
        assert!(!watch.compare(stamp(1), now));
        now += RETRY;
        assert!(watch.compare(stamp(1), now));
        watch.note(Ok(true), now);
        assert_eq!(watch.error(), None);
        now += RETRY;
        assert!(!watch.compare(stamp(1), now));
    }
}
