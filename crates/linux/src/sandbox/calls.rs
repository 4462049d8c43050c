//! Which system calls a process with the filter may make.
//!
//! Only the calls that the processes make are listed. If a call is refused, tests that run the
//! proxy fail. The list must suffice for two C libraries: Debian 12's (glibc 2.36) and Debian 13's
//! (2.41), on x86-64 and on aarch64.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule};

use super::SandboxError;

/// For each call the permitted arguments, as alternatives; an empty list permits all arguments.
pub(super) type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Permitted with all arguments.
const ALLOWED: &[c_long] = &[
    // Data.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_lseek,
    // Counts the entries of /proc/self/fd, which is open before the filter is in force.
    libc::SYS_getdents64,
    libc::SYS_splice,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_pipe2,
    libc::SYS_fstat,
    // For descriptors (`AT_EMPTY_PATH`); with Landlock, for few other files.
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_ftruncate,
    libc::SYS_memfd_create,
    // Operations on open sockets.
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_connect,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_sendto,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_recvmmsg,
    libc::SYS_shutdown,
    // Waiting.
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_futex,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
    libc::SYS_sched_yield,
    libc::SYS_restart_syscall,
    // Memory; mmap and mprotect have rules below.
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    // Threads; clone has a filter of its own.
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_sched_getaffinity,
    libc::SYS_getcpu,
    libc::SYS_exit,
    libc::SYS_exit_group,
    // Information about the process itself.
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getrusage,
    libc::SYS_getrandom,
    libc::SYS_uname,
    // The process's own signals.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
];

/// Older forms of some of these calls.
#[cfg(target_arch = "x86_64")]
const ALLOWED_HERE: &[c_long] = &[
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_epoll_wait,
    libc::SYS_dup2,
    libc::SYS_time,
];
#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_HERE: &[c_long] = &[];

/// Calls that only the system's resolver needs: opening and reading files (openat has a rule
/// below).
const FILES: &[c_long] = &[
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_getcwd,
    libc::SYS_flock,
    libc::SYS_fadvise64,
    // Calls of modules of the name service switch, which other projects write.
    libc::SYS_getppid,
    libc::SYS_getresuid,
    libc::SYS_getresgid,
    libc::SYS_getgroups,
    libc::SYS_sysinfo,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_inotify_init1,
];
#[cfg(target_arch = "x86_64")]
const FILES_HERE: &[c_long] = &[
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_stat,
    libc::SYS_lstat,
];
#[cfg(not(target_arch = "x86_64"))]
const FILES_HERE: &[c_long] = &[];

/// `PR_SET_VMA`: newer C libraries name their memory.
const PR_SET_VMA: u64 = 0x5356_4d41;

/// `AF_UNIX` and others are numbers of C's `int`.
const fn number(value: libc::c_int) -> u64 {
    value.cast_unsigned() as u64
}

/// From this number on, options of sockets at the levels of IPv4 and IPv6 belong to netfilter's
/// older interface (xtables), multicast routing and others.
const FIRST_FOREIGN_OPTION: u64 = 64;
/// `SO_ORIGINAL_DST`, `IP6T_SO_ORIGINAL_DST`.
const ORIGINAL_DESTINATION: u64 = 80;

/// The calls of the relay.
pub(super) fn of_relay() -> Result<Rules, SandboxError> {
    let mut rules = common()?;
    let no_execution = || Ok(vec![rule([masked(2, number(libc::PROT_EXEC), 0)])?]);
    rules.insert(libc::SYS_mmap, no_execution()?);
    rules.insert(libc::SYS_mprotect, no_execution()?);
    let mut sockets = internet_sockets(&[TCP])?;
    // Netlink only for NFQUEUE and connection tracking; not for routes, firewall rules or
    // diagnosis.
    sockets.push(rule([
        equal(0, number(libc::AF_NETLINK)),
        equal(2, number(libc::NETLINK_NETFILTER)),
    ])?);
    rules.insert(libc::SYS_socket, sockets);
    Ok(rules)
}

