//! What this process and this user may use: memory, descriptors, memory in pipes.

use midspan_policy::client_share::share_of_client;
use midspan_policy::memory_bounds::Bound;
use midspan_policy::memory_share::sessions_carried;
use midspan_units::ByteSize;
use rustix::process::{Resource, getrlimit};
use serde::Serialize;

use super::sysctls::number;
use super::{Context, Finding};
use crate::configuration::Configuration;
use crate::machine_memory;

/// A session has two sockets, and two pipes while it has data in them.
const DESCRIPTORS_PER_SESSION: u64 = 6;
/// Fewer sessions than this at a time are worth a word.
const FEW_SESSIONS: u64 = 1_000;

pub(super) fn findings(context: &Context<'_>) -> Vec<Finding> {
    let mut findings = memory(context);
    findings.push(descriptors());
    findings.extend(pipes(context));
    findings
}

/// What the proxy may take on here, in numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Capacity {
    /// The budget of memory, in bytes; `None` where the configuration has none.
    pub memory_budget_bytes: Option<u64>,
    /// Where it comes from: `configuration`, `machine`, `control_group`, `least`.
    pub memory_bound: &'static str,
    /// A quarter of the machine's memory.
    pub machine_bytes: u64,
    /// Three quarters of the tightest limit of our control groups, if there is one.
    pub control_group_bytes: Option<u64>,
    /// Half of the pressure of TCP (`net.ipv4.tcp_mem`), for queues alone.
    pub queues_bytes: u64,
    /// Idle sessions that the budget carries.
    pub sessions_by_memory: Option<u64>,
    /// Idle sessions that the descriptors carry.
    pub sessions_by_descriptors: Option<u64>,
    /// Sessions that one client of forward, SOCKS and HTTP listeners may have; `None` for any.
    pub sessions_of_one_client: Option<u64>,
}

impl Capacity {
    pub(super) fn of(configuration: &Configuration) -> Self {
        let bounds = machine_memory::bounds();
        let relay = &configuration.relay;
        let limits = relay.limits;
        let memory = limits.memory.map(ByteSize::bytes);
        let by_descriptors = getrlimit(Resource::Nofile).maximum.map(|most| most / 2);
        let by_memory = memory.map(sessions_carried);
        let all = [
            by_memory,
            by_descriptors,
            limits.sessions.sessions.map(u64::from),
        ];
        let carried = all.into_iter().flatten().min();
        Self {
            memory_budget_bytes: memory,
            memory_bound: match (relay.memory_is_set, bounds.budget().1) {
                (true, _) => "configuration",
                (false, Bound::Machine) => "machine",
                (false, Bound::Group) => "control_group",
                (false, Bound::Least) => "least",
            },
            machine_bytes: bounds.of_machine(),
            control_group_bytes: bounds.of_group(),
            queues_bytes: bounds.of_queues(),
            sessions_by_memory: by_memory,
            sessions_by_descriptors: by_descriptors,
            sessions_of_one_client: match limits.sessions.sessions_per_client {
                Some(most) => Some(most.into()),
                None => carried.map(share_of_client),
            },
        }
    }
}

fn memory(context: &Context<'_>) -> Vec<Finding> {
    let capacity = Capacity::of(context.configuration);
    let mib = |bytes: u64| format!("{} MiB", bytes >> 20);
    let mut findings = vec![Finding::ok(
        "memory: a quarter of the machine's",
        mib(capacity.machine_bytes),
    )];
    let group = machine_memory::group_limit();
    findings.push(Finding::ok(
        "memory: three quarters of the control group's",
        match (&group, capacity.control_group_bytes) {
            (Some(limit), Some(part)) => format!(
                "{} ({}: {})",
                mib(part),
                limit.file.display(),
                mib(limit.bytes)
            ),
            _ => "no limit".to_owned(),
        },
    ));
    const QUEUES: &str = "memory: queues, half of TCP's pressure";
    let from = match machine_memory::bounds().pressure {
        Some(_) => "net.ipv4.tcp_mem",
        None => "the kernel's default; net.ipv4.tcp_mem is not seen in this network namespace",
    };
    let queues = format!("{} ({from})", mib(capacity.queues_bytes));
    findings.push(Finding::ok(QUEUES, queues));
    findings.push(budget(&capacity));
    if let Some(share) = capacity.sessions_of_one_client {
        findings.push(Finding::ok(
            "sessions of one client",
            format!("{share}, with forward, SOCKS and HTTP listeners together"),
        ));
    }
    findings
}

