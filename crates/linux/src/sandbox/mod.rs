//! System calls and files that a process gives up permanently (seccomp(2), landlock(7)).
//!
//! There is a list of permitted calls (`calls`). Any other call returns `EPERM` and is counted, and
//! [`next_refused_call`] returns it, so that it can be logged once: if a C library uses another call for the
//! same purpose, this becomes visible. Two calls are not counted: clone3(2) returns `ENOSYS`, so that the C
//! library uses clone(2), and clone(2) returns `EPERM` for anything except a thread. If the kernel has
//! Landlock, Landlock also forbids access to files, named sockets and other processes.

mod calls;
mod files;
mod refused;

use std::collections::BTreeMap;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};
use thiserror::Error;

use calls::Rules;
pub use files::Landlock;
pub use refused::{RefusedCall, next_refused_call, refused_calls};

/// System calls cannot be given up.
#[derive(Debug, Error)]
#[error("cannot give up system calls: {0}")]
pub struct SandboxError(Box<dyn std::error::Error + Send + Sync>);

impl SandboxError {
    fn new<E: std::error::Error + Send + Sync + 'static>(error: E) -> Self {
        Self(Box::new(error))
    }
}

/// Restricts the calling thread, and the threads that it starts later, to the calls that a relay needs:
/// memory without code, threads, clocks, open descriptors, TCP sockets, and netlink sockets of netfilter.
/// These threads can no longer open a file, run a program, reach another process, open a UNIX or raw socket,
/// or enter a namespace. Open descriptors stay open. This cannot be reversed.
///
/// Returns how far Landlock restricts these threads in addition.
///
/// # Errors
/// The kernel has no seccomp filters, there is no filter for this architecture, or those of `prctl(2)` and
/// `sigaction(2)`.
pub fn enter() -> Result<Landlock, SandboxError> {
    prepare();
    let rules = calls::of_relay()?;
    set_no_new_privileges()?;
    let landlock = files::reach_none();
    apply(rules)?;
    Ok(landlock)
}

/// Like [`enter`], but the process may also read files, load libraries and open UNIX sockets, as
/// the system's resolver needs. With Landlock, only files at the resolver's usual places.
///
/// # Errors
/// As [`enter`].
pub fn enter_to_read_files() -> Result<Landlock, SandboxError> {
    prepare();
    let rules = calls::of_resolver()?;
    set_no_new_privileges()?;
    let landlock = files::reach_what_the_resolver_reads();
    apply(rules)?;
    Ok(landlock)
}

/// Makes libraries read, before the filter, the files that they read only once.
fn prepare() {
    keep_heaps_from_counting_processors();
    // glibc reads vm.overcommit_memory before it gives memory of a thread back for the first time:
    // when more than 128 KiB at the end of the thread's heap are free. Larger pieces than these do
    // not come from the heap. Without the file it gives nothing back.
    let thread = std::thread::Builder::new().spawn(|| {
        let pieces: Vec<Vec<u8>> = (0..8).map(|_| vec![1; 100 << 10]).collect();
        std::hint::black_box(&pieces);
    });
    let _ = thread.map(std::thread::JoinHandle::join);
}

/// glibc uses several heaps for threads, up to eight for each processor. When it makes the ninth
/// heap, it reads the number of processors from a file. If the number is set, it opens no file.
#[cfg(target_env = "gnu")]
fn keep_heaps_from_counting_processors() {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let heaps = i32::try_from(processors.saturating_mul(8)).unwrap_or(i32::MAX);
    // SAFETY: `mallopt` takes two numbers and a lock of the allocator.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, heaps) };
}
#[cfg(not(target_env = "gnu"))]
const fn keep_heaps_from_counting_processors() {}

fn set_no_new_privileges() -> Result<(), SandboxError> {
    crate::capability::set_no_new_privileges().map_err(SandboxError::new)
}

fn apply(rules: Rules) -> Result<(), SandboxError> {
    refused::count_them().map_err(SandboxError::new)?;
    let missing = SeccompAction::Errno(libc::ENOSYS.cast_unsigned());
    let without_clone3 = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    load(without_clone3, SeccompAction::Allow, missing)?;
    let refused = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    load(calls::other_clones()?, SeccompAction::Allow, refused)?;
    load(rules, SeccompAction::Trap, SeccompAction::Allow)
}

