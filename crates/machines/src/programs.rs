//! The test programs of this workspace, and a disk with them and with the files that they read.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::error::{Error, output};

/// The packages whose tests a kernel can fail, in the order in which they run.
const PACKAGES: [&str; 5] = [
    "midspan-linux",
    "midspan-gateway",
    "midspan-proxy",
    "midspan-thin",
    "midspan",
];
/// How the names of tests begin that test no kernel, or that need more than a release has: package,
/// test program, test.
const NOT_RUN: [&str; 12] = [
    // They need builds with planted faults.
    "midspan conformance_self_test ",
    "midspan real_clients_self_test ",
    // Programs of many packages, which another suite installs.
    "midspan kernel real_clients::",
    // It measures, and a slow machine makes every run void.
    "midspan lab lab::",
    // Scenarios run all cases, and wait longer for each.
    "midspan lab conformance::",
    // Pure computation, files and texts.
    "midspan plain install::",
    "midspan plain links::",
    "midspan plain plan::",
    "midspan plain printing::",
    "midspan plain sim::",
    "midspan plain snapshots::",
    "midspan-proxy plain ",
];

/// The gateway guide, which a scenario follows.
pub const GUIDE: &str = "docs/gateway.md";
/// Where `make deb` and `packaging/build-old` leave packages. The emulated processor is an amd64.
const PACKAGE_FOLDERS: [&str; 2] = ["target/debian", "target/debian/old"];

/// A test program.
#[derive(Debug, Clone)]
pub struct TestProgram {
    /// The package and the program, such as "midspan-proxy kernel".
    pub name: String,
    /// The folder of its package, in which it runs.
    pub folder: PathBuf,
    /// The folder of the workspace.
    pub workspace: PathBuf,
    /// The program.
    pub file: PathBuf,
    /// Its tests, in the parts that are run one by one.
    pub parts: Vec<Part>,
    /// A name for its content, and for Midspan's if it runs Midspan: results belong to it.
    pub state: String,
}

/// Tests of a program that run together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The name of a kernel test, or of a module of other tests; `None` for all tests of the program.
    pub name: Option<String>,
    /// The names of the tests.
    pub tests: Vec<String>,
}

/// All programs, and their disk.
#[derive(Debug)]
pub struct Programs {
    /// The test programs.
    pub tests: Vec<TestProgram>,
    /// Midspan, as the tests of its package run it.
    midspan: Option<PathBuf>,
    /// The disk's file.
    pub disk: PathBuf,
    /// The folder of the workspace, also in the machine.
    pub workspace: PathBuf,
    /// Whether there is a package of Midspan for scenarios.
    pub has_packages: bool,
    /// A name for all that scenarios use: the packages and the gateway guide.
    pub state: String,
}

/// A line of what cargo prints about what it has built.
#[derive(Deserialize)]
struct Built {
    #[serde(default)]
    manifest_path: PathBuf,
    target: Option<Target>,
    executable: Option<PathBuf>,
    #[serde(default)]
    profile: Profile,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
    name: String,
    src_path: PathBuf,
}

#[derive(Deserialize, Default)]
struct Profile {
    test: bool,
}

impl Programs {
    /// Builds the test programs of the workspace in the current folder, and puts those of the wanted
    /// packages on a disk in `folder`, together with the packages in `target/debian`. If no package is
    /// wanted, none is built. Otherwise all are: the features of dependencies, and with them the
    /// programs, depend on which packages are built together.
    pub fn build(
        folder: &Path,
        is_wanted: &dyn Fn(&str) -> bool,
        say: &mut dyn FnMut(&str),
    ) -> Result<Self, Error> {
        let workspace = std::path::absolute(".").map_err(Error::file(Path::new(".")))?;
        let mut programs = Self {
            tests: Vec::new(),
            midspan: None,
            disk: folder.join("programs.ext4"),
            workspace,
            has_packages: false,
            state: String::new(),
        };
        if PACKAGES.iter().any(|name| is_wanted(name)) {
            say("building test programs");
            let mut cargo = Command::new("cargo");
            cargo.args(["test", "--no-run", "--quiet", "--message-format", "json"]);
            cargo.args(PACKAGES.iter().flat_map(|name| ["--package", name]));
            let printed = output(cargo.stderr(Stdio::inherit()))?;
            for line in String::from_utf8_lossy(&printed).lines() {
                if let Ok(built) = serde_json::from_str::<Built>(line) {
                    programs.add(built, is_wanted)?;
                }
            }
        }
        let place = |program: &TestProgram| {
            let package = program.name.split(' ').next().unwrap_or_default();
            PACKAGES.iter().position(|name| *name == package)
        };
        programs
            .tests
            .sort_by(|one, other| (place(one), &one.name).cmp(&(place(other), &other.name)));
        say("copying them to a disk");
        programs.copy(folder)?;
        Ok(programs)
    }

