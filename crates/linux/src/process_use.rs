//! What the calling process uses of the machine: memory, CPU time, descriptors (proc(5)).

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::time::{Duration, SystemTime};

use rustix::fs::{Mode, OFlags, RawDir, SeekFrom};
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

/// Longest text that is read; the kernel's is a third of it.
const LIMIT: usize = 1024;
/// Bytes of directory entries that are read at a time.
const ENTRIES: usize = 8192;

/// What a process uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProcessUse {
    /// CPU time of all threads, in user mode and in the kernel.
    pub cpu_time: Duration,
    /// Bytes of memory that are present (RSS).
    pub resident_bytes: u64,
    /// Bytes of address space.
    pub virtual_bytes: u64,
    /// Open descriptors.
    pub descriptors: u64,
    /// The most descriptors that may be open (the soft limit); `None` without a limit.
    pub descriptor_limit: Option<u64>,
}

/// The files of `/proc` that describe the calling process, open: the relay opens no file once it
/// runs.
#[derive(Debug)]
pub struct ProcessFiles {
    stat: File,
    descriptors: OwnedFd,
    started: Option<SystemTime>,
}

impl ProcessFiles {
    /// Opens the files.
    ///
    /// # Errors
    /// There is no `/proc`.
    pub fn open() -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut files = Self {
            stat: File::open("/proc/self/stat")?,
            descriptors: rustix::fs::open("/proc/self/fd", flags, Mode::empty())?,
            started: None,
        };
        files.started = files.read().and_then(|stat| stat.started());
        Ok(files)
    }

    /// When the process started, by the clock of the system when the files were opened.
    #[must_use]
    pub const fn started(&self) -> Option<SystemTime> {
        self.started
    }

    /// The present values; `None` if they cannot be read.
    pub fn now(&self) -> Option<ProcessUse> {
        let stat = self.read()?;
        Some(ProcessUse {
            cpu_time: ticks(stat.cpu_ticks),
            resident_bytes: stat.resident_pages * rustix::param::page_size() as u64,
            virtual_bytes: stat.virtual_bytes,
            descriptors: self.count_descriptors().ok()?,
            descriptor_limit: getrlimit(Resource::Nofile).current,
        })
    }

    fn read(&self) -> Option<Stat> {
        let mut text = [0; LIMIT];
        // The kernel makes the whole text for one read.
        let count = self.stat.read_at(&mut text, 0).ok()?;
        Stat::parse(&String::from_utf8_lossy(text.get(..count)?))
    }

    fn count_descriptors(&self) -> io::Result<u64> {
        // From Linux 6.2 on, the size of the directory is the number of descriptors.
        let size = rustix::fs::fstat(&self.descriptors)?.st_size;
        if let Ok(count @ 1..) = u64::try_from(size) {
            return Ok(count);
        }
        rustix::fs::seek(&self.descriptors, SeekFrom::Start(0))?;
        let mut buffer = [MaybeUninit::uninit(); ENTRIES];
        let mut entries = RawDir::new(&self.descriptors, &mut buffer);
        let mut count = 0;
        while let Some(entry) = entries.next() {
            count += u64::from(!entry?.file_name().to_bytes().starts_with(b"."));
        }
        Ok(count)
    }
}

/// The fields that are used of `/proc/PID/stat`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    cpu_ticks: u64,
    /// Ticks from the start of the machine to the start of the process.
    start_ticks: u64,
    virtual_bytes: u64,
    resident_pages: u64,
}

impl Stat {
    /// The second field is the name of the program in parentheses, which may contain both spaces
    /// and parentheses.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (_, after_name) = text.rsplit_once(')')?;
        // The first of these is field 3.
        let fields: Vec<&str> = after_name.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Self {
            cpu_ticks: field(14)?.checked_add(field(15)?)?,
            start_ticks: field(22)?,
            virtual_bytes: field(23)?,
            resident_pages: field(24)?,
        })
    }

    fn started(&self) -> Option<SystemTime> {
        let running = clock_gettime(ClockId::Boottime);
        let running = Duration::try_from(running).ok()?;
        let age = running.saturating_sub(ticks(self.start_ticks));
        SystemTime::now().checked_sub(age)
    }
}

fn ticks(count: u64) -> Duration {
    let second = rustix::param::clock_ticks_per_second().max(1);
    let part = u128::from(count % second) * 1_000_000_000 / u128::from(second);
    Duration::new(count / second, u32::try_from(part).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_contain_what_separates_fields() {
        let fields: Vec<String> = (4..=52).map(|number| number.to_string()).collect();
        let text = format!("17 (a) b (c) R {}\n", fields.join(" "));
        let expected = Stat {
            cpu_ticks: 14 + 15,
            start_ticks: 22,
            virtual_bytes: 23,
            resident_pages: 24,
        };
        assert_eq!(Stat::parse(&text), Some(expected));
        for nothing in ["", "17 (a", "17 (a) R 1 2 3", "17 (a) R x"] {
            assert_eq!(Stat::parse(nothing), None);
        }
    }

    #[test]
    fn this_process_has_started_and_uses_something() {
        let files = ProcessFiles::open().unwrap();
        let before = files.now().unwrap();
        assert!(before.resident_bytes > 1 << 16 && before.virtual_bytes >= before.resident_bytes);
        assert!(before.descriptors >= 5, "{before:?}");
        let age = files.started().unwrap().elapsed().unwrap();
        assert!(age < Duration::from_secs(3600), "{age:?}");
        let busy = std::time::Instant::now();
        while files.now().unwrap().cpu_time <= before.cpu_time {
            assert!(busy.elapsed() < Duration::from_secs(60));
        }
    }

    /// The number that the directory's size states is the number of its entries.
    #[test]
    fn both_ways_count_the_same() {
        let files = ProcessFiles::open().unwrap();
        let entries = || std::fs::read_dir("/proc/self/fd").unwrap().count() as u64;
        // Other tests of this process open and close descriptors meanwhile.
        let agree = || files.count_descriptors().unwrap() + 1 == entries();
        assert!((0..1000).any(|_| agree()));
    }
}
