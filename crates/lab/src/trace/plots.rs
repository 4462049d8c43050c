//! Time series as plots: the cases of a flow above each other, with the same axes.

use midspan_path::{Direction, Flow, Path};
use midspan_report::{Axis, Content, Panel, PanelPlot, Section, Series};
use midspan_units::{Time, TimeSpan, number};

use super::{RunTrace, SocketSample};
use crate::emulator::{DirectionSeries, Recorded};

/// A section for each flow with time series; none if nothing was recorded.
#[must_use]
pub fn sections(path: &Path, traces: &[RunTrace]) -> Vec<Section> {
    let flows = path.flows.iter().enumerate();
    flows
        .filter_map(|(index, flow)| {
            let own: Vec<&RunTrace> = traces
                .iter()
                .filter(|trace| trace.flows.contains(&index))
                .collect();
            let plots = [
                sockets(&own, index, "congestion window", "bytes", |sample| {
                    Some(number(sample.cwnd))
                }),
                sockets(&own, index, "smoothed round-trip time", "s", |sample| {
                    sample.round_trip.map(TimeSpan::as_seconds)
                }),
                links(path, flow, &own, "queue", "packets", queue),
                links(path, flow, &own, "rate", "bit/s", rate),
            ];
            let content: Vec<Content> = plots.into_iter().flatten().map(Content::Panels).collect();
            (!content.is_empty()).then(|| Section {
                heading: format!("Time series: {}", flow.name),
                text: "First repetition. All charts of a picture have the same axes. Legs and links are \
                       numbered and named in the direction of the data."
                    .to_owned(),
                content,
            })
        })
        .collect()
}

/// A value of the sending sockets of a flow, a chart for each case.
fn sockets(
    traces: &[&RunTrace],
    flow: usize,
    quantity: &str,
    unit: &str,
    value: impl Fn(&SocketSample) -> Option<f64>,
) -> Option<PanelPlot> {
    plot(traces, quantity, unit, |trace| {
        let legs = &trace.sockets.legs;
        let mut points = vec![Vec::new(); legs.len()];
        for sample in &trace.sockets.samples {
            if let (Some(points), Some(value)) = (points.get_mut(sample.leg), value(sample)) {
                points.push((sample.at.since(Time::ZERO).as_seconds(), value));
            }
        }
        let own = legs.iter().zip(points).filter(|(leg, _)| leg.flow == flow);
        own.map(|(leg, points)| Series {
            name: format!("{}, leg {}", leg.name, leg.leg),
            points,
        })
        .collect()
    })
}

/// A series of the links that the data of a flow crosses, a chart for each case.
fn links(
    path: &Path,
    flow: &Flow,
    traces: &[&RunTrace],
    quantity: &str,
    unit: &str,
    points: impl Fn(&DirectionSeries) -> Vec<(f64, f64)>,
) -> Option<PanelPlot> {
    let way = path.data_way(flow);
    plot(traces, quantity, unit, |trace| {
        let hops = way.iter().filter_map(|hop| {
            let Recorded { up, down, .. } = trace.links.get(hop.link.0)?;
            Some(Series {
                name: path.link(hop.link).name.clone(),
                points: points(match hop.direction {
                    Direction::Up => up,
                    Direction::Down => down,
                }),
            })
        });
        hops.collect()
    })
}

fn queue(series: &DirectionSeries) -> Vec<(f64, f64)> {
    let samples = series.queue.iter();
    samples
        .map(|sample| {
            let packets = number(sample.waiting.packets as u64);
            (sample.at.since(Time::ZERO).as_seconds(), packets)
        })
        .collect()
}

fn rate(series: &DirectionSeries) -> Vec<(f64, f64)> {
    let samples = series.rate.iter();
    samples
        .map(|sample| {
            let rate = number(sample.bits_per_second);
            (sample.end.since(Time::ZERO).as_seconds(), rate)
        })
        .collect()
}

