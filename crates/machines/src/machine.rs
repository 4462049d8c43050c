//! An emulated machine: QEMU without the help of the processor, a disk, a port for commands.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use crate::error::{Error, output};
use crate::image::Image;

/// What a machine may take from its start to its first command. Alone on its host it takes a minute or
/// two.
const LIMIT_OF_START: Duration = Duration::from_secs(20 * 60);
/// How much of a command's output is kept: its end.
const KEPT: usize = 64 << 10;

/// What a machine is made of.
#[derive(Debug, Clone)]
pub struct Parts<'a> {
    /// The disk with the system; it is not changed.
    pub image: &'a Image,
    /// A file with a file system that appears at the folder of the same name, if there is one.
    pub programs: Option<(&'a Path, &'a Path)>,
    /// Further arguments of the kernel.
    pub kernel_arguments: &'a str,
}

/// A running machine. It ends, as without power, when this value is dropped.
#[derive(Debug)]
pub struct Machine {
    release: &'static str,
    console: PathBuf,
    emulator: Child,
    port: BufReader<UnixStream>,
    /// The kernel's release, such as "6.1.0-40-amd64".
    pub kernel: String,
    commands: u64,
}

/// What a command did.
#[derive(Debug)]
pub struct Done {
    /// The exit status.
    pub status: i32,
    /// What it printed: the end, if that is much.
    pub printed: String,
}

/// Why a command has no result.
#[derive(Debug, PartialEq, Eq)]
pub enum Broken {
    /// It did not end in time.
    TooLong,
    /// The machine does not answer any more.
    Gone,
}

impl Machine {
    /// Makes an empty disk over that of the image, and starts a machine with it.
    pub fn new(parts: &Parts<'_>) -> Result<Self, Error> {
        let disk = parts.image.file("disk.qcow2");
        let _ = fs::remove_file(&disk);
        output(
            Command::new("qemu-img")
                .args([
                    "create",
                    "-q",
                    "-f",
                    "qcow2",
                    "-F",
                    "raw",
                    "-b",
                    "root.ext4",
                ])
                .arg(&disk),
        )?;
        Self::start(parts)
    }

    /// Starts a machine with the disk that the last one has left.
    pub fn start(parts: &Parts<'_>) -> Result<Self, Error> {
        let image = parts.image;
        let release = image.release.name();
        let console = image.file("console.log");
        let failed = |what: String| Error::Machine {
            release: release.to_owned(),
            what,
            console: console.clone(),
        };
        // A short name: those of sockets have at most 107 bytes.
        let folder = tempfile::tempdir().map_err(|error| failed(error.to_string()))?;
        let socket = folder.path().join("agent");
        let mut command = emulator(parts, &socket);
        let mut emulator = command
            .spawn()
            .map_err(|error| failed(format!("qemu-system-x86_64: {error}")))?;
        let start = Instant::now();
        let stream = loop {
            match UnixStream::connect(&socket) {
                Ok(stream) => break stream,
                Err(_) if start.elapsed() < Duration::from_secs(30) => {
                    thread::sleep(Duration::from_millis(50));
                }
                Err(error) => {
                    let _ = emulator.kill();
                    let _ = emulator.wait();
                    return Err(failed(format!("QEMU has no port for commands: {error}")));
                }
            }
        };
        let mut machine = Self {
            release,
            console: console.clone(),
            emulator,
            port: BufReader::new(stream),
            kernel: String::new(),
            commands: 0,
        };
        let until = Instant::now() + LIMIT_OF_START;
        loop {
            let line = machine
                .line(until)
                .map_err(|_| failed("it did not start".to_owned()))?;
            if let Some(kernel) = line.strip_prefix("ready ") {
                kernel.clone_into(&mut machine.kernel);
                break;
            }
        }
        if let Some((_, folder)) = parts.programs {
            let folder = folder.display();
            machine.must(&format!(
                "mkdir --parents '{folder}' && mount /dev/vdb '{folder}'"
            ))?;
        }
        Ok(machine)
    }

