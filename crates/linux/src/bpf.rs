//! Programs that the kernel runs at events of TCP sockets (`BPF_PROG_TYPE_SOCK_OPS` of bpf(2)).
//!
//! A program is a list of instructions (RFC 9669). It is attached to a control group (cgroups(7), version 2), and runs for the
//! sockets that processes of this group have opened, in all network namespaces. Loading needs `CAP_BPF` and `CAP_NET_ADMIN`
//! in the first user namespace, and Linux 5.7.

use std::fs;
use std::io;
use std::mem::{offset_of, size_of};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use socket2::{Domain, Socket, Type};

use crate::tcp::raw;

/// A register of the virtual machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Register {
    /// The result of a call, and of the program.
    R0,
    /// The first argument of a call. When the program begins, the address of the event.
    R1,
    /// The second argument.
    R2,
    /// The third argument.
    R3,
    /// The fourth argument.
    R4,
    /// The fifth argument.
    R5,
    /// Keeps its value in calls.
    R6,
    /// The end of the stack.
    R10 = 10,
}

/// One instruction, as the kernel reads it (`struct bpf_insn` of <linux/bpf.h>).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Instruction {
    code: u8,
    /// The source register in the upper half, the destination register in the lower one.
    registers: u8,
    offset: i16,
    immediate: i32,
}

impl Instruction {
    const fn new(code: u8, to: Register, from: Register, offset: i16, immediate: i32) -> Self {
        Self {
            code,
            registers: (from as u8) << 4 | to as u8,
            offset,
            immediate,
        }
    }

    /// `to = value`
    #[must_use]
    pub const fn set(to: Register, value: i32) -> Self {
        Self::new(0xb7, to, Register::R0, 0, value)
    }

    /// `to = value`, with all 64 bits: two instructions.
    #[must_use]
    pub const fn set_wide(to: Register, value: u64) -> [Self; 2] {
        let [low, high] = [value as u32, (value >> 32) as u32];
        [
            Self::new(0x18, to, Register::R0, 0, low.cast_signed()),
            Self::new(0x00, Register::R0, Register::R0, 0, high.cast_signed()),
        ]
    }

    /// `to = from`
    #[must_use]
    pub const fn copy(to: Register, from: Register) -> Self {
        Self::new(0xbf, to, from, 0, 0)
    }

    /// `to += value`
    #[must_use]
    pub const fn add(to: Register, value: i32) -> Self {
        Self::new(0x07, to, Register::R0, 0, value)
    }

    /// `to &= value`, on the lower 32 bits; the upper ones become zero.
    #[must_use]
    pub const fn and(to: Register, value: u32) -> Self {
        Self::new(0x54, to, Register::R0, 0, value.cast_signed())
    }

    /// Reads 32 bits at `from + offset`.
    #[must_use]
    pub const fn read(to: Register, from: Register, offset: i16) -> Self {
        Self::new(0x61, to, from, offset, 0)
    }

    /// Reads 64 bits at `from + offset`, such as an address.
    #[must_use]
    pub const fn read_address(to: Register, from: Register, offset: i16) -> Self {
        Self::new(0x79, to, from, offset, 0)
    }

    /// Writes the lower 32 bits of `from` to `to + offset`.
    #[must_use]
    pub const fn write(to: Register, offset: i16, from: Register) -> Self {
        Self::new(0x63, to, from, offset, 0)
    }

    /// Leaves out this many instructions if the 64 bits of `register` are zero.
    #[must_use]
    pub const fn skip_if_zero(register: Register, skipped: i16) -> Self {
        Self::new(0x15, register, Register::R0, skipped, 0)
    }

    /// Leaves out this many instructions if all 64 bits of both registers are equal.
    #[must_use]
    pub const fn skip_if_same(one: Register, other: Register, skipped: i16) -> Self {
        Self::new(0x1d, one, other, skipped, 0)
    }

    /// Leaves out this many instructions if the lower 32 bits of `register` have this value.
    #[must_use]
    pub const fn skip_if_equal(register: Register, value: u32, skipped: i16) -> Self {
        Self::new(0x16, register, Register::R0, skipped, value.cast_signed())
    }

    /// Leaves out this many instructions if the lower 32 bits of `register` are at least this value.
    #[must_use]
    pub const fn skip_if_at_least(register: Register, value: u32, skipped: i16) -> Self {
        Self::new(0x36, register, Register::R0, skipped, value.cast_signed())
    }

    /// Leaves out this many instructions.
    #[must_use]
    pub const fn skip(skipped: i16) -> Self {
        Self::new(0x05, Register::R0, Register::R0, skipped, 0)
    }

    /// Sets an option of the socket (`bpf_setsockopt`). R1: the event; R2 and R3: level and option; R4 and R5: address and
    /// size of the value. The result is in R0, and R1 to R5 have no value afterwards.
    #[must_use]
    pub const fn set_socket_option() -> Self {
        Self::new(0x85, Register::R0, Register::R0, 0, 49)
    }

