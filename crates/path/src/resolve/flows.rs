//! Flows and their workloads.

use std::collections::BTreeSet;
use std::ops::{Range, RangeInclusive};

use midspan_document::{Located, Spanned};
use midspan_units::{ByteSize, TimeSpan};

use super::Check;
use super::limits::{DURATION_LIMIT, FLOW_LIMIT, SIZE_LIMIT};
use super::nodes::{NodeNames, Placed};
use crate::Given;
use crate::file::{File, FlowTable, WorkloadName};
use crate::{Flow, NodeIndex, NodeKind, Order, Workload};

/// Number of requests of one flow.
const COUNT: RangeInclusive<u32> = 1..=1_000_000;
/// Number of objects of one page.
const OBJECTS: RangeInclusive<u32> = 1..=10_000;
/// Number of connections of one page.
const PARALLEL: RangeInclusive<u32> = 1..=256;
/// Default number of connections of a page: as many as browsers open to one server.
const PARALLEL_DEFAULT: u32 = 6;
/// Bytes of one file or response.
const SIZE: RangeInclusive<ByteSize> = ByteSize::from_bytes(1)..=SIZE_LIMIT;
/// Words of a command, and bytes of one of them.
const WORDS: RangeInclusive<usize> = 1..=256;
const WORD_LIMIT: usize = 4_096;
/// Duration of a bulk flow.
const DURATION: RangeInclusive<TimeSpan> = TimeSpan::from_milliseconds(100)..=DURATION_LIMIT;

/// The flows, with names of hosts resolved and the options of each workload complete.
pub fn resolve(
    check: &Check<'_>,
    file: &File,
    nodes: &[Placed],
    names: &NodeNames,
) -> Result<Vec<Flow>, Located> {
    if let Some(first_too_many) = file.flow.get(FLOW_LIMIT) {
        let message = format!("too many flows: a path has at most {FLOW_LIMIT}");
        return Err(check.error(&first_too_many.name, message));
    }
    let mut taken = BTreeSet::new();
    let mut flows = Vec::with_capacity(file.flow.len());
    for table in &file.flow {
        let name = check.title(&table.name)?;
        if !taken.insert(name) {
            return Err(check.taken(&table.name, "flow"));
        }
        let from = host(check, &table.from, nodes, names)?;
        let to = host(check, &table.to, nodes, names)?;
        if from == to {
            return Err(check.error(&table.to, "a flow goes from one host to another"));
        }
        flows.push(Flow {
            name: name.to_owned(),
            from,
            to,
            workload: workload(check, table)?,
            start: start(check, table, file.run.flows)?,
        });
    }
    Ok(flows)
}

fn host(
    check: &Check<'_>,
    given: &Spanned<String>,
    nodes: &[Placed],
    names: &NodeNames,
) -> Result<NodeIndex, Located> {
    let index = names.find(check, given)?;
    let node = &nodes[index.0].node;
    let kind = match node.kind {
        NodeKind::Host(_) => return Ok(index),
        NodeKind::Router => "router",
        NodeKind::Proxy(_) => "proxy",
    };
    let message = format!("`{}` is a {kind}: a flow goes between hosts", node.name);
    Err(check.error(given, message))
}

fn start(check: &Check<'_>, table: &FlowTable, order: Order) -> Result<TimeSpan, Located> {
    match (&table.start, order) {
        (None, _) => Ok(TimeSpan::ZERO),
        (Some(start), Order::Together) => check.point("a start", start),
        (Some(start), Order::InTurn) => Err(check
            .error(start, "flows that run in turn have no `start`")
            .with_help("write `flows = \"together\"` under `[run]`")),
    }
}