fn budget(capacity: &Capacity) -> Finding {
    const CHECK: &str = "memory: budget";
    let (Some(budget), Some(sessions)) =
        (capacity.memory_budget_bytes, capacity.sessions_by_memory)
    else {
        return Finding::ok(CHECK, "none (limits.memory = \"0 B\")");
    };
    let by = match capacity.memory_bound {
        "configuration" => "limits.memory",
        "machine" => "a quarter of the machine's memory",
        "control_group" => "the control group",
        _ => "the least there is",
    };
    let found = format!(
        "{} MiB, by {by}: {sessions} idle sessions at a time",
        budget >> 20
    );
    let least = capacity.control_group_bytes.unwrap_or(u64::MAX);
    if budget > least {
        let mend = format!(
            "limits.memory = \"{} MiB\" or less, or a higher limit of the control group \
             (MemoryMax= of the service)",
            least >> 20
        );
        let found = format!("{found}; more than three quarters of the control group's limit");
        return Finding::warning(CHECK, found, mend);
    }
    match sessions < FEW_SESSIONS {
        true => Finding::warning(CHECK, found, "a higher limits.memory, or more memory"),
        false => Finding::ok(CHECK, found),
    }
}

fn descriptors() -> Finding {
    const CHECK: &str = "limit of descriptors";
    // The helper raises the soft limit to the hard one.
    let Some(limit) = getrlimit(Resource::Nofile).maximum else {
        return Finding::ok(CHECK, "none");
    };
    let sessions = limit / DESCRIPTORS_PER_SESSION;
    let found = format!("{limit}: about {sessions} busy sessions at a time");
    match sessions < FEW_SESSIONS {
        true => Finding::warning(
            CHECK,
            found,
            "LimitNOFILE=1048576 in the service, or: ulimit -Hn 1048576",
        ),
        false => Finding::ok(CHECK, found),
    }
}

fn pipes(context: &Context<'_>) -> Vec<Finding> {
    let relay = &context.configuration.relay;
    let (memory, size) = (relay.pipe_memory.bytes(), relay.pipe_size.bytes());
    if memory == 0 {
        return vec![Finding::ok("pipes", "none are used")];
    }
    let mut findings = Vec::new();
    let page = rustix::param::page_size() as u64;
    if let Some(pages) = number("fs.pipe-user-pages-soft") {
        let limit = pages.saturating_mul(page);
        let found = format!(
            "{} MiB for pipe_memory = \"{}\"",
            limit >> 20,
            relay.pipe_memory
        );
        let check = "sysctl fs.pipe-user-pages-soft";
        findings.push(match pages != 0 && limit < memory {
            true => Finding::warning(
                check,
                format!("{found}: beyond it, data is copied"),
                format!(
                    "sysctl -w fs.pipe-user-pages-soft={}",
                    memory.div_ceil(page)
                ),
            ),
            false => Finding::ok(check, found),
        });
    }
    if let Some(largest) = number("fs.pipe-max-size") {
        let check = "sysctl fs.pipe-max-size";
        let found = format!("{largest} bytes for pipe_size = \"{}\"", relay.pipe_size);
        findings.push(match largest < size {
            true => Finding::warning(
                check,
                format!("{found}: there are no pipes of this size, data is copied"),
                format!("sysctl -w fs.pipe-max-size={size}"),
            ),
            false => Finding::ok(check, found),
        });
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    const MIB: u64 = 1 << 20;

    fn capacity(budget: Option<u64>, bound: &'static str, sessions: u64) -> Capacity {
        Capacity {
            memory_budget_bytes: budget,
            memory_bound: bound,
            machine_bytes: 2048 * MIB,
            control_group_bytes: None,
            queues_bytes: 256 * MIB,
            sessions_by_memory: budget.map(|_| sessions),
            sessions_by_descriptors: Some(500_000),
            sessions_of_one_client: None,
        }
    }

    #[test]
    fn the_budget_s_row_names_its_bound_and_what_it_carries() {
        for (bound, named) in [
            ("configuration", "limits.memory"),
            ("machine", "a quarter of the machine's memory"),
            ("control_group", "the control group"),
            ("least", "the least there is"),
        ] {
            let row = budget(&capacity(Some(300 * MIB), bound, 5000));
            let found = format!("300 MiB, by {named}: 5000 idle sessions at a time");
            assert_eq!((row.state, row.found), (State::Ok, found));
        }
        let row = budget(&capacity(None, "configuration", 0));
        assert_eq!(row.state, State::Ok);
        assert_eq!(row.found, "none (limits.memory = \"0 B\")");
    }

    #[test]
    fn a_budget_for_few_sessions_is_a_warning() {
        let row = |sessions| budget(&capacity(Some(MIB), "least", sessions));
        assert_eq!(row(FEW_SESSIONS).state, State::Ok);
        let few = row(FEW_SESSIONS - 1);
        assert_eq!(few.state, State::Warning);
        assert!(few.found.contains("999 idle sessions"), "{}", few.found);
    }

    #[test]
    fn a_budget_above_the_control_group_s_is_a_warning_with_the_bound() {
        let of = |budget_bytes, group| {
            budget(&Capacity {
                control_group_bytes: Some(group),
                ..capacity(Some(budget_bytes), "configuration", 5000)
            })
        };
        assert_eq!(of(300 * MIB, 300 * MIB).state, State::Ok);
        let beyond = of(300 * MIB, 200 * MIB);
        assert_eq!(beyond.state, State::Warning);
        let mend = beyond.mend.unwrap();
        assert!(mend.starts_with("limits.memory = \"200 MiB\""), "{mend}");
    }
}
