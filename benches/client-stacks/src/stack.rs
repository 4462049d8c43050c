//! The stacks, and how their clients are built.

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::ValueEnum;

/// The folder with the clients' sources.
const CLIENTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/clients");

/// A TCP/IP stack.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stack {
    /// The kernel's stack.
    Linux,
    /// lwIP as Debian packages it.
    Lwip,
    /// gVisor's netstack with its defaults.
    Gvisor,
    /// smoltcp with `alloc`: its buffer for reassembly grows.
    Smoltcp,
    /// smoltcp without `alloc`, with its default buffer for reassembly: 1500 bytes.
    SmoltcpFixed,
    /// smoltcp without `alloc`, with the largest useful buffer: 65,535 bytes.
    SmoltcpEnlarged,
}

/// A stack that can be measured.
#[derive(Debug, Clone)]
pub struct Ready {
    /// The stack's version.
    pub version: String,
    /// The stack's client; `None` for the kernel's stack, which needs none.
    pub program: Option<PathBuf>,
}

impl Stack {
    /// The name in tables and records.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Linux => "Linux",
            Self::Lwip => "lwIP",
            Self::Gvisor => "gVisor",
            Self::Smoltcp => "smoltcp",
            Self::SmoltcpFixed => "smoltcp, buffer 1500 B",
            Self::SmoltcpEnlarged => "smoltcp, buffer 65535 B",
        }
    }

    /// Builds the stack's client in `folder`.
    ///
    /// # Errors
    /// The reason why the stack cannot be measured.
    pub fn prepare(self, folder: &Path) -> Result<Ready, String> {
        let program = folder.join(format!("{self:?}").to_lowercase());
        let version = match self {
            Self::Linux => {
                let release = rustix::system::uname().release().to_string_lossy().into();
                return Ok(Ready {
                    version: release,
                    program: None,
                });
            }
            Self::Lwip => lwip(&program)?,
            Self::Gvisor => gvisor(&program)?,
            Self::Smoltcp => smoltcp(folder, &program, None)?,
            Self::SmoltcpFixed => smoltcp(folder, &program, Some(1500))?,
            Self::SmoltcpEnlarged => smoltcp(folder, &program, Some(65_535))?,
        };
        Ok(Ready {
            version,
            program: Some(program),
        })
    }
}

/// Runs a tool and returns its standard output.
fn run(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .map_err(|error| format!("{name}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let last = errors.lines().rfind(|line| !line.trim().is_empty());
    Err(format!("{name}: {}", last.unwrap_or("it failed").trim()))
}

fn lwip(program: &Path) -> Result<String, String> {
    let ask = |question: &[&str]| run(Command::new("pkg-config").args(question).arg("lwip"));
    let version = ask(&["--modversion"])?;
    let flags = ask(&["--cflags", "--libs"])?;
    let flags: Vec<&str> = flags.split_whitespace().collect();
    let mut command = Command::new("cc");
    command
        .args(["-std=c11", "-D_DEFAULT_SOURCE", "-O2", "-o"])
        .arg(program)
        .arg(Path::new(CLIENTS).join("lwip/client.c"))
        .args(&flags);
    // If lwIP is not installed in the system's folders, the client has to find the library there at
    // run time too.
    for folder in flags.iter().filter_map(|flag| flag.strip_prefix("-L")) {
        command.arg(format!("-Wl,-rpath,{folder}"));
    }
    run(&mut command)?;
    Ok(version)
}

fn gvisor(program: &Path) -> Result<String, String> {
    let folder = Path::new(CLIENTS).join("gvisor");
    let go = || {
        let mut command = Command::new("go");
        command.current_dir(&folder);
        command
    };
    run(go().args(["build", "-o"]).arg(program).arg("."))?;
    run(go().args(["list", "-m", "-f", "{{.Version}}", "gvisor.dev/gvisor"]))
}

/// The size of smoltcp's buffer is chosen when it is compiled.
fn smoltcp(folder: &Path, program: &Path, buffer: Option<usize>) -> Result<String, String> {
    const NAME: &str = "smoltcp-client";
    let cargo = || {
        let mut command = Command::new("cargo");
        command.current_dir(CLIENTS);
        command
    };
    let target = folder.join("smoltcp-target");
    let mut command = cargo();
    command
        .args(["build", "--locked", "--package", "client-stacks"])
        .args(["--bin", NAME, "--no-default-features", "--target-dir"])
        .arg(&target);
    match buffer {
        Some(size) => command.env("SMOLTCP_REASSEMBLY_BUFFER_SIZE", size.to_string()),
        None => command.args(["--features", "growing-reassembly"]),
    };
    run(&mut command)?;
    std::fs::copy(target.join("debug").join(NAME), program)
        .map_err(|error| format!("{NAME}: {error}"))?;
    let name = run(cargo().args(["pkgid", "--package", "smoltcp"]))?;
    let version = name.rsplit('@').next().unwrap_or_default();
    Ok(version.to_owned())
}
