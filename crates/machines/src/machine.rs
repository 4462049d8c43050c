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
use serde_json::json;
use tempfile::TempDir;

use crate::error::{Error, output};
use crate::image::Image;
use crate::programs::Programs;

/// What a machine may take from its start to its first command. Alone on its host it takes a minute or
/// two.
pub const LIMIT_OF_START: Duration = Duration::from_secs(20 * 60);
/// How much of a command's output is kept: its end.
const KEPT: usize = 64 << 10;

/// What the machine that runs, or ran last, has printed on its console.
pub const CONSOLE: &str = "console.log";
/// The disk of the machine that runs.
const DISK: &str = "disk.qcow2";
/// The names of QEMU's sockets: for commands to the machine, and for those to QEMU itself.
const AGENT: &str = "agent";
const MONITOR: &str = "monitor";
/// The name of the saved state of a machine that has booted.
const SAVED: &str = "booted";

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

impl<'a> Parts<'a> {
    /// A machine with the disk of the programs.
    pub fn of(image: &'a Image, programs: &'a Programs) -> Self {
        Self {
            image,
            programs: Some((programs.disk.as_path(), programs.workspace.as_path())),
            kernel_arguments: "",
        }
    }
}

/// A running machine. It ends, as without power, when this value is dropped.
#[derive(Debug)]
pub struct Machine {
    release: &'static str,
    console: PathBuf,
    emulator: Child,
    port: BufReader<UnixStream>,
    /// The folder of its sockets.
    sockets: TempDir,
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

/// From where a machine starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Start {
    /// From its disk, as with a power button.
    Boot,
    /// From the saved state of a machine that has booted.
    Saved,
}

impl Machine {
    /// Starts a machine with a new disk. Without further arguments of the kernel, it continues from the
    /// saved state of a machine that has booted: an emulated machine boots for minutes. A boot may take
    /// as long as `limit`.
    pub fn new(parts: &Parts<'_>, limit: Duration) -> Result<Self, Error> {
        let disk = parts.image.file(DISK);
        if parts.kernel_arguments.is_empty() {
            let booted = booted(parts)?;
            fs::copy(&booted, &disk).map_err(Error::file(&booted))?;
            return Self::begin(parts, &disk, Start::Saved, limit);
        }
        empty_disk(&disk)?;
        Self::start(parts, limit)
    }

    /// Starts a machine with the disk that the last one has left.
    pub fn start(parts: &Parts<'_>, limit: Duration) -> Result<Self, Error> {
        Self::begin(parts, &parts.image.file(DISK), Start::Boot, limit)
    }

    fn begin(parts: &Parts<'_>, disk: &Path, start: Start, limit: Duration) -> Result<Self, Error> {
        let mut machine = Self::launch(parts, disk, start, limit)?;
        if let Some((_, folder)) = parts.programs {
            // What tests write there is forgotten.
            machine.must(&format!(
                "mkdir --parents '{folder}' /run/programs && modprobe overlay &&
                 mount -o ro /dev/vdb /run/programs && mkdir --parents /run/written/upper /run/written/work &&
                 mount -t overlay overlay '{folder}' \
                     -o lowerdir=/run/programs,upperdir=/run/written/upper,workdir=/run/written/work",
                folder = folder.display(),
            ))?;
        }
        Ok(machine)
    }