/// The charts of all cases; `None` if no chart has a line.
fn plot(
    traces: &[&RunTrace],
    quantity: &str,
    unit: &str,
    series: impl Fn(&RunTrace) -> Vec<Series>,
) -> Option<PanelPlot> {
    let panels: Vec<Panel> = traces
        .iter()
        .map(|trace| Panel {
            name: trace.run.case.to_owned(),
            series: series(trace),
        })
        .collect();
    let mut all = panels.iter().flat_map(|panel| &panel.series);
    all.any(|series| !series.points.is_empty())
        .then(|| PanelPlot {
            title: String::new(),
            x: Axis::new("time", "s"),
            y: Axis::new(quantity, unit),
            columns: 1,
            panels,
        })
}

#[cfg(test)]
mod tests {
    use midspan_link::{RateSample, Waiting};

    use super::*;
    use crate::emulator::QueueSample;
    use crate::trace::{LegName, RunName, SocketSeries};

    fn at(seconds: u64) -> Time {
        Time::ZERO + TimeSpan::from_seconds(seconds)
    }

    fn trace(path: &Path, case: &'static str, legs: usize) -> RunTrace {
        let leg = |leg| LegName {
            flow: 0,
            name: path.flows[0].name.clone(),
            leg,
        };
        let sample = |leg| SocketSample {
            at: at(leg as u64 + 1),
            leg,
            cwnd: 14_480,
            ssthresh: None,
            in_flight: 0,
            round_trip: None,
        };
        let mut links = vec![Recorded::default(); path.links.len()];
        links[0].down.queue.push(QueueSample {
            at: at(3),
            waiting: Waiting {
                packets: 7,
                bytes: 9_000,
            },
        });
        links[0].down.rate.push(RateSample {
            end: at(4),
            bytes: 1_000,
            bits_per_second: 80_000,
        });
        RunTrace {
            run: RunName {
                case,
                group: 0,
                repetition: 0,
                seed: 1,
            },
            flows: vec![0],
            sockets: SocketSeries {
                legs: (1..=legs).map(leg).collect(),
                samples: (0..legs).map(sample).collect(),
                ..SocketSeries::default()
            },
            links,
            notes: Vec::new(),
            failure: None,
        }
    }

    #[test]
    fn the_cases_of_a_flow_are_charts_with_the_same_axes() {
        let path = Path::load("geo").unwrap();
        assert_eq!(sections(&path, &[]), []);
        let traces = [trace(&path, "direct", 1), trace(&path, "midspan", 2)];
        let sections = sections(&path, &traces);
        assert_eq!(sections.len(), 1);
        let plots: Vec<&PanelPlot> = sections[0]
            .content
            .iter()
            .filter_map(|content| match content {
                Content::Panels(plot) => Some(plot),
                _ => None,
            })
            .collect();
        // No round trip was recorded, so there is no picture of it.
        let names: Vec<_> = plots.iter().map(|plot| plot.y.label.as_str()).collect();
        assert_eq!(names, ["congestion window", "queue", "rate"]);
        let cases: Vec<_> = plots[0]
            .panels
            .iter()
            .map(|panel| panel.name.as_str())
            .collect();
        assert_eq!(cases, ["direct", "midspan"]);
        let legs: Vec<_> = plots[0]
            .panels
            .iter()
            .map(|panel| panel.series.len())
            .collect();
        assert_eq!(legs, [1, 2]);
        assert_eq!(plots[0].panels[1].series[1].points, [(2.0, 14_480.0)]);
        // The data of a download crosses the satellite link last, downwards.
        let last = plots[1].panels[0].series.last().unwrap();
        assert_eq!(
            (last.name.as_str(), &last.points[..]),
            ("satellite", &[(3.0, 7.0)][..])
        );
        assert_eq!(
            plots[2].panels[0].series.last().unwrap().points,
            [(4.0, 80_000.0)]
        );
    }
}