    /// Runs a command of the shell `bash` as root. What it leaves running must have another
    /// standard output.
    pub fn run(&mut self, command: &str, limit: Duration) -> Result<Done, Broken> {
        self.commands += 1;
        let number = self.commands;
        let request = format!("{number} {}\n", BASE64_STANDARD.encode(command));
        let written = self.port.get_mut().write_all(request.as_bytes());
        written.map_err(|_| Broken::Gone)?;
        let until = Instant::now() + limit;
        let end = format!("end {number} ");
        let mut printed = String::new();
        loop {
            let line = self.line(until)?;
            if let Some(status) = line.strip_prefix(&end) {
                let status = status.parse().map_err(|_| Broken::Gone)?;
                return Ok(Done { status, printed });
            }
            if let Some(line) = line.strip_prefix(' ') {
                printed.push_str(line);
                printed.push('\n');
            }
            if printed.len() > 2 * KEPT {
                let cut = printed.floor_char_boundary(printed.len() - KEPT);
                printed.drain(..cut);
            }
        }
    }

    /// Runs a short command that cannot fail on a working machine.
    pub fn must(&mut self, command: &str) -> Result<String, Error> {
        let what = match self.run(command, Duration::from_secs(300)) {
            Ok(done) if done.status == 0 => return Ok(done.printed),
            Ok(done) => format!("`{command}` failed ({}): {}", done.status, done.printed),
            Err(broken) => format!("`{command}`: {broken:?}"),
        };
        Err(self.failed(what))
    }

    /// Sends a command whose end is not waited for.
    pub fn send(&mut self, command: &str) -> Result<(), Error> {
        self.commands += 1;
        let request = format!("{} {}\n", self.commands, BASE64_STANDARD.encode(command));
        let written = self.port.get_mut().write_all(request.as_bytes());
        written.map_err(|error| self.failed(error.to_string()))
    }

    /// Ends the machine as if its power failed: what its disk has not got is lost.
    pub fn cut_power(mut self) {
        self.end();
    }

    fn failed(&self, what: String) -> Error {
        Error::Machine {
            release: self.release.to_owned(),
            what,
            console: self.console.clone(),
        }
    }

    fn end(&mut self) {
        let _ = self.emulator.kill();
        let _ = self.emulator.wait();
    }

    /// The next line from the machine.
    fn line(&mut self, until: Instant) -> Result<String, Broken> {
        let mut line = Vec::new();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Broken::TooLong);
            }
            let limit = self.port.get_ref().set_read_timeout(Some(left));
            limit.map_err(|_| Broken::Gone)?;
            match self.port.read_until(b'\n', &mut line) {
                Ok(_) if line.ends_with(b"\n") => {
                    line.pop();
                    return Ok(String::from_utf8_lossy(&line).into_owned());
                }
                Ok(_) => return Err(Broken::Gone),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return Err(Broken::Gone),
            }
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.end();
    }
}

/// QEMU, which emulates all of a machine: it runs where there is no virtualization, and is slow.
fn emulator(parts: &Parts<'_>, socket: &Path) -> Command {
    let image = parts.image;
    let mut command = Command::new("nice");
    command
        .args(["-n", "10", "qemu-system-x86_64"])
        .args(["-nodefaults", "-no-user-config", "-display", "none"])
        // Each of the two processors has a thread of its own.
        .args(["-machine", "q35", "-accel", "tcg,thread=multi"])
        .args(["-smp", "2", "-m", "4096", "-cpu", "max,la57=off"])
        // No connection leaves the machine.
        .args(["-nic", "none", "-no-reboot"])
        .args(["-device", "virtio-rng-pci", "-device", "virtio-serial-pci"])
        .arg("-chardev")
        .arg(format!(
            "socket,id=agent,server=on,wait=off,path={}",
            socket.display()
        ))
        .args(["-device", "virtserialport,chardev=agent,name=midspan.agent"])
        .arg("-serial")
        .arg(format!("file:{}", image.file("console.log").display()))
        .arg("-kernel")
        .arg(image.file("kernel"))
        .arg("-initrd")
        .arg(image.file("initrd"))
        .arg("-append")
        // The emulated processor's own clock has no steady frequency. Nothing watches for processors
        // that are busy for long.
        .arg(format!(
            "root=/dev/vda rw console=ttyS0 panic=-1 tsc=unstable clocksource=hpet mitigations=off \
             nowatchdog rcupdate.rcu_cpu_stall_suppress=1 {}",
            parts.kernel_arguments
        ))
        .arg("-drive")
        .arg(format!(
            "file={},if=virtio,format=qcow2",
            image.file("disk.qcow2").display()
        ));
    if let Some((file, _)) = parts.programs {
        // What tests write there is forgotten.
        let file = file.display();
        command
            .arg("-drive")
            .arg(format!("file={file},if=virtio,format=raw,snapshot=on"));
    }
    command.stdin(Stdio::null());
    command
}