    /// The [cookie](network_namespace_cookie) of the socket's network namespace (`bpf_get_netns_cookie`, Linux 5.15). R1: the event.
    /// The result is in R0, and R1 to R5 have no value afterwards.
    #[must_use]
    pub const fn namespace_cookie() -> Self {
        Self::new(0x85, Register::R0, Register::R0, 0, 122)
    }

    /// Ends the program; the result is in R0.
    #[must_use]
    pub const fn exit() -> Self {
        Self::new(0x95, Register::R0, Register::R0, 0, 0)
    }
}

/// Offsets in the event of a socket (`struct bpf_sock_ops`), and in the socket (`struct bpf_sock`).
pub mod event {
    /// Which event it is.
    pub const KIND: i16 = 0;
    /// A connection was accepted: the handshake is complete, and nothing has been sent (`BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB`).
    pub const ACCEPTED: u32 = 5;
    /// Eight times the smoothed round trip, in microseconds.
    pub const ROUND_TRIP_EIGHTFOLD: i16 = 80;
    /// Address of the socket; zero if it is not a full one.
    pub const SOCKET: i16 = 184;
    /// In the socket: its mark (`SO_MARK`).
    pub const SOCKET_MARK: i16 = 16;
    /// The level of options of TCP.
    pub const TCP: i32 = libc::IPPROTO_TCP;
    /// The option that sets the congestion window, as long as no data was sent (`TCP_BPF_IW`), in segments.
    pub const INITIAL_WINDOW: i32 = 1001;
}

/// The number of the calling thread's network namespace, which no other one gets before the machine restarts (`SO_NETNS_COOKIE`,
/// Linux 5.14).
///
/// # Errors
/// Those of `socket(2)` and `getsockopt(2)`.
pub fn network_namespace_cookie() -> io::Result<u64> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    let mut cookie = [0; 8];
    raw::get_option(
        socket.as_fd(),
        libc::SOL_SOCKET,
        libc::SO_NETNS_COOKIE,
        &mut cookie,
    )?;
    Ok(u64::from_ne_bytes(cookie))
}

/// A program that is in force until this value is dropped.
#[derive(Debug)]
pub struct Attached {
    _link: OwnedFd,
}

/// Loads a program for events of sockets, and attaches it to a [control group](own_group). Other programs of the group run as well.
///
/// # Errors
/// `EPERM` without the capabilities; `EINVAL` or `EACCES` if the kernel is too old or the program is wrong.
pub fn attach(group: impl AsFd, instructions: &[Instruction]) -> io::Result<Attached> {
    let program = load(instructions)?;
    let link = LinkCreate {
        program: number(program.as_fd()),
        target: number(group.as_fd()),
        attach_type: ATTACH_SOCK_OPS,
        flags: 0,
    };
    // SAFETY: LINK_CREATE reads this structure, and returns a new descriptor.
    let link = unsafe { call(LINK_CREATE, &link) }?;
    Ok(Attached { _link: link })
}

/// Commands of bpf(2), and the kinds of program and of place (<linux/bpf.h>).
const PROGRAM_LOAD: libc::c_int = 5;
const LINK_CREATE: libc::c_int = 28;
const PROGRAM_SOCK_OPS: u32 = 13;
const ATTACH_SOCK_OPS: u32 = 3;

/// The part of `union bpf_attr` that LINK_CREATE reads.
#[repr(C)]
struct LinkCreate {
    program: u32,
    target: u32,
    attach_type: u32,
    flags: u32,
}

/// The part of `union bpf_attr` that PROG_LOAD reads here. The kernel takes fields that are left out at the end as zero.
#[repr(C)]
struct ProgramLoad {
    kind: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
}

const _: () = assert!(size_of::<Instruction>() == 8 && offset_of!(ProgramLoad, name) == 48);

fn load(instructions: &[Instruction]) -> io::Result<OwnedFd> {
    let mut name = [0; 16];
    name[..7].copy_from_slice(b"midspan");
    let load = ProgramLoad {
        kind: PROGRAM_SOCK_OPS,
        instruction_count: u32::try_from(instructions.len()).map_err(io::Error::other)?,
        instructions: instructions.as_ptr() as u64,
        license: c"Apache-2.0".as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel_version: 0,
        flags: 0,
        name,
    };
    // SAFETY: PROG_LOAD reads this structure, the instructions and the license, which all live until it returns a new
    // descriptor.
    unsafe { call(PROGRAM_LOAD, &load) }
}

