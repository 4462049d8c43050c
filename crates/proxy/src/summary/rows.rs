//! Sums of sessions; rows of clients and of sessions.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};

use midspan_policy::servers::{Health, ServerReading};
use midspan_relay::observation::{
    Direction, EndedFigures, Ending, Figures, HeldBy, LegReading, Limit, ListenerTotals,
    ReportedPhase,
};
use midspan_units::{Time, TimeSpan};
use serde::{Deserialize, Serialize};

use super::query::{Query, Sort};
use super::{Legs, LegsSummary};

/// A client with all its sessions that fit the filter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClientRow {
    /// Its address.
    pub client: IpAddr,
    /// Its sessions.
    pub sessions: u64,
    /// Their figures together. Legs and start are those of the session with the highest rate.
    #[serde(flatten)]
    pub figures: RowFigures,
}

/// A session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionRow {
    /// Its number.
    pub id: u64,
    /// The client.
    pub client: SocketAddr,
    /// The server.
    pub server: SocketAddr,
    /// The server's name, if the client gave one.
    pub destination: Option<String>,
    /// Name of its listener.
    pub listener: String,
    /// The phase of its life.
    pub phase: ReportedPhase,
    /// Time since the client's first segment.
    pub age_seconds: f64,
    /// Its figures.
    #[serde(flatten)]
    pub figures: RowFigures,
}

/// A listener with all its sessions that fit the filter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ListenerRow {
    /// Its name.
    pub listener: String,
    /// Its sessions.
    pub sessions: u64,
    /// Sessions that have begun since the relay's start, of all clients.
    pub opened: u64,
    /// Sessions of these that ended otherwise than by a FIN in each direction.
    pub failed: u64,
    /// The servers from which one is chosen for each session, if there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<ServerRow>,
    /// Their figures together, except bytes, which are all since the relay's start, of all clients. Legs
    /// and start are those of the session with the highest rate.
    #[serde(flatten)]
    pub figures: RowFigures,
}

/// A server of a listener that has several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerRow {
    /// Its name or address, with its port.
    pub server: String,
    /// `up`, `suspect`, `down`, or `no_address`.
    pub state: String,
    /// Its sessions.
    pub sessions: u64,
    /// Checks that have failed.
    pub failed_checks: u64,
}

impl From<&ServerReading> for ServerRow {
    fn from(reading: &ServerReading) -> Self {
        Self {
            server: reading.server.to_string(),
            state: reading.health.map_or("no_address", Health::name).to_owned(),
            sessions: reading.sessions,
            failed_checks: reading.failed_checks,
        }
    }
}

/// A session that has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EndedRow {
    /// Its number.
    pub id: u64,
    /// The client.
    pub client: SocketAddr,
    /// The server.
    pub server: SocketAddr,
    /// The server's name, if the client gave one.
    pub destination: Option<String>,
    /// Name of its listener.
    pub listener: String,
    /// How it ended, as in the log.
    pub how: String,
    /// Time since its end.
    pub ended_seconds: f64,
    /// How long it lasted, from the client's first segment on.
    pub duration_seconds: f64,
    /// Bytes towards the client.
    pub bytes_to_client: u64,
    /// Bytes towards the server.
    pub bytes_to_server: u64,
}

/// The figures of a row. Unknown values are `None`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RowFigures {
    /// Bytes towards the client.
    pub bytes_to_client: u64,
    /// Bytes towards the server.
    pub bytes_to_server: u64,
    /// Rate towards the client.
    pub rate_to_client_bits_per_second: Option<u64>,
    /// Rate towards the server.
    pub rate_to_server_bits_per_second: Option<u64>,
    /// `to_client` or `to_server`: the direction with more bytes.
    pub direction: Option<String>,
    /// What holds this direction back most.
    pub held: Option<Limit>,
    /// The shares of all reasons.
    pub held_by: Option<HeldBy>,
    /// The leg to the client.
    pub client_leg: LegRow,
    /// The leg to the server.
    pub server_leg: LegRow,
    /// `learned` or `cold`.
    pub start: Option<String>,
}

