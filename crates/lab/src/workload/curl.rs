//! Downloads by curl: one file, a page of several objects, requests and responses in turn.

use std::fs;
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use midspan_linux::namespace::NetworkNamespace;
use midspan_units::TimeSpan;
use serde::Deserialize;

use super::web_server::Files;
use crate::LabError;
use crate::error::at;
use crate::programs::Program;

/// curl's report of one transfer (`--write-out '%{json}'`), in seconds and bytes.
#[derive(Debug, Clone, Copy, Deserialize)]
struct Transfer {
    http_code: u32,
    size_download: u64,
    time_starttransfer: f64,
    time_total: f64,
}

/// The times of one file's transfer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Transferred {
    /// From the start to the first byte of the answer.
    pub first_byte: TimeSpan,
    /// From the start to the last byte.
    pub completion: TimeSpan,
}

impl From<Transfer> for Transferred {
    fn from(transfer: Transfer) -> Self {
        Self {
            first_byte: seconds(transfer.time_starttransfer),
            completion: seconds(transfer.time_total),
        }
    }
}

/// Downloads one file and compares it with the file on the server.
pub fn download(
    client: &NetworkNamespace,
    to: SocketAddr,
    size: u64,
    files: &Files,
    folder: &Path,
    limit: Duration,
) -> Result<Transferred, LabError> {
    let received = folder.join("received.bin");
    let url = url(to, size);
    let arguments = vec!["--output".into(), received.display().to_string(), url];
    let transfer = run_one(client, arguments, limit)?;
    check(transfer, size)?;
    compare(&files.path(size), &received)?;
    fs::remove_file(&received).map_err(at(&received))?;
    Ok(transfer.into())
}

/// Uploads a file and compares it with the file that the server stored at `stored`.
pub fn upload(
    client: &NetworkNamespace,
    to: SocketAddr,
    size: u64,
    files: &Files,
    stored: &Path,
    limit: Duration,
) -> Result<Transferred, LabError> {
    let file = files.path(size);
    let name = stored.file_name().unwrap_or_default().display();
    let arguments = vec![
        "--output".into(),
        "/dev/null".into(),
        "--upload-file".into(),
        file.display().to_string(),
        format!("http://{to}{}{name}", super::web_server::UPLOADS),
    ];
    let transfer = run_one(client, arguments, limit)?;
    if !matches!(transfer.http_code, 201 | 204) {
        return Err(failed(format!(
            "status {} instead of 201",
            transfer.http_code
        )));
    }
    compare(&file, stored)?;
    fs::remove_file(stored).map_err(at(stored))?;
    Ok(transfer.into())
}

/// Loads a page of `objects` files of one size over at most `parallel` connections; returns the
/// time from the start of curl to its end.
pub fn page(
    client: &NetworkNamespace,
    to: SocketAddr,
    size: u64,
    objects: u32,
    parallel: u32,
    limit: Duration,
) -> Result<TimeSpan, LabError> {
    let mut arguments: Vec<String> = vec![
        "--parallel".into(),
        "--parallel-immediate".into(),
        "--parallel-max".into(),
        parallel.to_string(),
    ];
    for object in 0..objects {
        arguments.extend(["--output".into(), "/dev/null".into()]);
        arguments.push(format!("{}?{object}", url(to, size)));
    }
    let start = Instant::now();
    let transfers = run(client, arguments, limit)?;
    let elapsed = start.elapsed();
    if transfers.len() != objects as usize {
        return Err(unreadable(format!(
            "{} transfers instead of {objects}",
            transfers.len()
        )));
    }
    transfers
        .iter()
        .try_for_each(|transfer| check(*transfer, size))?;
    Ok(elapsed.into())
}

/// Requests a file `count` times in turn over one connection. Returns the time of each request
/// except the first, which also opens the connection.
pub fn request_response(
    client: &NetworkNamespace,
    to: SocketAddr,
    size: u64,
    count: u32,
    limit: Duration,
) -> Result<Vec<TimeSpan>, LabError> {
    let mut arguments = Vec::new();
    for request in 0..=count {
        arguments.extend(["--output".into(), "/dev/null".into()]);
        arguments.push(format!("{}?{request}", url(to, size)));
    }
    let transfers = run(client, arguments, limit)?;
    transfers
        .iter()
        .try_for_each(|transfer| check(*transfer, size))?;
    Ok(transfers
        .iter()
        .skip(1)
        .map(|transfer| seconds(transfer.time_total))
        .collect())
}

fn url(to: SocketAddr, size: u64) -> String {
    format!("http://{to}/{}", Files::name(size))
}

fn run_one(
    client: &NetworkNamespace,
    arguments: Vec<String>,
    limit: Duration,
) -> Result<Transfer, LabError> {
    let transfers = run(client, arguments, limit)?;
    match transfers[..] {
        [transfer] => Ok(transfer),
        _ => Err(unreadable(format!(
            "{} transfers instead of one",
            transfers.len()
        ))),
    }
}

fn run(
    client: &NetworkNamespace,
    arguments: Vec<String>,
    limit: Duration,
) -> Result<Vec<Transfer>, LabError> {
    let mut command = Program::Curl.command()?;
    // --disable: no personal .curlrc; --noproxy: no proxy from the environment.
    command
        .args([
            "--disable",
            "--noproxy",
            "*",
            "--silent",
            "--show-error",
            "--globoff",
        ])
        .args(["--max-time", &limit.as_secs().max(1).to_string()])
        .args(["--write-out", "%{json}\n"])
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let output = client
        .spawn(command)?
        .wait_with_output()
        .map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(failed(reason));
    }
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).map_err(|error| unreadable(error.to_string())))
        .collect()
}

fn check(transfer: Transfer, size: u64) -> Result<(), LabError> {
    if transfer.http_code != 200 || transfer.size_download != size {
        return Err(failed(format!(
            "status {} with {} bytes instead of 200 with {size}",
            transfer.http_code, transfer.size_download
        )));
    }
    Ok(())
}

fn compare(served: &Path, received: &Path) -> Result<(), LabError> {
    let open = |path: &Path| {
        fs::File::open(path)
            .map(std::io::BufReader::new)
            .map_err(at(path))
    };
    let (mut a, mut b) = (open(served)?, open(received)?);
    let (mut block_a, mut block_b) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    let mut offset = 0;
    loop {
        let n = read_full(&mut a, &mut block_a).map_err(at(served))?;
        let m = read_full(&mut b, &mut block_b).map_err(at(received))?;
        if block_a[..n] != block_b[..m] {
            return Err(LabError::Corrupted {
                flow: file_name(served),
                detail: format!("within 64 KiB after byte {offset}"),
            });
        }
        if n == 0 {
            return Ok(());
        }
        offset += n;
    }
}

fn read_full(file: &mut impl Read, block: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < block.len() {
        match file.read(&mut block[filled..])? {
            0 => break,
            n => filled += n,
        }
    }
    Ok(filled)
}

fn file_name(path: &Path) -> String {
    PathBuf::from(path.file_name().unwrap_or_default())
        .display()
        .to_string()
}

fn seconds(value: f64) -> TimeSpan {
    Duration::try_from_secs_f64(value)
        .unwrap_or_default()
        .into()
}

fn failed(reason: String) -> LabError {
    LabError::Program {
        program: "curl".into(),
        reason,
    }
}

fn unreadable(reason: String) -> LabError {
    LabError::Output {
        program: "curl",
        reason,
    }
}
