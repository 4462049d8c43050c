//! `midspan lab PATH --trace … --pcap …`: the files of traces.

use std::cell::RefCell;
use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use midspan_lab::trace::{CaptureName, RunName, RunTrace, SocketSample, SocketSeries};
use midspan_path::Path;
use midspan_sim::trace::{CwndLine, Field, Kind, QueueLine, RateLine, RttLine};
use midspan_units::Time;
use miette::{Context, IntoDiagnostic, miette};

use crate::files::{Replacement, of_case};
use crate::lab_arguments::LabRunOptions;

/// Writes the traces of each run. The files of a run appear under their names when the run has ended.
pub struct Traces<'a> {
    path: &'a Path,
    options: &'a LabRunOptions,
    kinds: Vec<Kind>,
    state: RefCell<State>,
}

/// What changes from run to run.
#[derive(Default)]
struct State {
    /// The captures of the present run.
    captures: Vec<(PathBuf, Replacement)>,
    /// The traces of the first repetition, for plots.
    kept: Vec<RunTrace>,
    /// The first file that could not be written.
    error: Option<miette::Report>,
}

impl<'a> Traces<'a> {
    /// Traces of runs over a path. Makes the folder for them.
    pub fn new(path: &'a Path, options: &'a LabRunOptions) -> miette::Result<Self> {
        if !options.trace.is_empty() {
            fs::create_dir_all(&options.output_directory)
                .into_diagnostic()
                .wrap_err_with(|| format!("cannot make {}", options.output_directory.display()))?;
        }
        Ok(Self {
            path,
            options,
            kinds: options.trace.iter().map(|kind| Kind::from(*kind)).collect(),
            state: RefCell::default(),
        })
    }

    /// Whether one of these kinds is wanted.
    pub fn wants(&self, kinds: &[Kind]) -> bool {
        kinds.iter().any(|kind| self.kinds.contains(kind))
    }

    /// Opens a capture of the run that begins.
    pub fn open(&self, name: &CaptureName<'_>) -> io::Result<Box<dyn Write + Send>> {
        let file = self.options.pcap.clone().unwrap_or_default();
        // One file for each run and place, whose name contains both.
        let stem = file.file_stem().unwrap_or_default().to_string_lossy();
        let ending = file
            .extension()
            .unwrap_or("pcap".as_ref())
            .to_string_lossy();
        let (run, node, link) = (prefix(name.run), name.node, name.link);
        let file = file.with_file_name(format!("{stem}-{run}-{node}-{link}.{ending}"));
        let named =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", file.display()));
        let (replacement, output) = Replacement::begin(&file).map_err(named)?;
        let captures = &mut self.state.borrow_mut().captures;
        // A repeated run has captures already, which do not count.
        captures.retain(|(other, _)| *other != file);
        captures.push((file, replacement));
        Ok(Box::new(output))
    }

    /// A run has ended: its files are complete.
    pub fn add(&self, trace: &RunTrace) {
        let mut state = self.state.borrow_mut();
        let captures = std::mem::take(&mut state.captures);
        let complete = match &trace.failure {
            Some(failure) => Err(miette!("{failure}")),
            None => Ok(()),
        };
        let written = complete
            .and_then(|()| {
                let mut captures = captures.into_iter();
                captures.try_for_each(|(file, replacement)| commit(file, replacement))
            })
            .and_then(|()| self.write(trace));
        if let Err(error) = written {
            state.error.get_or_insert(error);
        }
        if self.options.html.is_some() && trace.run.repetition == 0 {
            state.kept.push(trace.clone());
        }
    }

    /// The traces for plots; an error if a file could not be written.
    pub fn finish(self) -> (Vec<RunTrace>, miette::Result<()>) {
        let State { kept, error, .. } = self.state.into_inner();
        (kept, error.map_or(Ok(()), Err))
    }

    fn write(&self, trace: &RunTrace) -> miette::Result<()> {
        for kind in &self.kinds {
            let name = format!("{}-{}.csv", prefix(&trace.run), kind.name());
            let file = self.options.output_directory.join(name);
            let written = Replacement::begin(&file).and_then(|(replacement, output)| {
                let mut output = BufWriter::new(output);
                writeln!(output, "{}", kind.heading())?;
                match kind {
                    Kind::Cwnd => write_cwnd(&mut output, &trace.sockets)?,
                    Kind::Rtt => write_round_trips(&mut output, &trace.sockets)?,
                    Kind::Queue => self.write_queues(&mut output, trace)?,
                    _ => self.write_rates(&mut output, trace)?,
                }
                output.flush()?;
                Ok(replacement)
            });
            let replacement = written
                .into_diagnostic()
                .wrap_err_with(|| format!("cannot write {}", file.display()))?;
            commit(file, replacement)?;
        }
        Ok(())
    }

