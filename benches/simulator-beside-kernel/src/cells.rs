//! The paths: built-in ones without their proxies, with the links of a download.
//!
//! The data goes from the client to the server, because iperf3 reports round-trip times only at the
//! end that sends. The upstream and the downstream of each link are exchanged, so the data still
//! crosses the links' downstream. The buffers are so large that they do not limit the sender.

use std::fmt;

use clap::ValueEnum;
use midspan_document::Override;
use midspan_path::{Order, Path, Workload};
use midspan_units::TimeSpan;

use crate::Failure;

/// Larger than anything that is in flight.
const BUFFER: &str = "32 MiB";

/// A path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Cell {
    /// GEO without losses
    #[value(name = "geo-0")]
    Geo0,
    /// GEO with 0.1 % of losses
    #[value(name = "geo-1e-3")]
    Geo1e3,
    /// GEO with 1 % of losses
    #[value(name = "geo-1e-2")]
    Geo1e2,
    /// A radio whose rate varies, with a deep queue
    #[value(name = "lte")]
    Lte,
    /// 1 % of losses on a short hop
    #[value(name = "wifi")]
    Wifi,
}

impl Cell {
    /// All paths.
    pub const ALL: [Self; 5] = [
        Self::Geo0,
        Self::Geo1e3,
        Self::Geo1e2,
        Self::Lte,
        Self::Wifi,
    ];

    /// The path, on which the sender has this congestion control and transfers for `seconds`.
    pub fn path(self, control: &str, seconds: u32) -> Result<Path, Failure> {
        let (name, loss) = match self {
            Self::Geo0 => ("geo", Some("0 %")),
            Self::Geo1e3 => ("geo", Some("0.1 %")),
            Self::Geo1e2 => ("geo", Some("1 %")),
            Self::Lte => ("lte", None),
            Self::Wifi => ("wifi", None),
        };
        let mut changes = vec![
            format!("host.client.congestion_control={control}"),
            format!("host.client.send_buffer={BUFFER}"),
            format!("host.server.receive_buffer={BUFFER}"),
        ];
        changes.extend(loss.map(|loss| format!("link.satellite.loss={loss}")));
        let changes: Result<Vec<Override>, _> = changes
            .iter()
            .map(|change| Override::parse("a path", change))
            .collect();
        let mut path = Path::load_with(name, &changes?)?;
        for link in &mut path.links {
            std::mem::swap(&mut link.up, &mut link.down);
        }
        path.flows.truncate(1);
        for flow in &mut path.flows {
            flow.name = "bulk".to_owned();
            flow.workload = Workload::BulkUpload {
                duration: TimeSpan::from_seconds(u64::from(seconds)),
            };
        }
        path.order = Order::InTurn;
        Ok(path)
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Geo0 => "geo-0",
            Self::Geo1e3 => "geo-1e-3",
            Self::Geo1e2 => "geo-1e-2",
            Self::Lte => "lte",
            Self::Wifi => "wifi",
        })
    }
}
