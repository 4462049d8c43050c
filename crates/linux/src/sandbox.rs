//! System calls that a process gives up for good (seccomp(2)).
//!
//! A list of what is forbidden, not of what is allowed: libraries and kernels change which calls
//! they use for the same job, and a call that is refused by mistake would end sessions. Refused
//! calls return `EPERM`.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};
use thiserror::Error;

/// System calls cannot be given up.
#[derive(Debug, Error)]
#[error("cannot give up system calls: {0}")]
pub struct SandboxError(Box<dyn std::error::Error + Send + Sync>);

impl SandboxError {
    fn new<E: std::error::Error + Send + Sync + 'static>(error: E) -> Self {
        Self(Box::new(error))
    }
}

/// Forbidden on every machine.
const FORBIDDEN: &[libc::c_long] = &[
    // Running programs, and looking into other processes.
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_kcmp,
    // Files and what is mounted.
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_unlinkat,
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_renameat2,
    libc::SYS_fchmodat,
    libc::SYS_fchownat,
    libc::SYS_truncate,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_quotactl,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    // The kernel.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_reboot,
    libc::SYS_syslog,
    libc::SYS_acct,
    libc::SYS_personality,
    // A ring of requests would be a way around this list.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // Other namespaces, users, keys, clocks, names.
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setgroups,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_capset,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_settimeofday,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
];

/// The older forms of some of them.
#[cfg(target_arch = "x86_64")]
const FORBIDDEN_HERE: &[libc::c_long] = &[
    libc::SYS_open,
    libc::SYS_creat,
    libc::SYS_unlink,
    libc::SYS_rmdir,
    libc::SYS_mkdir,
    libc::SYS_mknod,
    libc::SYS_link,
    libc::SYS_symlink,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_kexec_file_load,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_modify_ldt,
];
#[cfg(not(target_arch = "x86_64"))]
const FORBIDDEN_HERE: &[libc::c_long] = &[];

/// The same calls with another ABI's numbers: `__X32_SYSCALL_BIT`, and the numbers that x32 has
/// for itself of `execve`, `ptrace`, `rt_sigqueueinfo`, `kexec_load`, `process_vm_…`, `execveat`.
#[cfg(target_arch = "x86_64")]
fn other_numbers() -> impl Iterator<Item = libc::c_long> {
    const BIT: libc::c_long = 0x4000_0000;
    let own = [520, 521, 524, 528, 539, 540, 545];
    let forbidden = FORBIDDEN.iter().chain(FORBIDDEN_HERE).copied();
    forbidden.chain(own).map(|number| number | BIT)
}
#[cfg(not(target_arch = "x86_64"))]
fn other_numbers() -> impl Iterator<Item = libc::c_long> {
    std::iter::empty()
}

/// Gives up, for the calling thread and those that it starts, to run programs, to open, make or
/// change files, to look into other processes, to change users, mounts, namespaces or the kernel,
/// and to open sockets other than of TCP/IP and netlink. Descriptors that are open stay so. Nothing
/// takes it back.
///
/// # Errors
/// The kernel has no seccomp filters, or not for this machine.
pub fn enter() -> Result<(), SandboxError> {
    let mut rules = forbidden();
    let families = [libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
    rules.insert(libc::SYS_socket, vec![other_families(&families)?]);
    apply(rules)
}

/// As [`enter`], but files may be opened to be read, and local sockets be used: what the system's
/// resolver needs.
///
/// # Errors
/// As [`enter`].
pub fn enter_to_read_files() -> Result<(), SandboxError> {
    let mut rules = forbidden();
    let families = [
        libc::AF_INET,
        libc::AF_INET6,
        libc::AF_NETLINK,
        libc::AF_UNIX,
    ];
    rules.insert(libc::SYS_socket, vec![other_families(&families)?]);
    rules.insert(libc::SYS_openat, writing(2)?);
    #[cfg(target_arch = "x86_64")]
    rules.insert(libc::SYS_open, writing(1)?);
    apply(rules)
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn forbidden() -> Rules {
    FORBIDDEN
        .iter()
        .chain(FORBIDDEN_HERE)
        .copied()
        .chain(other_numbers())
        // No rule: whatever the arguments are.
        .map(|number| (number, Vec::new()))
        .collect()
}

fn apply(rules: Rules) -> Result<(), SandboxError> {
    let architecture = TargetArch::try_from(std::env::consts::ARCH).map_err(SandboxError::new)?;
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        SeccompAction::Errno(libc::EPERM.cast_unsigned()),
        architecture,
    );
    let program: BpfProgram = filter
        .and_then(TryInto::try_into)
        .map_err(SandboxError::new)?;
    seccompiler::apply_filter(&program).map_err(SandboxError::new)
}

/// Opening a file for anything but reading; the flags are this argument of the call.
fn writing(argument: u8) -> Result<Vec<SeccompRule>, SandboxError> {
    // `O_TMPFILE` needs one of the first.
    let refused = [
        (libc::O_ACCMODE, libc::O_WRONLY),
        (libc::O_ACCMODE, libc::O_RDWR),
        (libc::O_ACCMODE, libc::O_ACCMODE),
        (libc::O_CREAT, libc::O_CREAT),
        (libc::O_TRUNC, libc::O_TRUNC),
    ];
    refused
        .into_iter()
        .map(|(mask, value)| {
            let equal = SeccompCmpOp::MaskedEq(u64::from(mask.cast_unsigned()));
            let value = u64::from(value.cast_unsigned());
            let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, equal, value);
            condition
                .and_then(|condition| SeccompRule::new(vec![condition]))
                .map_err(SandboxError::new)
        })
        .collect()
}

/// Sockets of other families.
fn other_families(allowed: &[i32]) -> Result<SeccompRule, SandboxError> {
    let conditions: Result<Vec<_>, _> = allowed
        .iter()
        .map(|family| {
            let family = u64::from(family.cast_unsigned());
            SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, family)
        })
        .collect();
    conditions
        .and_then(SeccompRule::new)
        .map_err(SandboxError::new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::ErrorKind;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixDatagram;
    use std::process::Command;

    fn is_refused<T>(result: std::io::Result<T>) -> bool {
        result.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
    }

    /// The filter belongs to the thread, so a thread of its own keeps the other tests as they are.
    #[test]
    fn inside_no_program_runs_and_no_file_opens() {
        let program = std::env::current_exe().unwrap();
        let inside = std::thread::spawn(move || {
            let before = std::fs::File::open("/dev/null").unwrap();
            enter().unwrap();
            assert!(rustix::thread::no_new_privs().unwrap());
            // Both ways of starting a program: fork and exec, and exec in place.
            assert!(is_refused(Command::new(&program).arg("--help").status()));
            use std::os::unix::process::CommandExt;
            let error = Command::new(&program).arg("--help").exec();
            assert_eq!(error.kind(), ErrorKind::PermissionDenied);
            assert!(is_refused(std::fs::read("/proc/self/status")));
            assert!(is_refused(std::fs::write("/tmp/midspan-sandbox", "")));
            assert!(is_refused(UnixDatagram::unbound()));
            assert!(before.metadata().is_ok());
            // What a relay does goes on, in threads started later too.
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

    #[test]
    fn the_resolver_reads_files_and_writes_none() {
        let inside = std::thread::spawn(|| {
            let directory = std::env::temp_dir();
            let file = directory.join(format!("midspan-sandbox-{}", std::process::id()));
            std::fs::write(&file, "here").unwrap();
            enter_to_read_files().unwrap();
            assert_eq!(std::fs::read(&file).unwrap(), b"here");
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