/// Calls bpf(2) with a command that returns a new descriptor.
///
/// # Safety
/// `attributes` is what the command reads, and its addresses are valid.
unsafe fn call<T>(command: libc::c_int, attributes: &T) -> io::Result<OwnedFd> {
    let attributes: *const T = attributes;
    // SAFETY: The caller's promise.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attributes, size_of::<T>()) };
    match i32::try_from(result) {
        // SAFETY: The kernel has just opened this descriptor for this process.
        Ok(descriptor) if descriptor >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The number of a descriptor, which is not negative.
fn number(descriptor: impl AsFd) -> u32 {
    descriptor.as_fd().as_raw_fd().cast_unsigned()
}

/// The directory of the control group (version 2) of this process.
///
/// # Errors
/// `NotFound` if no file system of control groups is mounted, and `CAP_SYS_ADMIN` is missing.
pub fn own_group() -> io::Result<OwnedFd> {
    let groups = fs::read_to_string("/proc/self/cgroup")?;
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    match group_directory(&groups, &mounts) {
        Some(directory) => Ok(fs::File::open(directory)?.into()),
        None => unmounted_group(&groups),
    }
}

/// The same where nothing shows control groups, as under `ip netns exec`, which mounts another /sys. Needs `CAP_SYS_ADMIN`.
fn unmounted_group(groups: &str) -> io::Result<OwnedFd> {
    let missing = || io::Error::new(io::ErrorKind::NotFound, "no cgroup2 file system is mounted");
    let group = group_of(groups).ok_or_else(missing)?;
    let system = fsopen("cgroup2", FsOpenFlags::FSOPEN_CLOEXEC).map_err(|_| missing())?;
    fsconfig_create(&system).map_err(|_| missing())?;
    let (flags, attributes) = (FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty());
    let root = fsmount(&system, flags, attributes).map_err(|_| missing())?;
    let below = Path::new(".").join(group.trim_start_matches('/'));
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(root, below, flags, Mode::empty()).map_err(|error| {
        let error = io::Error::from(error);
        io::Error::new(
            error.kind(),
            format!("the control group {group} cannot be opened: {error}"),
        )
    })
}

/// The path of a control group of version 2, from the text of `/proc/PID/cgroup`.
fn group_of(groups: &str) -> Option<&str> {
    groups.lines().find_map(|line| line.strip_prefix("0::"))
}

/// The directory of a control group, from the texts of `/proc/PID/cgroup` and `/proc/PID/mountinfo` (cgroups(7), proc(5)).
fn group_directory(groups: &str, mounts: &str) -> Option<PathBuf> {
    let group = group_of(groups)?;
    mounts.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let (root, at) = (fields.next()?, fields.next()?);
        // In a container, the mount may begin at a group below the root.
        let below = Path::new(group).strip_prefix(root).ok()?;
        (kind.split(' ').next() == Some("cgroup2")).then(|| Path::new(at).join(below))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capability::{self, Capability};
    use crate::user_map::UserMap;

    const MOUNTS: &str = "\
        25 30 0:23 / /sys rw,nosuid - sysfs sysfs rw\n\
        31 25 0:27 / /sys/fs/cgroup/unified rw,nosuid - cgroup2 cgroup2 rw\n";

    #[test]
    fn a_group_is_found_below_its_mount() {
        let of = |groups, mounts| {
            let directory = group_directory(groups, mounts)?;
            directory.to_str().map(str::to_owned)
        };
        let unified = "/sys/fs/cgroup/unified";
        assert_eq!(of("0::/\n", MOUNTS), Some(format!("{unified}/")));
        let service = "1:cpu:/a\n0::/system.slice/midspan.service\n";
        let expected = format!("{unified}/system.slice/midspan.service");
        assert_eq!(of(service, MOUNTS), Some(expected));
        // A mount of another part of the tree has no directory of this group.
        let part = MOUNTS.replace("0:27 / ", "0:27 /docker/1 ");
        assert_eq!(of(service, &part), None);
        assert_eq!(of("0::/docker/1/x\n", &part), Some(format!("{unified}/x")));
        assert_eq!(of("1:cpu:/a\n", MOUNTS), None);
        assert_eq!(of(service, "25 30 0:23 / /sys rw - sysfs sysfs rw\n"), None);
    }

    #[test]
    fn a_group_is_found_where_none_is_mounted() {
        // A container's root may have the capability in a user namespace only.
        let is_first = UserMap::read().has_all();
        if !is_first || !capability::is_held(Capability::CAP_SYS_ADMIN).unwrap() {
            println!("skipped: needs CAP_SYS_ADMIN in the first user namespace");
            return;
        }
        let root = unmounted_group("0::/\n").unwrap();
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        assert!(openat(root, "cgroup.procs", flags, Mode::empty()).is_ok());
        let missing = unmounted_group("0::/midspan-of-a-test\n").unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn instructions_are_those_of_the_kernel() {
        // `r2 = *(u64 *)(r1 + 184)` and `*(u32 *)(r10 - 4) = r2`, as clang writes them.
        let read = Instruction::read_address(Register::R2, Register::R1, 184);
        assert_eq!((read.code, read.registers, read.offset), (0x79, 0x12, 184));
        let write = Instruction::write(Register::R10, -4, Register::R2);
        assert_eq!(
            (write.code, write.registers, write.offset),
            (0x63, 0x2a, -4)
        );
    }
}