fn workload(check: &Check<'_>, table: &FlowTable) -> Result<Workload, Located> {
    let options = Options { check, table };
    let name = *table.workload.get_ref();
    options.refuse_others(name)?;
    let workload = match name {
        WorkloadName::Download => Workload::Download {
            size: options.size()?,
        },
        WorkloadName::Upload => Workload::Upload {
            size: options.size()?,
        },
        WorkloadName::BulkDownload => Workload::BulkDownload {
            duration: options.duration()?,
        },
        WorkloadName::BulkUpload => Workload::BulkUpload {
            duration: options.duration()?,
        },
        WorkloadName::RequestResponse => Workload::RequestResponse {
            count: options.number("count", &table.count, COUNT)?,
            size: options.size()?,
        },
        WorkloadName::Page => Workload::Page {
            objects: options.number("objects", &table.objects, OBJECTS)?,
            size: options.size()?,
            parallel: match &table.parallel {
                Some(given) => check.within("`parallel`", given, PARALLEL)?,
                None => PARALLEL_DEFAULT,
            },
        },
        WorkloadName::Command => Workload::Command {
            command: options.command()?,
            size: match &table.size {
                Some(given) => Some(check.within("`size`", given, SIZE)?),
                None => None,
            },
        },
    };
    match workload.total_size() {
        Some(total) if total > SIZE_LIMIT => Err(check.error(
            &table.name,
            format_args!("{total} in all are too much for a flow: at most {SIZE_LIMIT}"),
        )),
        _ => Ok(workload),
    }
}

impl WorkloadName {
    /// The name as written in the file.
    const fn written(self) -> &'static str {
        match self {
            Self::Download => "download",
            Self::Upload => "upload",
            Self::BulkDownload => "bulk-download",
            Self::BulkUpload => "bulk-upload",
            Self::RequestResponse => "request-response",
            Self::Page => "page",
            Self::Command => "command",
        }
    }

    /// The keys that apply to it.
    const fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Download | Self::Upload => &["size"],
            Self::BulkDownload | Self::BulkUpload => &["duration"],
            Self::RequestResponse => &["count", "size"],
            Self::Page => &["objects", "size", "parallel"],
            Self::Command => &["command", "size"],
        }
    }
}

/// The keys of one flow that apply to some workloads only.
struct Options<'a> {
    check: &'a Check<'a>,
    table: &'a FlowTable,
}

impl Options<'_> {
    /// Refuses keys that the workload would ignore.
    fn refuse_others(&self, workload: WorkloadName) -> Result<(), Located> {
        fn place<T>(given: &Given<T>) -> Option<Range<usize>> {
            given.as_ref().map(Spanned::span)
        }
        let given = [
            ("size", place(&self.table.size)),
            ("duration", place(&self.table.duration)),
            ("count", place(&self.table.count)),
            ("objects", place(&self.table.objects)),
            ("parallel", place(&self.table.parallel)),
            ("command", place(&self.table.command)),
        ];
        for (key, place) in given {
            if let Some(place) = place
                && !workload.keys().contains(&key)
            {
                let message = format!("a {} flow has no `{key}`", workload.written());
                let help = format!("its keys are {}", workload.keys().join(", "));
                return Err(Located::new(self.check.source, place, message).with_help(help));
            }
        }
        Ok(())
    }

    fn size(&self) -> Result<ByteSize, Located> {
        let given = self.required("size", &self.table.size)?;
        self.check.within("`size`", given, SIZE)
    }

    fn duration(&self) -> Result<TimeSpan, Located> {
        let given = self.required("duration", &self.table.duration)?;
        self.check.within("`duration`", given, DURATION)
    }

    /// The program and its arguments.
    fn command(&self) -> Result<Vec<String>, Located> {
        let given = self.required("command", &self.table.command)?;
        let words = given.get_ref();
        let is_sound = |word: &String| word.len() <= WORD_LIMIT && !word.contains('\0');
        let message = if !WORDS.contains(&words.len()) {
            format!("a command has {} to {} words", WORDS.start(), WORDS.end())
        } else if !words.iter().all(is_sound) {
            format!("a word of a command has at most {WORD_LIMIT} bytes, and no zero byte")
        } else if words.first().is_some_and(String::is_empty) {
            "the first word of a command is the program".to_owned()
        } else {
            return Ok(words.clone());
        };
        Err(self.check.error(given, message))
    }

    fn number(
        &self,
        key: &str,
        given: &Given<u32>,
        range: RangeInclusive<u32>,
    ) -> Result<u32, Located> {
        let given = self.required(key, given)?;
        self.check.within(&format!("`{key}`"), given, range)
    }

    fn required<'a, T>(&self, key: &str, given: &'a Given<T>) -> Result<&'a Spanned<T>, Located> {
        given.as_ref().ok_or_else(|| {
            let workload = self.table.workload.get_ref().written();
            self.check.error(
                &self.table.workload,
                format_args!("a {workload} flow needs `{key}`"),
            )
        })
    }
}
