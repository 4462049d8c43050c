//! A relay in a process of its own, whose CPU time and memory can be measured alone.

use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Stdio};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use crate::{Failure, Shell, epoll_loop, tokio_loop};

/// Runs a relay on a free port until standard input ends; prints the port.
pub fn run(shell: Shell, servers: Vec<SocketAddr>) -> Result<(), Failure> {
    let threads = std::thread::available_parallelism()?.get();
    let mut address = SocketAddr::from(([0, 0, 0, 0], 0));
    for _ in 0..threads {
        let listener = listen(address)?;
        address = listener.local_addr()?;
        let servers = servers.clone();
        std::thread::spawn(move || match shell {
            Shell::Epoll => epoll_loop::run(listener, servers),
            Shell::Tokio => tokio_loop::run(listener, servers),
        });
    }
    println!("{}", address.port());
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM.nonblocking(), None)?;
    socket.set_reuse_port(true)?;
    socket.bind(&address.into())?;
    socket.listen(4096)?;
    Ok(socket.into())
}

/// A running relay; it is stopped when this value is dropped.
pub struct RelayProcess {
    child: Child,
    /// The port on which the relay listens, on every loopback address.
    pub port: u16,
}

impl RelayProcess {
    /// Starts a relay that connects its sessions to `servers` in turn.
    pub fn start(shell: Shell, servers: &[SocketAddr]) -> Result<Self, Failure> {
        let name = match shell {
            Shell::Epoll => "epoll",
            Shell::Tokio => "tokio",
        };
        let mut child = std::process::Command::new(std::env::current_exe()?)
            .args(["relay", name])
            .args(servers.iter().map(ToString::to_string))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        if let Some(output) = child.stdout.take() {
            BufReader::new(output).read_line(&mut line)?;
        }
        let port = line.trim().parse()?;
        Ok(Self { child, port })
    }

    /// CPU time of all threads, user and system.
    ///
    /// Read from `schedstat` in nanoseconds. `utime` and `stime` are parts of the same time,
    /// rounded to ticks.
    pub fn cpu_time(&self) -> Result<Duration, Failure> {
        let mut sum = 0;
        for thread in std::fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let text = std::fs::read_to_string(thread?.path().join("schedstat"))?;
            let first = text.split_whitespace().next().unwrap_or_default();
            sum += first.parse::<u64>()?;
        }
        Ok(Duration::from_nanos(sum))
    }

    /// Resident memory in bytes: the value of `VmRSS`, but exact (`VmRSS` is some pages behind).
    pub fn resident(&self) -> Result<u64, Failure> {
        let text = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", self.child.id()))?;
        let line = text.lines().find(|line| line.starts_with("Rss:"));
        let number = line.and_then(|line| line.split_whitespace().nth(1));
        Ok(number.ok_or("smaps_rollup has no Rss")?.parse::<u64>()? * 1024)
    }
}

impl Drop for RelayProcess {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