/// The calls of the resolver.
pub(super) fn of_resolver() -> Result<Rules, SandboxError> {
    let mut rules = common()?;
    let more = FILES.iter().chain(FILES_HERE);
    rules.extend(more.map(|call| (*call, Vec::new())));
    // Modules of the name service switch are loaded when the first name is looked up.
    rules.insert(libc::SYS_mmap, Vec::new());
    rules.insert(libc::SYS_mprotect, Vec::new());
    let changing = number(libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC);
    rules.insert(libc::SYS_openat, vec![rule([masked(2, changing, 0)])?]);
    #[cfg(target_arch = "x86_64")]
    rules.insert(libc::SYS_open, vec![rule([masked(1, changing, 0)])?]);
    let mut sockets = internet_sockets(&[TCP, UDP])?;
    // For nscd and systemd-resolved; and to find out which addresses this host has.
    sockets.push(rule([equal(0, number(libc::AF_UNIX))])?);
    sockets.push(rule([
        equal(0, number(libc::AF_NETLINK)),
        equal(2, number(libc::NETLINK_ROUTE)),
    ])?);
    rules.insert(libc::SYS_socket, sockets);
    Ok(rules)
}

fn common() -> Result<Rules, SandboxError> {
    let mut rules: Rules = ALLOWED
        .iter()
        .chain(ALLOWED_HERE)
        .map(|call| (*call, Vec::new()))
        .collect();
    // Other filters answer clone3 with ENOSYS. Then the C library uses clone, whose flags a filter
    // can read; clone is refused unless it starts a thread.
    rules.insert(libc::SYS_clone3, Vec::new());
    rules.insert(libc::SYS_clone, Vec::new());
    rules.insert(
        libc::SYS_prctl,
        one_of(
            0,
            &[
                number(libc::PR_SET_NAME),
                number(libc::PR_GET_NO_NEW_PRIVS),
                PR_SET_VMA,
            ],
        )?,
    );
    // Reads the process's own limits.
    let own_limits = rule([equal(0, 0), wide(SeccompCmpOp::Eq, 2, 0)])?;
    rules.insert(libc::SYS_prlimit64, vec![own_limits]);
    // A thread chooses its own processors only.
    rules.insert(libc::SYS_sched_setaffinity, vec![rule([equal(0, 0)])?]);
    // abort(3).
    let own = u64::from(std::process::id());
    let abort = rule([equal(0, own), equal(2, number(libc::SIGABRT))])?;
    rules.insert(libc::SYS_tgkill, vec![abort]);
    let commands = [
        libc::F_DUPFD,
        libc::F_DUPFD_CLOEXEC,
        libc::F_GETFD,
        libc::F_SETFD,
        libc::F_GETFL,
        libc::F_SETFL,
        libc::F_GETPIPE_SZ,
        libc::F_SETPIPE_SZ,
        libc::F_ADD_SEALS,
        libc::F_GET_SEALS,
    ];
    rules.insert(libc::SYS_fcntl, one_of(1, &commands.map(number))?);
    // Whether a descriptor is a terminal, whether calls block, how many bytes wait in a socket.
    let requests = [libc::TCGETS, libc::FIONBIO, libc::FIONREAD, libc::TIOCOUTQ];
    rules.insert(libc::SYS_ioctl, one_of(1, &requests)?);
    let traffic_class = (libc::IPPROTO_IPV6, number(libc::IPV6_TCLASS));
    let set = [
        (libc::IPPROTO_IPV6, IPV6_TRANSPARENT),
        (libc::IPPROTO_IPV6, IPV6_FREEBIND),
        traffic_class,
    ];
    rules.insert(libc::SYS_setsockopt, options(&set)?);
    let read = [
        (libc::IPPROTO_IP, ORIGINAL_DESTINATION),
        (libc::IPPROTO_IPV6, ORIGINAL_DESTINATION),
        traffic_class,
    ];
    rules.insert(libc::SYS_getsockopt, options(&read)?);
    Ok(rules)
}

/// clone(2) for anything except a thread in the same namespaces.
///
/// Refused without the counting signal: the C library makes this call with all signals blocked, and
/// if a filter sends SIGSYS to a process that has blocked it, the kernel kills the process.
pub(super) fn other_clones() -> Result<Rules, SandboxError> {
    let namespaces = [
        libc::CLONE_NEWNS,
        libc::CLONE_NEWCGROUP,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
    ];
    let flags = |flag, value| rule([wide(SeccompCmpOp::MaskedEq(number(flag)), 0, value)]);
    let mut refused = vec![flags(libc::CLONE_THREAD, 0)?];
    for flag in namespaces {
        refused.push(flags(flag, number(flag))?);
    }
    Ok(BTreeMap::from([(libc::SYS_clone, refused)]))
}

/// A kind of socket and its protocol.
type Kind = (libc::c_int, libc::c_int);

