//! ns-2 and ns-3 as separate programs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use simulator_cross_check::Compiled;

use crate::{Error, Run};

/// A simulator that prints "N flows: M data packets" for its arguments FLOWS and SECONDS.
#[derive(Debug)]
pub struct Program {
    name: &'static str,
    command: PathBuf,
    /// Arguments before FLOWS and SECONDS.
    arguments: Vec<PathBuf>,
    /// The compiled program, which is removed at the end.
    _compiled: Option<Compiled>,
}

impl Program {
    /// ns-2; `None` if it is not installed.
    pub fn ns2() -> Option<Self> {
        Some(Self {
            name: "ns-2",
            command: simulator_cross_check::ns2()?,
            arguments: vec![here("speed.tcl")],
            _compiled: None,
        })
    }

    /// ns-3, with a program that is compiled now; `None` if ns-3 or a compiler is not installed.
    pub fn ns3() -> Result<Option<Self>, Error> {
        let compiled = simulator_cross_check::ns3(&here("speed.cc"))?;
        Ok(compiled.map(|compiled| Self {
            name: "ns-3",
            command: compiled.program.clone(),
            arguments: Vec::new(),
            _compiled: Some(compiled),
        }))
    }

    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Makes one run, and subtracts the time of the simulator's start: the time of a run over one
    /// second.
    pub fn run(&self, flows: u64, seconds: u64) -> Result<Run, Error> {
        let start = self.raw(flows, 1)?;
        let whole = self.raw(flows, seconds)?;
        Ok(Run {
            packets: whole.packets - start.packets,
            cpu: whole.cpu - start.cpu,
        })
    }

    fn raw(&self, flows: u64, seconds: u64) -> Result<Run, Error> {
        let before = children_cpu_seconds()?;
        let output = Command::new(&self.command)
            .args(&self.arguments)
            .args([flows.to_string(), seconds.to_string()])
            .output()?;
        let cpu = children_cpu_seconds()? - before;
        let text = String::from_utf8_lossy(&output.stdout);
        let packets = text
            .split_once("flows: ")
            .and_then(|(_, rest)| rest.split(' ').next()?.parse().ok())
            .ok_or_else(|| format!("{} printed {text}", self.name))?;
        Ok(Run { packets, cpu })
    }
}

fn here(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(file)
}

/// CPU time of all children that have ended, in steps of 10 ms (proc(5): `cutime`, `cstime`).
fn children_cpu_seconds() -> Result<f64, Error> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    // The name in brackets may contain spaces.
    let (_, fields) = stat.rsplit_once(')').ok_or("no process")?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let ticks = |index: usize| -> Result<f64, Error> {
        Ok(fields.get(index).ok_or("no such field")?.parse::<f64>()?)
    };
    Ok((ticks(13)? + ticks(14)?) / 100.0)
}