    fn launch(
        parts: &Parts<'_>,
        disk: &Path,
        start: Start,
        limit: Duration,
    ) -> Result<Self, Error> {
        let image = parts.image;
        let release = image.release.name();
        let console = image.file(CONSOLE);
        let failed = |what: String| Error::Machine {
            release: release.to_owned(),
            what,
            console: console.clone(),
        };
        // A short name: those of sockets have at most 107 bytes.
        let folder = tempfile::tempdir().map_err(|error| failed(error.to_string()))?;
        let mut command = Command::new("nice");
        command.args(["-n", "19", "qemu-system-x86_64"]);
        command.args(emulator(parts, disk, folder.path()));
        if start == Start::Saved {
            command.args(["-loadvm", SAVED]);
        }
        let mut emulator = command
            .stdin(Stdio::null())
            .spawn()
            .map_err(|error| failed(format!("qemu-system-x86_64: {error}")))?;
        let begun = Instant::now();
        let stream = loop {
            match UnixStream::connect(folder.path().join(AGENT)) {
                Ok(stream) => break stream,
                Err(_) if begun.elapsed() < Duration::from_secs(30) => {
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
            sockets: folder,
            kernel: String::new(),
            commands: 0,
        };
        if start == Start::Boot {
            let until = Instant::now() + limit.min(LIMIT_OF_START);
            let waited = |_| failed("it did not start".to_owned());
            while !machine.line(until).map_err(waited)?.starts_with("ready") {}
        }
        machine.kernel = machine.must("uname --kernel-release")?.trim().to_owned();
        Ok(machine)
    }

    /// Saves the state on the disk, and ends the machine.
    fn save(mut self) -> Result<(), Error> {
        let begun = Instant::now();
        let mut monitor = loop {
            match UnixStream::connect(self.sockets.path().join(MONITOR)) {
                Ok(stream) => break BufReader::new(stream),
                Err(_) if begun.elapsed() < Duration::from_secs(30) => {
                    thread::sleep(Duration::from_millis(50));
                }
                Err(error) => return Err(self.failed(format!("QEMU has no monitor: {error}"))),
            }
        };
        let mut ask = |request: serde_json::Value| -> io::Result<serde_json::Value> {
            writeln!(monitor.get_mut(), "{request}")?;
            loop {
                let mut line = String::new();
                if monitor.read_line(&mut line)? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                let answer: serde_json::Value = serde_json::from_str(&line)?;
                // The others are events and the greeting.
                if answer.get("return").is_some() || answer.get("error").is_some() {
                    return Ok(answer);
                }
            }
        };
        let save = json!({
            "execute": "human-monitor-command",
            "arguments": {"command-line": format!("savevm {SAVED}")},
        });
        let saved = ask(json!({"execute": "qmp_capabilities"})).and_then(|_| ask(save));
        match saved {
            // An error is a text; without one, the text is empty.
            Ok(answer) if answer["return"] == "" => {}
            Ok(answer) => return Err(self.failed(format!("its state cannot be saved: {answer}"))),
            Err(error) => return Err(self.failed(format!("its state cannot be saved: {error}"))),
        }
        // Its answer may get lost.
        let _ = ask(json!({"execute": "quit"}));
        let ended = self.emulator.wait();
        ended
            .map(drop)
            .map_err(|error| self.failed(error.to_string()))
    }

    /// Runs a command of the shell `bash` as root. What it leaves running must have another
    /// standard output.
    pub fn run(&mut self, command: &str, limit: Duration) -> Result<Done, Broken> {
        self.request(command)?;
        let until = Instant::now() + limit;
        let end = format!("end {} ", self.commands);
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

    /// Begins a command, and waits for the first line that it prints, not for its end.
    pub fn run_until_first_line(&mut self, command: &str, limit: Duration) -> Result<(), Broken> {
        self.request(command)?;
        self.line(Instant::now() + limit).map(drop)
    }

    /// Sends a command with the next number.
    fn request(&mut self, command: &str) -> Result<(), Broken> {
        self.commands += 1;
        let request = format!("{} {}\n", self.commands, BASE64_STANDARD.encode(command));
        let written = self.port.get_mut().write_all(request.as_bytes());
        written.map_err(|_| Broken::Gone)
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

/// The disk with the saved state of a machine that has booted. It is made unless it is there.
fn booted(parts: &Parts<'_>) -> Result<PathBuf, Error> {
    let disk = parts.image.file("booted.qcow2");
    let made = parts.image.file("booted");
    let version = output(Command::new("qemu-system-x86_64").arg("--version"))?;
    let arguments = emulator(parts, &disk, Path::new("."));
    let state = format!(
        "{} {arguments:?} {}",
        parts.image.recipe,
        String::from_utf8_lossy(&version)
    );
    if fs::read_to_string(&made).is_ok_and(|found| found == state) {
        return Ok(disk);
    }
    empty_disk(&disk)?;
    let mut machine = Machine::launch(parts, &disk, Start::Boot, LIMIT_OF_START)?;
    machine.must("sync; udevadm settle; modprobe overlay")?;
    machine.save()?;
    fs::write(&made, state).map_err(Error::file(&made))?;
    Ok(disk)
}

/// Makes an empty disk over that of the image, in the same folder.
fn empty_disk(disk: &Path) -> Result<(), Error> {
    let _ = fs::remove_file(disk);
    output(
        Command::new("qemu-img")
            .args(["create", "-q", "-f", "qcow2", "-F", "raw"])
            .args(["-b", "root.ext4"])
            .arg(disk),
    )
    .map(drop)
}

/// The arguments of QEMU, which emulates all of a machine: it runs where there is no virtualization,
/// and is slow. Its sockets are in the folder `sockets`.
fn emulator(parts: &Parts<'_>, disk: &Path, sockets: &Path) -> Vec<String> {
    let image = parts.image;
    let socket = |id: &str, name: &str| {
        let path = sockets.join(name);
        format!("socket,id={id},server=on,wait=off,path={}", path.display())
    };
    let file = |name: &str| image.file(name).display().to_string();
    let mut arguments: Vec<String> = [
        "-nodefaults",
        "-no-user-config",
        "-display",
        "none",
        "-machine",
        "q35",
        // Each of the two processors has a thread of its own.
        "-accel",
        "tcg,thread=multi",
        "-smp",
        "2",
        "-m",
        "4096",
        "-cpu",
        "max,la57=off",
        // No connection leaves the machine.
        "-nic",
        "none",
        "-no-reboot",
        "-device",
        "virtio-rng-pci",
        "-device",
        "virtio-serial-pci",
        "-device",
        "virtserialport,chardev=agent,name=midspan.agent",
        "-mon",
        "chardev=monitor,mode=control",
    ]
    .map(str::to_owned)
    .into();
    for (option, value) in [
        ("-chardev", socket("agent", AGENT)),
        ("-chardev", socket("monitor", MONITOR)),
        ("-serial", format!("file:{}", file(CONSOLE))),
        ("-kernel", file("kernel")),
        ("-initrd", file("initrd")),
        (
            "-drive",
            format!("file={},if=virtio,format=qcow2", disk.display()),
        ),
        // The emulated processor's own clock has no steady frequency. Nothing watches for processors
        // that are busy for long. There is no login, and unused drivers cost minutes.
        (
            "-append",
            format!(
                "root=/dev/vda rw console=ttyS0 panic=-1 tsc=unstable clocksource=hpet \
                 mitigations=off nowatchdog rcupdate.rcu_cpu_stall_suppress=1 systemd.getty_auto=0 \
                 module_blacklist=ahci,i2c_i801,iTCO_wdt,kvm_amd,powernow_k8,psmouse {}",
                parts.kernel_arguments
            ),
        ),
    ] {
        arguments.extend([option.to_owned(), value]);
    }
    if let Some((file, _)) = parts.programs {
        let drive = format!("file={},if=virtio,format=raw,readonly=on", file.display());
        arguments.extend(["-drive".to_owned(), drive]);
    }
    arguments
}