/// Loads a filter with one action for calls that match a rule, and one for the others. If filters
/// differ, the kernel applies the stricter action.
fn load(rules: Rules, others: SeccompAction, matching: SeccompAction) -> Result<(), SandboxError> {
    let architecture = TargetArch::try_from(std::env::consts::ARCH).map_err(SandboxError::new)?;
    let program: BpfProgram = SeccompFilter::new(rules, others, matching, architecture)
        .and_then(TryInto::try_into)
        .map_err(SandboxError::new)?;
    seccompiler::apply_filter(&program).map_err(SandboxError::new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::ErrorKind;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixDatagram;
    use std::process::{Command, ExitStatus};

    fn is_refused<T>(result: std::io::Result<T>) -> bool {
        result.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
    }

    /// Runs a test of this module again in a process of its own, and returns how it ended. Inside that
    /// process, the answer is `None`.
    fn in_own_process(test: &str) -> Option<ExitStatus> {
        const VARIABLE: &str = "MIDSPAN_TEST_OWN_PROCESS";
        if std::env::var_os(VARIABLE).is_some() {
            return None;
        }
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &format!("sandbox::tests::{test}")])
            .env(VARIABLE, "1")
            .output()
            .unwrap();
        eprintln!("{}", String::from_utf8_lossy(&output.stdout));
        Some(output.status)
    }

    /// The filter belongs to the thread, but an attempt to execute changes the whole process: the
    /// standard library sets the default action of SIGPIPE first. So the test has a process of its own.
    #[test]
    fn inside_no_program_runs_and_no_file_opens() {
        if let Some(status) = in_own_process("inside_no_program_runs_and_no_file_opens") {
            assert!(status.success(), "{status}");
            return;
        }
        let program = std::env::current_exe().unwrap();
        let inside = std::thread::spawn(move || {
            let before = std::fs::File::open("/dev/null").unwrap();
            enter().unwrap();
            assert!(rustix::thread::no_new_privs().unwrap());
            // Both ways to start a program: fork and exec, and exec in the same process.
            assert!(is_refused(Command::new(&program).arg("--help").status()));
            use std::os::unix::process::CommandExt;
            let error = Command::new(&program).arg("--help").exec();
            assert_eq!(error.kind(), ErrorKind::PermissionDenied);
            assert!(is_refused(std::fs::read("/proc/self/status")));
            assert!(is_refused(std::fs::write("/tmp/midspan-sandbox", "")));
            assert!(is_refused(UnixDatagram::unbound()));
            assert!(before.metadata().is_ok());
            // The relay's calls still work, also in threads that are started later.
            std::thread::spawn(|| {
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                let address = listener.local_addr().unwrap();
                let _client = TcpStream::connect(address).unwrap();
                listener.accept().unwrap();
                assert!(is_refused(std::fs::read("/proc/self/status")));
            })
            .join()
            .unwrap();
        });
        inside.join().unwrap();
    }

    /// The result of `call`; a negative one is an error number.
    fn raw(number: libc::c_long, arguments: [libc::c_long; 6]) -> i32 {
        let [a, b, c, d, e, f] = arguments;
        // SAFETY: the tests pass no pointer that a call could write to.
        match unsafe { libc::syscall(number, a, b, c, d, e, f) } {
            -1 => -std::io::Error::last_os_error().raw_os_error().unwrap(),
            result => i32::try_from(result).unwrap(),
        }
    }

    fn number(value: libc::c_int) -> libc::c_long {
        value.into()
    }

    #[test]
    fn inside_no_other_process_namespace_or_kernel_facility_is_reached() {
        let own = number(std::process::id().cast_signed());
        let parent = number(rustix::process::getppid().unwrap().as_raw_pid());
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = number(std::os::fd::AsRawFd::as_raw_fd(&tcp));
        let inside = std::thread::spawn(move || {
            enter().unwrap();
            let new_user = number(libc::CLONE_NEWUSER | libc::SIGCHLD);
            let new_net = number(libc::CLONE_THREAD | libc::CLONE_NEWNET);
            let (unix, netlink) = (number(libc::AF_UNIX), number(libc::AF_NETLINK));
            let (stream, raw_socket) = (number(libc::SOCK_STREAM), number(libc::SOCK_RAW));
            let inet = number(libc::AF_INET);
            let (ip, ipv6) = (number(libc::IPPROTO_IP), number(libc::IPPROTO_IPV6));
            let refused: &[(libc::c_long, [libc::c_long; 6])] = &[
                (
                    libc::SYS_unshare,
                    [number(libc::CLONE_NEWNET), 0, 0, 0, 0, 0],
                ),
                (libc::SYS_setns, [0; 6]),
                (libc::SYS_socketpair, [unix, stream, 0, 0, 0, 0]),
                (
                    libc::SYS_socket,
                    [unix, number(libc::SOCK_DGRAM), 0, 0, 0, 0],
                ),
                (libc::SYS_socket, [inet, raw_socket, 6, 0, 0, 0]),
                (libc::SYS_socket, [inet, stream, 262, 0, 0, 0]),
                (
                    libc::SYS_socket,
                    [inet, number(libc::SOCK_DGRAM), 0, 0, 0, 0],
                ),
                (
                    libc::SYS_socket,
                    [number(libc::AF_PACKET), raw_socket, 0, 0, 0, 0],
                ),
                (
                    libc::SYS_socket,
                    [netlink, raw_socket, number(libc::NETLINK_ROUTE), 0, 0, 0],
                ),
                (
                    libc::SYS_socket,
                    [netlink, raw_socket, number(libc::NETLINK_XFRM), 0, 0, 0],
                ),
                // Rules of iptables: IPT_SO_SET_REPLACE, IP6T_SO_SET_REPLACE, IPT_SO_GET_INFO.
                (libc::SYS_setsockopt, [socket, ip, 64, 0, 0, 0]),
                (libc::SYS_setsockopt, [socket, ipv6, 64, 0, 0, 0]),
                (libc::SYS_getsockopt, [socket, ip, 64, 0, 0, 0]),
                (
                    libc::SYS_setsockopt,
                    [socket, number(libc::SOL_SOCKET), 26, 0, 0, 0],
                ),
                (
                    libc::SYS_setsockopt,
                    [socket, number(libc::IPPROTO_TCP), 31, 0, 0, 0],
                ),
                (libc::SYS_kill, [parent, 0, 0, 0, 0, 0]),
                (libc::SYS_tgkill, [parent, parent, 0, 0, 0, 0]),
                (libc::SYS_tgkill, [own, own, number(libc::SIGKILL), 0, 0, 0]),
                (libc::SYS_rt_tgsigqueueinfo, [parent, parent, 0, 0, 0, 0]),
                (libc::SYS_prlimit64, [parent, 7, 0, 0, 0, 0]),
                (libc::SYS_prlimit64, [0, 7, 1, 0, 0, 0]),
                (
                    libc::SYS_prctl,
                    [number(libc::PR_SET_DUMPABLE), 1, 0, 0, 0, 0],
                ),
                (
                    libc::SYS_prctl,
                    [number(libc::PR_SET_PDEATHSIG), 0, 0, 0, 0, 0],
                ),
                (libc::SYS_mmap, [0, 4096, 7, 0x22, -1, 0]),
                (libc::SYS_mprotect, [0, 0, number(libc::PROT_EXEC), 0, 0, 0]),
                (
                    libc::SYS_fcntl,
                    [socket, number(libc::F_SETOWN), parent, 0, 0, 0],
                ),
                (libc::SYS_fchmod, [socket, 0, 0, 0, 0, 0]),
                (libc::SYS_fsetxattr, [socket, 0, 0, 0, 0, 0]),
                (libc::SYS_utimensat, [socket, 0, 0, 0, 0, 0]),
                (libc::SYS_bpf, [0; 6]),
                (libc::SYS_io_uring_setup, [0; 6]),
                (libc::SYS_seccomp, [0; 6]),
                (libc::SYS_ptrace, [0; 6]),
                (libc::SYS_sched_setaffinity, [parent, 0, 0, 0, 0, 0]),
                // Numbers that no kernel uses yet.
                (999, [0; 6]),
                #[cfg(target_arch = "x86_64")]
                // The x32 form of read(2).
                (0x4000_0000, [0; 6]),
            ];
            let before = refused_calls();
            for (call, arguments) in refused {
                let result = raw(*call, *arguments);
                assert_eq!(result, -libc::EPERM, "{call} {arguments:?}");
            }
            assert!(refused_calls() - before >= refused.len() as u64);
            // Refused, but not counted.
            let process = number(libc::SIGCHLD);
            for flags in [new_user, new_net, process] {
                let result = raw(libc::SYS_clone, [flags, 0, 0, 0, 0, 0]);
                assert_eq!(result, -libc::EPERM, "{flags:#x}");
            }
            // Not refused, but reported as missing, so that the C library uses clone(2).
            assert_eq!(raw(libc::SYS_clone3, [0; 6]), -libc::ENOSYS);
            // Netfilter's netlink still works, as far as the kernel supports it.
            let netfilter = number(libc::NETLINK_NETFILTER);
            let result = raw(libc::SYS_socket, [netlink, raw_socket, netfilter, 0, 0, 0]);
            assert!(result >= 0 || result == -libc::EPROTONOSUPPORT, "{result}");
            assert_eq!(
                raw(libc::SYS_setsockopt, [socket, 1, 9, 0, 0, 0]),
                -libc::EINVAL
            );
            // IPV6_TRANSPARENT, on a socket that is not IPv6.
            let result = raw(libc::SYS_setsockopt, [socket, ipv6, 75, 0, 0, 0]);
            assert!(
                [-libc::ENOPROTOOPT, -libc::EINVAL, -libc::EFAULT].contains(&result),
                "{result}"
            );
            assert_eq!(raw(libc::SYS_prlimit64, [0, 7, 0, 0, 0, 0]), 0);
            // The thread's own processors, none of which is given.
            assert_eq!(raw(libc::SYS_sched_setaffinity, [0; 6]), -libc::EINVAL);
            let mut kinds = Vec::new();
            while let Some(call) = next_refused_call() {
                kinds.push(call.number);
            }
            assert!(kinds.contains(&libc::SYS_socketpair), "{kinds:?}");
            // Each kind once.
            raw(libc::SYS_socketpair, [unix, stream, 0, 0, 0, 0]);
            assert_eq!(next_refused_call(), None);
        });
        inside.join().unwrap();
    }

    /// A panic that aborts must end the process, not hang in a call that is refused.
    #[test]
    fn a_process_inside_can_abort() {
        use std::os::unix::process::ExitStatusExt;
        if let Some(status) = in_own_process("a_process_inside_can_abort") {
            assert_eq!(status.signal(), Some(libc::SIGABRT), "{status}");
            return;
        }
        enter().unwrap();
        std::process::abort();
    }

    /// Threads with memory of their own start and end, and no call is refused.
    #[test]
    fn many_threads_start_inside() {
        if let Some(status) = in_own_process("many_threads_start_inside") {
            assert!(status.success(), "{status}");
            return;
        }
        enter().unwrap();
        for _ in 0..20 {
            let threads: Vec<_> = (0..8)
                .map(|number: usize| {
                    let thread = std::thread::Builder::new().name(format!("t {number}"));
                    let work = move || {
                        // Pieces from the thread's heap, which shrinks when they are freed.
                        let pieces: Vec<Vec<u8>> = (0..64).map(|_| vec![1; 100 << 10]).collect();
                        drop(pieces);
                        vec![number; 1 << 20].iter().sum::<usize>()
                    };
                    thread.spawn(work).unwrap()
                })
                .collect();
            for (number, thread) in threads.into_iter().enumerate() {
                assert_eq!(thread.join().unwrap(), number << 20);
            }
        }
        assert_eq!(next_refused_call(), None);
        assert_eq!(refused_calls(), 0);
    }

    #[test]
    fn landlock_is_there_where_the_kernel_has_it() {
        let version = raw(libc::SYS_landlock_create_ruleset, [0, 0, 1, 0, 0, 0]);
        let found = std::thread::spawn(|| enter().unwrap()).join().unwrap();
        match version {
            10.. => assert_eq!(found, Landlock::Full),
            1.. => assert_eq!(found, Landlock::Partial),
            _ => assert_eq!(found, Landlock::Absent),
        }
        // Without the list of calls, only Landlock restricts the process.
        let file = tempfile::NamedTempFile::new().unwrap();
        std::thread::spawn(move || {
            files::reach_what_the_resolver_reads();
            assert!(std::fs::read("/etc/passwd").is_ok());
            if version > 0 {
                assert!(is_refused(std::fs::read(file.path())));
                assert!(is_refused(std::fs::write("/etc/midspan-test", "")));
            }
        })
        .join()
        .unwrap();
    }

    #[test]
    fn the_resolver_reads_files_and_writes_none() {
        let inside = std::thread::spawn(|| {
            let directory = std::env::temp_dir();
            let file = directory.join(format!("midspan-sandbox-{}", std::process::id()));
            std::fs::write(&file, "here").unwrap();
            let landlock = enter_to_read_files().unwrap();
            assert!(!std::fs::read("/etc/passwd").unwrap().is_empty());
            if landlock != Landlock::Absent {
                assert!(is_refused(std::fs::read(&file)));
            }
            assert!(is_refused(std::fs::write(&file, "")));
            assert!(is_refused(
                std::fs::File::options().append(true).open(&file)
            ));
            let both = std::fs::File::options().read(true).write(true).open(&file);
            assert!(is_refused(both));
            assert!(is_refused(std::fs::remove_file(&file)));
            assert!(is_refused(Command::new("/bin/true").status()));
            assert!(UnixDatagram::unbound().is_ok());
            use std::net::ToSocketAddrs;
            assert!(("localhost", 1).to_socket_addrs().unwrap().next().is_some());
            file
        });
        let file = inside.join().unwrap();
        std::fs::remove_file(file).unwrap();
    }
}