    /// The names of the links.
    fn links(&self) -> Vec<Field> {
        let links = self.path.links.iter();
        links.map(|link| Field::new(&link.name)).collect()
    }

    fn write_queues(&self, output: &mut impl Write, trace: &RunTrace) -> io::Result<()> {
        let links = self.links();
        let mut lines: Vec<(Time, QueueLine<'_>)> = Vec::new();
        for (link, recorded) in links.iter().zip(&trace.links) {
            for (series, up) in [(&recorded.up, true), (&recorded.down, false)] {
                lines.extend(series.queue.iter().map(|sample| {
                    let line = QueueLine {
                        at: sample.at,
                        link,
                        up,
                        packets: sample.waiting.packets,
                        bytes: sample.waiting.bytes,
                    };
                    (sample.at, line)
                }));
            }
        }
        write_in_order(output, lines)
    }

    fn write_rates(&self, output: &mut impl Write, trace: &RunTrace) -> io::Result<()> {
        let links = self.links();
        let mut lines: Vec<(Time, RateLine<'_>)> = Vec::new();
        for (link, recorded) in links.iter().zip(&trace.links) {
            for (series, up) in [(&recorded.up, true), (&recorded.down, false)] {
                lines.extend(series.rate.iter().map(|sample| {
                    let line = RateLine {
                        at: sample.end,
                        link,
                        up,
                        bytes: sample.bytes,
                        bits_per_second: sample.bits_per_second,
                    };
                    (sample.end, line)
                }));
            }
        }
        write_in_order(output, lines)
    }
}

/// `midspan-2-repetition-1-seed-7`: the case, the number of the flow if there are several, the repetition
/// and the seed.
fn prefix(run: &RunName) -> String {
    let RunName {
        case,
        group,
        repetition,
        seed,
    } = run;
    let group = match group {
        0 => String::new(),
        group => format!("-{}", group + 1),
    };
    let case = of_case(case);
    format!("{case}{group}-repetition-{}-seed-{seed}", repetition + 1)
}

fn commit(file: PathBuf, replacement: Replacement) -> miette::Result<()> {
    replacement
        .commit()
        .into_diagnostic()
        .wrap_err_with(|| format!("cannot write {}", file.display()))
}

fn write_cwnd(output: &mut impl Write, sockets: &SocketSeries) -> io::Result<()> {
    let flows = flows(sockets);
    for SocketSample {
        at,
        leg,
        cwnd,
        ssthresh,
        in_flight,
        round_trip,
    } in &sockets.samples
    {
        let line = CwndLine {
            at: *at,
            flow: &flows[*leg],
            leg: sockets.legs[*leg].leg,
            cwnd: *cwnd,
            ssthresh: *ssthresh,
            in_flight: *in_flight,
            round_trip: *round_trip,
        };
        writeln!(output, "{line}")?;
    }
    Ok(())
}

fn write_round_trips(output: &mut impl Write, sockets: &SocketSeries) -> io::Result<()> {
    let flows = flows(sockets);
    let mut last = vec![None; flows.len()];
    for sample in &sockets.samples {
        let before = std::mem::replace(&mut last[sample.leg], sample.round_trip);
        if let Some(round_trip) = sample.round_trip.filter(|_| before != sample.round_trip) {
            let line = RttLine {
                at: sample.at,
                flow: &flows[sample.leg],
                leg: sockets.legs[sample.leg].leg,
                round_trip,
            };
            writeln!(output, "{line}")?;
        }
    }
    Ok(())
}

/// The names of the legs' flows.
fn flows(sockets: &SocketSeries) -> Vec<Field> {
    let legs = sockets.legs.iter();
    legs.map(|leg| Field::new(&leg.name)).collect()
}

fn write_in_order<T: std::fmt::Display>(
    output: &mut impl Write,
    mut lines: Vec<(Time, T)>,
) -> io::Result<()> {
    lines.sort_by_key(|(at, _)| *at);
    lines
        .iter()
        .try_for_each(|(_, line)| writeln!(output, "{line}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_file_has_the_run() {
        let mut run = RunName {
            case: "midspan",
            group: 0,
            repetition: 0,
            seed: 7,
        };
        assert_eq!(prefix(&run), "midspan-repetition-1-seed-7");
        run.group = 1;
        run.repetition = 2;
        run.seed = 9;
        assert_eq!(prefix(&run), "midspan-2-repetition-3-seed-9");
        run.case = "overlay-static=fra/sin";
        assert_eq!(prefix(&run), "overlay-static-fra-sin-2-repetition-3-seed-9");
    }
}
