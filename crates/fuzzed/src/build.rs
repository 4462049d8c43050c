//! Builds with instrumentation, and runs programs.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use midspan_fuzzed::repository;

use crate::Error;

/// The compiler flags of `cargo fuzz`, but without a sanitizer: parsers have no `unsafe` code, so the
/// stable compiler is enough.
const FUZZER_FLAGS: [&str; 6] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Cllvm-args=-simplifycfg-branch-fold-threshold=0",
];

/// Builds the fuzzer's programs for the sources in `root`; they are in `directory` then.
pub fn fuzzer<'a>(
    root: &Path,
    directory: &Path,
    names: impl Iterator<Item = &'a str> + Clone,
) -> Result<(), Error> {
    let (host, built) = (host()?, target_directory());
    let mut cargo = Command::new("cargo");
    // With an explicit target platform, the flags do not apply to programs that run during the build.
    // Copies of the sources share the builds of third-party crates.
    cargo
        .args(["build", "--release", "--target", &host])
        .arg("--manifest-path")
        .arg(root.join("fuzz/Cargo.toml"))
        .arg("--target-dir")
        .arg(&built)
        .env("RUSTFLAGS", FUZZER_FLAGS.join(" "));
    for name in names.clone() {
        cargo.args(["--bin", name]);
    }
    succeed(cargo)?;
    fs::create_dir_all(directory).map_err(Error::file(directory))?;
    for name in names {
        keep(
            &built.join(&host).join("release").join(name),
            &directory.join(name),
        )?;
    }
    Ok(())
}

/// The directory of instrumented builds, and of the fuzzer's results.
pub fn target_directory() -> PathBuf {
    repository().join("target/fuzz")
}

/// Builds this program so that it counts the executed lines of Midspan; returns its path.
pub fn counting() -> Result<PathBuf, Error> {
    let root = repository();
    let mut cargo = Command::new("cargo");
    cargo
        .args(["build", "--package", "midspan-fuzzed", "--bin", "fuzzing"])
        .current_dir(&root)
        .env("RUSTC_WORKSPACE_WRAPPER", root.join("scripts/count-lines"));
    succeed(cargo)?;
    let program = target_directory().join("counting");
    keep(&root.join("target/debug/fuzzing"), &program)?;
    Ok(program)
}

/// Gives a program a second name, which remains when another build replaces it.
fn keep(built: &Path, name: &Path) -> Result<(), Error> {
    let _ = fs::remove_file(name);
    fs::hard_link(built, name)
        .or_else(|_| fs::copy(built, name).map(drop))
        .map_err(Error::file(name))
}

/// A program of LLVM from this compiler's distribution, or of the same version.
pub fn llvm(name: &str) -> Result<PathBuf, Error> {
    let root = output(Command::new("rustc").args(["--print", "sysroot"]))?;
    let host = host()?;
    let own = Path::new(root.trim()).join(format!("lib/rustlib/{host}/bin/{name}"));
    if own.exists() {
        return Ok(own);
    }
    let version = version("LLVM version: ")?;
    let major = version.split('.').next().unwrap_or_default();
    let named = format!("{name}-{major}");
    if output(Command::new(&named).arg("--version")).is_ok() {
        return Ok(named.into());
    }
    Err(Error::Failed {
        program: name.to_owned(),
        what: format!(
            "it is not installed: rustup component add llvm-tools, or apt install llvm-{major}"
        ),
    })
}

fn host() -> Result<String, Error> {
    version("host: ")
}

/// A line of `rustc --version --verbose`.
fn version(beginning: &str) -> Result<String, Error> {
    let text = output(Command::new("rustc").args(["--version", "--verbose"]))?;
    let found = text.lines().find_map(|line| line.strip_prefix(beginning));
    found.map(str::to_owned).ok_or_else(|| Error::Failed {
        program: "rustc --version --verbose".to_owned(),
        what: format!("it does not tell its {beginning}"),
    })
}

/// Runs a program that must succeed; its output goes to this program's output.
pub fn succeed(mut command: Command) -> Result<(), Error> {
    let program = named(&command);
    let status = command.status().map_err(|source| Error::Program {
        program: program.clone(),
        source,
    })?;
    match status.success() {
        true => Ok(()),
        false => Err(Error::Failed {
            program,
            what: status.to_string(),
        }),
    }
}

/// The output of a program that must succeed.
pub fn output(command: &mut Command) -> Result<String, Error> {
    let program = named(command);
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|source| Error::Program {
            program: program.clone(),
            source,
        })?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(Error::Failed {
            program,
            what: text(&output.stderr),
        }),
    }
}

fn named(command: &Command) -> String {
    let arguments = command.get_args().take(3).map(OsStr::to_string_lossy);
    let words: Vec<_> = std::iter::once(command.get_program().to_string_lossy())
        .chain(arguments)
        .collect();
    words.join(" ")
}