    fn add(&mut self, built: Built, is_wanted: &dyn Fn(&str) -> bool) -> Result<(), Error> {
        let (Some(target), Some(file)) = (built.target, built.executable) else {
            return Ok(());
        };
        if !built.profile.test {
            if target.name == "midspan" && is_wanted("midspan") {
                self.midspan = Some(file);
            }
            return Ok(());
        }
        let folder = built.manifest_path.parent().unwrap_or(Path::new("/"));
        let package = folder.file_name().unwrap_or_default().to_string_lossy();
        let package = match &*package {
            "midspan" => "midspan".to_owned(),
            other => format!("midspan-{other}"),
        };
        let name = format!("{package} {}", target.name);
        if !PACKAGES.contains(&&*package) || !is_wanted(&package) {
            return Ok(());
        }
        let listed = output(Command::new(&file).args(["--list", "--format", "terse"]))?;
        let listed = String::from_utf8_lossy(&listed);
        let is_run = |test: &&str| {
            let whole = format!("{name} {test}");
            !NOT_RUN.iter().any(|start| whole.starts_with(start))
        };
        let tests = listed
            .lines()
            .filter_map(|line| line.strip_suffix(": test"))
            .filter(is_run);
        let parts = if target.kind.iter().all(|kind| kind != "test") {
            let all = Part {
                name: None,
                tests: Vec::new(),
            };
            vec![all]
        } else if fs::read_to_string(&target.src_path)
            .map_err(Error::file(&target.src_path))?
            .contains("KernelTests::new()")
        {
            tests.map(|test| part(Some(test), test)).collect()
        } else {
            by_module(tests)
        };
        if !parts.is_empty() {
            self.tests.push(TestProgram {
                name,
                folder: folder.to_owned(),
                workspace: self.workspace.clone(),
                file,
                parts,
                state: String::new(),
            });
        }
        Ok(())
    }

    /// Makes the disk: all files of the repository and the programs, each at its own place.
    fn copy(&mut self, folder: &Path) -> Result<(), Error> {
        let stage = folder.join("programs");
        let _ = fs::remove_dir_all(&stage);
        let listed = output(Command::new("git").args(["ls-files", "-z"]))?;
        let files = listed
            .split(|byte| *byte == 0)
            .filter(|name| !name.is_empty());
        let mut used = Sha256::new();
        for name in files {
            let name = Path::new(OsStr::from_bytes(name));
            // A file that was removed, but not yet from the index.
            if name.is_file() {
                copy_file(name, &stage.join(name))?;
                if name == Path::new(GUIDE) {
                    used.update(fs::read(name).map_err(Error::file(name))?);
                }
            }
        }
        for package in PACKAGE_FOLDERS {
            for file in files_in(Path::new(package), "_amd64.deb")? {
                copy_file(&file, &stage.join(&file))?;
                used.update(fs::read(&file).map_err(Error::file(&file))?);
                self.has_packages = true;
            }
        }
        self.state = short(used);
        let midspan = match &self.midspan {
            Some(midspan) => self.copy_program(midspan, &stage)?,
            None => Vec::new(),
        };
        for place in 0..self.tests.len() {
            let mut digest = Sha256::new();
            digest.update(self.copy_program(&self.tests[place].file, &stage)?);
            if self.tests[place].name.starts_with("midspan ") {
                digest.update(&midspan);
            }
            self.tests[place].state = short(digest);
        }
        let _ = fs::remove_file(&self.disk);
        output(
            Command::new("mke2fs")
                .args(["-q", "-t", "ext4", "-E", "root_owner=0:0", "-d"])
                .args([&stage, &self.disk])
                .arg("3G"),
        )?;
        fs::remove_dir_all(&stage).map_err(Error::file(&stage))
    }

    /// Copies a program without its symbols, and returns its content.
    fn copy_program(&self, program: &Path, stage: &Path) -> Result<Vec<u8>, Error> {
        let name = program.strip_prefix(&self.workspace).unwrap_or(program);
        let target = stage.join(name);
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent).map_err(Error::file(parent))?;
        }
        output(Command::new("strip").arg("-o").arg(&target).arg(program))?;
        fs::read(&target).map_err(Error::file(&target))
    }
}

/// A part with one test.
fn part(name: Option<&str>, test: &str) -> Part {
    Part {
        name: name.map(str::to_owned),
        tests: vec![test.to_owned()],
    }
}

/// A part for each module; tests outside of modules are one part.
fn by_module<'a>(tests: impl Iterator<Item = &'a str>) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for test in tests {
        let module = test.split_once("::").map(|(module, _)| module);
        match parts.iter_mut().find(|one| one.name.as_deref() == module) {
            Some(one) => one.tests.push(test.to_owned()),
            None => parts.push(part(module, test)),
        }
    }
    parts
}

/// Copies a file, and makes the folders on the way.
fn copy_file(from: &Path, to: &Path) -> Result<(), Error> {
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent).map_err(Error::file(parent))?;
    }
    fs::copy(from, to).map(drop).map_err(Error::file(from))
}

/// The files in a folder whose names end so, in order; none if the folder is not there.
fn files_in(folder: &Path, end: &str) -> Result<Vec<PathBuf>, Error> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Ok(Vec::new());
    };
    let mut files = Vec::new();
    for entry in entries {
        let file = entry.map_err(Error::file(folder))?.path();
        if file.to_string_lossy().ends_with(end) {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}

/// The first half of a digest, in hexadecimal digits.
fn short(digest: Sha256) -> String {
    digest.finalize()[..8]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{Part, by_module};

    #[test]
    fn tests_of_a_module_run_together() {
        let parts = by_module(["a::one", "plain", "b::one", "a::c::two", "simple"].into_iter());
        let part = |name: Option<&str>, tests: [&str; 2]| Part {
            name: name.map(str::to_owned),
            tests: tests.map(str::to_owned).to_vec(),
        };
        let one = Part {
            name: Some("b".to_owned()),
            tests: vec!["b::one".to_owned()],
        };
        assert_eq!(
            parts,
            [
                part(Some("a"), ["a::one", "a::c::two"]),
                part(None, ["plain", "simple"]),
                one
            ]
        );
    }
}