/// A leg of a row.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LegRow {
    /// Smoothed round-trip time.
    pub rtt_seconds: Option<f64>,
    /// Smallest round-trip time.
    pub min_rtt_seconds: Option<f64>,
    /// The difference of the two.
    pub queue_seconds: Option<f64>,
    /// Share of retransmitted bytes in all bytes sent.
    pub retransmitted_ratio: Option<f64>,
}

impl From<&LegReading> for LegRow {
    fn from(leg: &LegReading) -> Self {
        let seconds = |time: Option<TimeSpan>| time.map(TimeSpan::as_seconds);
        Self {
            rtt_seconds: seconds(leg.round_trip_time),
            min_rtt_seconds: seconds(leg.minimum_round_trip_time),
            queue_seconds: seconds(leg.queue()),
            retransmitted_ratio: leg.retransmitted_ratio(),
        }
    }
}

/// A row that can be sorted.
pub(super) trait Row {
    fn figures(&self) -> &RowFigures;
    /// The value for [`Sort::Sessions`].
    fn count(&self) -> f64;
    /// The order of rows with equal values, so that rows do not change places.
    fn order(&self, other: &Self) -> Ordering;
}

impl Row for ClientRow {
    fn figures(&self) -> &RowFigures {
        &self.figures
    }

    #[allow(clippy::cast_precision_loss)]
    fn count(&self) -> f64 {
        self.sessions as f64
    }

    fn order(&self, other: &Self) -> Ordering {
        self.client.cmp(&other.client)
    }
}

impl Row for ListenerRow {
    fn figures(&self) -> &RowFigures {
        &self.figures
    }

    #[allow(clippy::cast_precision_loss)]
    fn count(&self) -> f64 {
        self.sessions as f64
    }

    fn order(&self, other: &Self) -> Ordering {
        self.listener.cmp(&other.listener)
    }
}

impl Row for SessionRow {
    fn figures(&self) -> &RowFigures {
        &self.figures
    }

    fn count(&self) -> f64 {
        self.age_seconds
    }

    fn order(&self, other: &Self) -> Ordering {
        self.id.cmp(&other.id)
    }
}

/// The value by which a row is sorted.
#[allow(clippy::cast_precision_loss)]
fn value(row: &impl Row, sort: Sort) -> f64 {
    let figures = row.figures();
    match sort {
        Sort::Rate => {
            let rate = |rate: Option<u64>| rate.unwrap_or(0) as f64;
            rate(figures.rate_to_client_bits_per_second)
                + rate(figures.rate_to_server_bits_per_second)
        }
        Sort::Bytes => figures.bytes_to_client as f64 + figures.bytes_to_server as f64,
        Sort::Rtt => figures.client_leg.rtt_seconds.unwrap_or(-1.0),
        Sort::Retransmitted => [&figures.client_leg, &figures.server_leg]
            .map(|leg| leg.retransmitted_ratio.unwrap_or(-1.0))
            .into_iter()
            .fold(-1.0, f64::max),
        Sort::Sessions => row.count(),
    }
}

/// The first rows in the order of the query.
pub(super) fn first<R: Row>(rows: Vec<R>, query: &Query) -> Vec<R> {
    let mut rows: Vec<(f64, R)> = rows
        .into_iter()
        .map(|row| (value(&row, query.sort), row))
        .collect();
    let order = |one: &(f64, R), other: &(f64, R)| {
        other
            .0
            .total_cmp(&one.0)
            .then_with(|| one.1.order(&other.1))
    };
    if rows.len() > query.limit {
        rows.select_nth_unstable_by(query.limit, order);
        rows.truncate(query.limit);
    }
    rows.sort_unstable_by(order);
    rows.into_iter().map(|(_, row)| row).collect()
}

