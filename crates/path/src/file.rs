//! The file as written: tables and keys.
//!
//! Every value that is checked after reading keeps its place. Each key is described in
//! `docs/path-file.md`; a test compares the two.

use midspan_document::Spanned;
use midspan_policy::oversized_segments::OversizedStart;
use midspan_policy::{AccessLink, LegSettings, PolicyName};
use midspan_units::{BitRate, ByteSize, TimeSpan};
use serde::Deserialize;

use crate::acknowledge::Acknowledge;
use crate::link_table::LinkTable;
use crate::{Family, Given, Order, OverlayRole, Window};

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    pub description: Given<String>,
    pub seed: Option<u64>,
    #[serde(default)]
    pub family: Family,
    #[serde(default)]
    pub host: Vec<HostTable>,
    #[serde(default)]
    pub router: Vec<RouterTable>,
    #[serde(default)]
    pub proxy: Vec<ProxyTable>,
    #[serde(default)]
    pub link: Vec<LinkTable>,
    #[serde(default)]
    pub flow: Vec<FlowTable>,
    #[serde(default)]
    pub traffic: Vec<TrafficTable>,
    #[serde(default)]
    pub cable: Vec<CableTable>,
    #[serde(default)]
    pub run: RunTable,
}

/// `[[host]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostTable {
    pub name: Spanned<String>,
    pub congestion_control: Given<String>,
    pub initial_window: Given<u32>,
    pub receive_buffer: Given<ByteSize>,
    pub send_buffer: Given<ByteSize>,
    pub sack: Given<bool>,
    pub window: Given<Window>,
    pub acknowledge: Given<Acknowledge>,
}

/// `[[router]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouterTable {
    pub name: Spanned<String>,
}

/// `[[proxy]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProxyTable {
    pub name: Spanned<String>,
    #[serde(default)]
    pub policy: PolicyName,
    pub client_leg: Given<LegSettings>,
    pub server_leg: Given<LegSettings>,
    pub access: Given<AccessLink>,
    #[serde(default)]
    pub oversized_start: OversizedStart,
    pub overlay: Given<OverlayRole>,
}

/// `[[flow]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowTable {
    pub name: Spanned<String>,
    pub from: Spanned<String>,
    pub to: Spanned<String>,
    pub workload: Spanned<WorkloadName>,
    pub size: Given<ByteSize>,
    pub duration: Given<TimeSpan>,
    pub count: Given<u32>,
    pub objects: Given<u32>,
    pub parallel: Given<u32>,
    pub command: Given<Vec<String>>,
    pub start: Given<TimeSpan>,
}

/// `[[traffic]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrafficTable {
    pub name: Spanned<String>,
    pub from: Spanned<String>,
    pub to: Spanned<String>,
    pub rate: Spanned<BitRate>,
    pub packet_size: Given<ByteSize>,
    pub sources: Given<u32>,
    pub on: Given<TimeSpan>,
    pub off: Given<TimeSpan>,
    pub shape: Given<f64>,
    pub start: Given<TimeSpan>,
    pub duration: Given<TimeSpan>,
}

/// `[[cable]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CableTable {
    pub name: Spanned<String>,
    pub links: Spanned<Vec<Spanned<String>>>,
    pub rate: Spanned<BitRate>,
    pub poll: Given<TimeSpan>,
    pub slot: Given<TimeSpan>,
    pub contention_interval: Given<TimeSpan>,
    pub confirmation: Given<TimeSpan>,
    pub polled_for: Given<TimeSpan>,
    pub rounds: Given<u32>,
}

/// The values of `workload`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkloadName {
    Download,
    Upload,
    BulkDownload,
    BulkUpload,
    RequestResponse,
    Page,
    Command,
}

/// `[run]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunTable {
    #[serde(default)]
    pub flows: Order,
}