const TCP: Kind = (libc::SOCK_STREAM, libc::IPPROTO_TCP);
const UDP: Kind = (libc::SOCK_DGRAM, libc::IPPROTO_UDP);

/// Sockets of these kinds over IPv4 and IPv6.
fn internet_sockets(kinds: &[Kind]) -> Result<Vec<SeccompRule>, SandboxError> {
    let mut rules = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        for (kind, protocol) in kinds {
            for protocol in [0, *protocol] {
                rules.push(rule([
                    equal(0, number(family)),
                    // Without SOCK_NONBLOCK and SOCK_CLOEXEC.
                    masked(1, 0xf, number(*kind)),
                    equal(2, number(protocol)),
                ])?);
            }
        }
    }
    Ok(rules)
}

/// Options of sockets, of TCP, of IPv4, IPv6 and netlink; and `more`, with their levels.
fn options(more: &[(libc::c_int, u64)]) -> Result<Vec<SeccompRule>, SandboxError> {
    let mut rules = Vec::new();
    // Programs that the kernel would run.
    let programs = [
        libc::SO_ATTACH_FILTER,
        libc::SO_ATTACH_BPF,
        libc::SO_ATTACH_REUSEPORT_CBPF,
        libc::SO_ATTACH_REUSEPORT_EBPF,
    ];
    let mut general = vec![equal(1, number(libc::SOL_SOCKET))];
    general.extend(programs.map(|name| other(2, number(name))));
    rules.push(rule(general)?);
    // No other protocol on top of TCP (kTLS and its like).
    rules.push(rule([
        equal(1, number(libc::IPPROTO_TCP)),
        other(2, number(libc::TCP_ULP)),
    ])?);
    rules.push(rule([equal(1, number(libc::SOL_NETLINK))])?);
    let levels = [
        (
            libc::IPPROTO_IP,
            [libc::IP_IPSEC_POLICY, libc::IP_XFRM_POLICY],
        ),
        (libc::IPPROTO_IPV6, [IPV6_IPSEC_POLICY, IPV6_XFRM_POLICY]),
    ];
    for (level, policies) in levels {
        let mut below = vec![
            equal(1, number(level)),
            condition(
                SeccompCmpOp::Lt,
                SeccompCmpArgLen::Dword,
                2,
                FIRST_FOREIGN_OPTION,
            ),
        ];
        below.extend(policies.map(|name| other(2, number(name))));
        rules.push(rule(below)?);
    }
    for (level, name) in more {
        rules.push(rule([equal(1, number(*level)), equal(2, *name)])?);
    }
    Ok(rules)
}

/// An option of IPv6 for transparent sockets, whose number is higher than the others.
const IPV6_TRANSPARENT: u64 = 75;
const IPV6_FREEBIND: u64 = 78;
const IPV6_IPSEC_POLICY: libc::c_int = 34;
const IPV6_XFRM_POLICY: libc::c_int = 35;

type Condition = Result<SeccompCondition, SandboxError>;

fn condition(operator: SeccompCmpOp, length: SeccompCmpArgLen, at: u8, value: u64) -> Condition {
    SeccompCondition::new(at, length, operator, value).map_err(SandboxError::new)
}

/// The argument is this number of 32 bits.
fn equal(at: u8, value: u64) -> Condition {
    condition(SeccompCmpOp::Eq, SeccompCmpArgLen::Dword, at, value)
}

fn other(at: u8, value: u64) -> Condition {
    condition(SeccompCmpOp::Ne, SeccompCmpArgLen::Dword, at, value)
}

/// These bits of the argument, a number of 32 bits, are `value`.
fn masked(at: u8, mask: u64, value: u64) -> Condition {
    let operator = SeccompCmpOp::MaskedEq(mask);
    condition(operator, SeccompCmpArgLen::Dword, at, value)
}

/// A condition on an argument of 64 bits.
fn wide(operator: SeccompCmpOp, at: u8, value: u64) -> Condition {
    condition(operator, SeccompCmpArgLen::Qword, at, value)
}

/// All conditions must hold.
fn rule(conditions: impl IntoIterator<Item = Condition>) -> Result<SeccompRule, SandboxError> {
    let conditions = conditions.into_iter().collect::<Result<_, _>>()?;
    SeccompRule::new(conditions).map_err(SandboxError::new)
}

fn one_of(at: u8, values: &[u64]) -> Result<Vec<SeccompRule>, SandboxError> {
    values
        .iter()
        .map(|value| rule([equal(at, *value)]))
        .collect()
}