/// Rows of sessions, the first ones in the order of the query.
pub(super) fn sessions(fits: &[&Figures], query: &Query) -> Vec<SessionRow> {
    first(fits.iter().map(|figures| session(figures)).collect(), query)
}

fn session(figures: &Figures) -> SessionRow {
    let mut sums = Sums::default();
    sums.add(figures);
    SessionRow {
        id: figures.id,
        client: plain(figures.client),
        server: plain(figures.server),
        destination: figures.destination.as_deref().map(str::to_owned),
        listener: figures.listener.to_string(),
        phase: figures.phase,
        age_seconds: figures.age.as_seconds(),
        figures: sums.figures(),
    }
}

/// An IPv4 address as such.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// A row for each client.
pub(super) fn clients(fits: &[&Figures], _: &Query) -> Vec<ClientRow> {
    let mut clients: HashMap<IpAddr, Sums<'_>> = HashMap::new();
    for figures in fits {
        let client = figures.client.ip().to_canonical();
        clients.entry(client).or_default().add(figures);
    }
    let rows = clients.into_iter().map(|(client, sums)| ClientRow {
        client,
        sessions: sums.sessions,
        figures: sums.figures(),
    });
    rows.collect()
}

/// A row for each listener, also without sessions.
pub(super) fn listeners(
    fits: &[&Figures],
    totals: &BTreeMap<String, ListenerTotals>,
    query: &Query,
) -> Vec<ListenerRow> {
    let mut sums: HashMap<&str, Sums<'_>> = HashMap::new();
    for figures in fits {
        sums.entry(&*figures.listener).or_default().add(figures);
    }
    let rows = totals.iter().map(|(name, totals)| {
        let of_listener = sums.remove(name.as_str()).unwrap_or_default();
        let closed = totals.ended[Ending::Closed.index()];
        ListenerRow {
            listener: name.clone(),
            sessions: of_listener.sessions,
            opened: totals.opened,
            failed: totals.ended.iter().sum::<u64>() - closed,
            servers: Vec::new(),
            figures: RowFigures {
                bytes_to_client: totals.bytes_to_client,
                bytes_to_server: totals.bytes_to_server,
                ..of_listener.figures()
            },
        }
    });
    first(rows.collect(), query)
}

/// Rows of sessions that have ended, the newest first.
pub(super) fn ended(ended: &[EndedFigures], now: Time, query: &Query) -> Vec<EndedRow> {
    let mut fits: Vec<&EndedFigures> = (ended.iter())
        .filter(|one| query.fits(one.client))
        .collect();
    fits.sort_unstable_by_key(|one| (Reverse(one.at), Reverse(one.id)));
    fits.truncate(query.limit);
    let row = |one: &EndedFigures| EndedRow {
        id: one.id,
        client: plain(one.client),
        server: plain(one.server),
        destination: one.destination.as_deref().map(str::to_owned),
        listener: one.listener.to_string(),
        how: one.ending.name().to_owned(),
        ended_seconds: now.since(one.at).as_seconds(),
        duration_seconds: one.lasted.as_seconds(),
        bytes_to_client: one.bytes_to_client,
        bytes_to_server: one.bytes_to_server,
    };
    fits.into_iter().map(row).collect()
}

/// The sums of some sessions.
#[derive(Debug, Default)]
struct Sums<'a> {
    sessions: u64,
    bytes: [u64; 2],
    rates: Option<[u64; 2]>,
    held: HeldBy,
    weight: f32,
    /// Retransmitted and acknowledged bytes of each leg.
    sent: [(u64, u64); 2],
    /// The session with the highest rate, and this rate.
    fastest: Option<(u64, &'a Figures)>,
}

