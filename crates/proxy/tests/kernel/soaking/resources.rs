//! What Midspan uses while it runs, and what it has installed.

use std::fs;

use midspan_linux::namespace::NetworkNamespace;

use midspan_testbed::testing::output;

/// Resources of the relay and of the gateway's kernel.
#[derive(Debug)]
pub struct Use {
    pub descriptors: usize,
    pub pipes: usize,
    pub memory_kb: usize,
    pub sockets: usize,
}

impl Use {
    pub fn of(relay: i32, gateway: &NetworkNamespace) -> Self {
        let entries: Vec<_> = fs::read_dir(format!("/proc/{relay}/fd"))
            .unwrap()
            .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
            .collect();
        let is_pipe = |link: &&std::path::PathBuf| link.to_string_lossy().starts_with("pipe:");
        let status = fs::read_to_string(format!("/proc/{relay}/status")).unwrap();
        let memory = status.lines().find_map(|l| l.strip_prefix("RssAnon:"));
        let number = |text: &str| -> usize {
            let digits = text.split_whitespace().next().unwrap_or("0");
            digits.parse().unwrap()
        };
        let sockstat = gateway
            .run(|| fs::read_to_string("/proc/thread-self/net/sockstat").unwrap())
            .unwrap();
        let tcp = sockstat.lines().find(|l| l.starts_with("TCP:")).unwrap();
        Self {
            descriptors: entries.len(),
            pipes: entries.iter().filter(is_pipe).count(),
            memory_kb: memory.map_or(0, number),
            sockets: number(tcp.split_once("inuse").unwrap().1),
        }
    }
}

/// Rules, routes and parameters on the gateway, without parts that change with connections.
#[derive(Debug, PartialEq, Eq)]
pub struct Installed(Vec<String>);

impl Installed {
    pub fn of(gateway: &NetworkNamespace) -> Self {
        let commands: [(&str, &[&str]); 5] = [
            ("nft", &["-s", "-t", "list", "ruleset"]),
            ("ip", &["-4", "rule"]),
            ("ip", &["-6", "rule"]),
            ("ip", &["-4", "route", "show", "table", "7690"]),
            ("ip", &["-6", "route", "show", "table", "7690"]),
        ];
        let texts = commands.map(|(program, arguments)| output(gateway, program, arguments));
        Self(texts.into())
    }

    /// The number of lines of each part.
    pub fn lines(&self) -> Vec<usize> {
        self.0.iter().map(|text| text.lines().count()).collect()
    }
}
