//! One download.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use midspan_lab::capture::Capture;
use midspan_linux::process::RunningProgram;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::{Domain, Socket, Type};

use crate::Failure;
use crate::network::{Client, Family, Network, OUTER, PORT};
use crate::server::Content;
use crate::traffic::Traffic;

/// Time limit of a download.
const LIMIT: Duration = Duration::from_secs(90);
/// Time limit of the client's end after the download.
const GRACE: Duration = Duration::from_secs(10);

/// A download in which every byte equals the sent one.
#[derive(Debug, Clone)]
pub struct Download {
    /// Time from the start to the last byte.
    pub time: Duration,
    /// The traffic at the access router.
    pub traffic: Traffic,
}

/// Downloads `bytes` bytes with the stack behind the access router. `program` is the stack's
/// client, or `None` for the kernel's stack.
///
/// # Errors
/// The download does not finish, or a byte differs.
pub fn download(
    network: &Network,
    program: Option<&Path>,
    family: Family,
    bytes: usize,
) -> Result<Download, Failure> {
    let capture = Capture::start(&network.access, OUTER, |_| true)?;
    let start = Instant::now();
    let time = match (&network.client, program) {
        (Client::Kernel(client), _) => {
            let server = SocketAddr::new(family.server().parse()?, PORT);
            let mut stream = client.run(move || connect(server))??;
            stream.write_all(b"get")?;
            compare(&mut stream, bytes, start)?;
            start.elapsed()
        }
        (Client::Device(device), Some(program)) => {
            let mut command = Command::new(program);
            command
                .args([family.client(), family.server(), &PORT.to_string()])
                .stdin(Stdio::from(device.try_clone()?))
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
            let mut client = RunningProgram::new(network.access.spawn(command)?, GRACE);
            let output = client.child().stdout.take();
            let compared = compare(&mut output.ok_or("no standard output")?, bytes, start);
            let time = start.elapsed();
            let status = client.wait_for(GRACE);
            if !status.is_some_and(|status| status.success()) || compared.is_err() {
                return Err(reason(client, compared).into());
            }
            time
        }
        (Client::Device(_), None) => return Err("no program for the device".into()),
    };
    let traffic = Traffic::of(&capture.finish()?);
    Ok(Download { time, traffic })
}

fn connect(server: SocketAddr) -> Result<TcpStream, Failure> {
    let domain = match server.ip() {
        IpAddr::V4(_) => Domain::IPV4,
        IpAddr::V6(_) => Domain::IPV6,
    };
    let socket = Socket::new(domain, Type::STREAM, None)?;
    socket.connect_timeout(&server.into(), LIMIT)?;
    Ok(socket.into())
}

/// Reads to the end and compares with the server's data.
fn compare(from: &mut (impl Read + AsFd), bytes: usize, start: Instant) -> Result<(), Failure> {
    let mut expected = Content::default().take(bytes);
    let mut received = 0;
    let mut buffer = vec![0; 1 << 16];
    loop {
        let left = LIMIT.saturating_sub(start.elapsed());
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs())?,
            tv_nsec: left.subsec_nanos().into(),
        };
        let mut waited = [PollFd::new(&*from, PollFlags::IN)];
        if poll(&mut waited, Some(&timeout))? == 0 {
            return Err(format!("{received} of {bytes} bytes in {} s", LIMIT.as_secs()).into());
        }
        let length = match from.read(&mut buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            read => read?,
        };
        if length == 0 {
            break;
        }
        if let Some(place) = buffer[..length]
            .iter()
            .position(|byte| expected.next() != Some(*byte))
        {
            return Err(format!("byte {} differs", received + place).into());
        }
        received += length;
    }
    match received == bytes {
        true => Ok(()),
        false => Err(format!("{received} of {bytes} bytes").into()),
    }
}

/// Why a client failed, with its output on standard error.
fn reason(mut client: RunningProgram, compared: Result<(), Failure>) -> String {
    let mut output = String::new();
    let _ = client.child().kill();
    if let Some(mut errors) = client.child().stderr.take() {
        // The client has been killed, so the output is complete.
        let _ = errors.read_to_string(&mut output);
    }
    let what = compared.map_or_else(|failure| failure.to_string(), |()| "ended badly".to_owned());
    format!("{what}; the client: {}", output.trim())
}