impl<'a> Sums<'a> {
    fn add(&mut self, session: &'a Figures) {
        self.sessions += 1;
        self.bytes[0] = self.bytes[0].saturating_add(session.bytes_to_client);
        self.bytes[1] = self.bytes[1].saturating_add(session.bytes_to_server);
        for (sent, leg) in self
            .sent
            .iter_mut()
            .zip([&session.client_leg, &session.server_leg])
        {
            sent.0 = sent.0.saturating_add(leg.retransmitted);
            sent.1 = sent.1.saturating_add(leg.acknowledged);
        }
        let mut rate = 0;
        if let Some(moved) = session.moved {
            rate = moved.rate_to_client.saturating_add(moved.rate_to_server);
            let rates = self.rates.get_or_insert([0, 0]);
            rates[0] = rates[0].saturating_add(moved.rate_to_client);
            rates[1] = rates[1].saturating_add(moved.rate_to_server);
            if let Some(held) = moved.held_by {
                // The weight of a session is its rate. A session that cannot move anything counts, too.
                #[allow(clippy::cast_precision_loss)]
                let weight = rate.max(1) as f32;
                self.held.add(&held, weight);
                self.weight += weight;
            }
        }
        if self.fastest.is_none_or(|(fastest, _)| rate > fastest) {
            self.fastest = Some((rate, session));
        }
    }

    fn figures(&self) -> RowFigures {
        let fastest = self.fastest.map(|(_, session)| session);
        let legs = fastest.map(|session| [&session.client_leg, &session.server_leg]);
        let leg = |place: usize| LegRow {
            retransmitted_ratio: LegReading {
                retransmitted: self.sent[place].0,
                acknowledged: self.sent[place].1,
                ..LegReading::default()
            }
            .retransmitted_ratio(),
            ..legs
                .map(|legs| LegRow::from(legs[place]))
                .unwrap_or_default()
        };
        let held_by = (self.weight > 0.0).then(|| {
            let mut mean = HeldBy::default();
            mean.add(&self.held, 1.0 / self.weight);
            mean
        });
        let moved = fastest.and_then(|session| session.moved);
        let direction = moved.filter(|moved| moved.rate_to_client + moved.rate_to_server > 0);
        RowFigures {
            bytes_to_client: self.bytes[0],
            bytes_to_server: self.bytes[1],
            rate_to_client_bits_per_second: self.rates.map(|rates| rates[0]),
            rate_to_server_bits_per_second: self.rates.map(|rates| rates[1]),
            direction: direction.map(|moved| {
                let name = match moved.direction {
                    Direction::ToClient => "to_client",
                    Direction::ToServer => "to_server",
                };
                name.to_owned()
            }),
            held: held_by.map(|held| held.most()),
            held_by,
            client_leg: leg(0),
            server_leg: leg(1),
            start: fastest.and_then(|session| session.start).map(|learned| {
                let name = if learned { "learned" } else { "cold" };
                name.to_owned()
            }),
        }
    }
}

/// The legs of all sessions.
pub(super) fn legs(sessions: &[Figures]) -> Legs {
    let summary = |leg: fn(&Figures) -> &LegReading| {
        let mut times: Vec<TimeSpan> = sessions
            .iter()
            .filter_map(|session| leg(session).round_trip_time)
            .collect();
        times.sort_unstable();
        let sum = sessions
            .iter()
            .map(leg)
            .fold(LegReading::default(), |sum, leg| LegReading {
                retransmitted: sum.retransmitted.saturating_add(leg.retransmitted),
                acknowledged: sum.acknowledged.saturating_add(leg.acknowledged),
                ..sum
            });
        let quantile = |percent: usize| {
            let rank = (times.len() * percent).div_ceil(100).saturating_sub(1);
            times.get(rank).map(|time| time.as_seconds())
        };
        LegsSummary {
            rtt_median_seconds: quantile(50),
            rtt_95_seconds: quantile(95),
            retransmitted_ratio: sum.retransmitted_ratio(),
        }
    };
    Legs {
        client: summary(|session| &session.client_leg),
        server: summary(|session| &session.server_leg),
    }
}
