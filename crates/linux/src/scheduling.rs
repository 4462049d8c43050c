//! Priorities of threads: waking up in time, or running last (`sched_setattr(2)`, sched(7)).

use std::io;
use std::mem::size_of;

/// `struct sched_attr` of <linux/sched/types.h>, the first version.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// The shortest slice that the kernel grants.
const SLICE_NANOSECONDS: u64 = 100_000;
/// The highest priority of an ordinary thread.
const HIGHEST: i32 = -20;
/// The lowest real-time priority is above all ordinary threads.
const ABOVE_ALL: u32 = 1;

/// Makes the calling thread, which works in short pieces, run as soon as it is woken.
///
/// With `CAP_SYS_NICE`, the thread runs before all ordinary threads (`SCHED_FIFO`): a kernel then
/// interrupts another processor at once, instead of waiting for its next tick. Otherwise, as far as
/// permitted, the thread gets a higher priority and a short slice. A short slice gives an early
/// deadline in the kernel's scheduler (since Linux 6.12; ignored before) and needs no privilege.
pub fn prefer_latency() -> io::Result<()> {
    let first = Attributes {
        policy: libc::SCHED_FIFO as u32,
        priority: ABOVE_ALL,
        ..Attributes::default()
    };
    let short = |nice| Attributes {
        nice,
        runtime: SLICE_NANOSECONDS,
        ..Attributes::default()
    };
    // Without the capability, or in a group without real-time bandwidth.
    set(first)
        .or_else(|_| set(short(HIGHEST)))
        .or_else(|_| set(short(0)))
}

/// Makes the calling thread run only if no other thread is ready (`SCHED_IDLE`). Needs no
/// privilege.
pub fn run_last() -> io::Result<()> {
    set(Attributes {
        policy: libc::SCHED_IDLE as u32,
        ..Attributes::default()
    })
}

fn set(attributes: Attributes) -> io::Result<()> {
    let attributes = Attributes {
        size: size_of::<Attributes>() as u32,
        ..attributes
    };
    // SAFETY: the kernel reads `size` bytes of the live `attributes`, laid out as it expects, for
    // the calling thread (0).
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_kernel_takes_the_attributes() {
        std::thread::spawn(|| super::prefer_latency().unwrap())
            .join()
            .unwrap();
        std::thread::spawn(|| super::run_last().unwrap())
            .join()
            .unwrap();
    }
}
