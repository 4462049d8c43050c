//! Properties of every path: no NaN, no better result for a worse path, a split never better than
//! its slowest leg and equal to it with endless send buffers.

#![allow(clippy::unwrap_used)]

use midspan_document::Source;
use midspan_path::Path;
use midspan_plan::{Answer, DataPath, Plan, ProxyOnPath, along, buffers, place};
use midspan_policy::Buffer;
use midspan_units::ByteSize;
use proptest::prelude::*;

/// A path of 1 to 4 links with a proxy between each two, as a path file.
#[derive(Debug, Clone)]
struct Drawn {
    links: Vec<Link>,
    controls: Vec<Option<&'static str>>,
    send_buffer: Option<u64>,
    receive_buffer: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Link {
    rate: u64,
    /// One-way delay in microseconds.
    delay: u64,
    /// In millionths.
    loss: u64,
    /// In packets.
    queue: u64,
}

impl Drawn {
    fn path(&self) -> Path {
        use std::fmt::Write;
        let mut text = "[[host]]\nname = \"n0\"\n".to_owned();
        let control = |index: usize| {
            let name = self.controls[index % self.controls.len()];
            name.map_or_else(String::new, |name| {
                format!("congestion_control = \"{name}\"\n")
            })
        };
        if let Some(size) = self.receive_buffer {
            writeln!(text, "receive_buffer = \"{size} B\"").unwrap();
        }
        let last = self.links.len();
        for index in 1..last {
            writeln!(
                text,
                "[[proxy]]\nname = \"n{index}\"\n[proxy.client_leg]\n{}",
                control(index)
            )
            .unwrap();
            if let Some(size) = self.send_buffer {
                writeln!(text, "send_buffer = \"{size} B\"").unwrap();
            }
        }
        writeln!(text, "[[host]]\nname = \"n{last}\"\n{}", control(last)).unwrap();
        for (index, link) in self.links.iter().enumerate() {
            let next = index + 1;
            writeln!(
                text,
                "[[link]]\nname = \"l{index}\"\nbetween = [\"n{index}\", \"n{next}\"]\n\
                 rate = \"{} bit/s\"\ndelay = \"{} us\"\nqueue = \"{} packets\"\n\
                 down = {{ loss = \"{}.{:06}\" }}",
                link.rate,
                link.delay,
                link.queue,
                link.loss / 1_000_000,
                link.loss % 1_000_000
            )
            .unwrap();
        }
        writeln!(
            text,
            "[[flow]]\nname = \"f\"\nfrom = \"n0\"\nto = \"n{last}\"\nworkload = \"download\"\nsize = \"1 MB\""
        )
        .unwrap();
        Path::read(&Source::new("drawn.toml", text)).unwrap()
    }

    fn data_path(&self) -> DataPath {
        DataPath::of_path(&self.path()).unwrap().remove(0)
    }
}

fn log_uniform(low: f64, high: f64) -> impl Strategy<Value = u64> {
    (libm::log(low)..libm::log(high)).prop_map(|value| libm::exp(value) as u64)
}

fn any_link() -> impl Strategy<Value = Link> {
    let delay = prop_oneof![1 => Just(0), 9 => log_uniform(1.0, 1e6)];
    let loss = prop_oneof![2 => Just(0), 7 => log_uniform(1.0, 1e5), 1 => Just(999_999)];
    (log_uniform(1e4, 1e10), delay, loss, 0u64..3000).prop_map(|(rate, delay, loss, queue)| Link {
        rate,
        delay,
        loss,
        queue,
    })
}

/// The formulas that are not computed on a grid.
fn smooth() -> impl Strategy<Value = Option<&'static str>> {
    prop_oneof![Just(None), Just(Some("cubic")), Just(Some("bbr"))]
}

fn any_drawn(control: impl Strategy<Value = Option<&'static str>>) -> impl Strategy<Value = Drawn> {
    (
        prop::collection::vec(any_link(), 1..=4),
        prop::collection::vec(control, 4),
        prop::option::of(log_uniform(5e3, 1e8)),
        prop::option::of(log_uniform(5e3, 1e8)),
    )
        .prop_map(|(links, controls, send_buffer, receive_buffer)| Drawn {
            links,
            controls,
            send_buffer,
            receive_buffer,
        })
}

fn any_control() -> impl Strategy<Value = Option<&'static str>> {
    prop_oneof![3 => smooth(), 1 => Just(Some("reno")), 1 => Just(Some("vegas"))]
}

fn split(drawn: &Drawn) -> f64 {
    let data_path = drawn.data_path();
    Answer::new(&data_path, &data_path.proxies)
        .unwrap()
        .throughput()
}

fn at_least(better: f64, worse: f64) -> bool {
    better >= worse * (1.0 - 1e-6)
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        rng_seed: proptest::test_runner::RngSeed::Fixed(1),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config(150))]

    #[test]
    fn every_number_of_a_plan_is_finite(drawn in any_drawn(any_control())) {
        let plan = Plan::new(&drawn.path()).unwrap();
        let records = plan.records();
        prop_assert!(!records.is_empty() && !plan.text().is_empty());
        for record in &records {
            prop_assert!(record.value.is_finite() && record.value >= 0.0, "{record:?}");
        }
        prop_assert!(!plan.text().contains("NaN") && !plan.text().contains("inf "));
        let data_path = drawn.data_path();
        for tenth in along(&data_path).unwrap() {
            prop_assert!(tenth.answer.throughput().is_finite());
        }
        for (size, time) in Answer::new(&data_path, &data_path.proxies).unwrap().transfer_curve() {
            prop_assert!(size.is_finite() && time.is_finite() && time >= 0.0);
        }
    }

    #[test]
    fn a_split_is_never_better_than_its_slowest_leg(drawn in any_drawn(any_control())) {
        let data_path = drawn.data_path();
        let answer = Answer::new(&data_path, &data_path.proxies).unwrap();
        for leg in &answer.outcome.legs {
            let alone = leg.isolated.throughput.bits_per_second();
            prop_assert!(at_least(alone, answer.throughput()), "{alone} {}", answer.throughput());
        }
    }

    #[test]
    fn endless_send_buffers_give_the_slowest_leg(drawn in any_drawn(any_control())) {
        let data_path = drawn.data_path();
        let endless: Vec<ProxyOnPath> = data_path
            .proxies
            .iter()
            .map(|proxy| {
                let mut proxy = proxy.clone();
                proxy.outbound.send_buffer = Buffer::Fixed(ByteSize::from_bytes(1 << 50));
                proxy
            })
            .collect();
        let answer = Answer::new(&data_path, &endless).unwrap();
        prop_assert!(answer.outcome.coupling_loss() < 1e-3, "{}", answer.outcome.coupling_loss());
    }

    #[test]
    fn nothing_worse_is_faster(
        drawn in any_drawn(smooth()), at in any::<prop::sample::Index>(), factor in 1u64..50,
    ) {
        let here = split(&drawn);
        let at = at.index(drawn.links.len());
        let worse = |change: &dyn Fn(&mut Link)| {
            let mut worse = drawn.clone();
            change(&mut worse.links[at]);
            split(&worse)
        };
        let lossy = worse(&|link| link.loss = (link.loss * factor).min(999_999));
        prop_assert!(at_least(here, lossy), "loss: {here} {lossy}");
        let longer = worse(&|link| link.delay = (link.delay * factor).min(59_000_000));
        prop_assert!(at_least(here, longer), "delay: {here} {longer}");
        let slower = worse(&|link| link.rate = (link.rate / factor).max(100));
        prop_assert!(at_least(here, slower), "rate: {here} {slower}");
    }

    #[test]
    fn curves_rise_to_their_knee(drawn in any_drawn(smooth())) {
        let data_path = drawn.data_path();
        prop_assume!(!data_path.proxies.is_empty());
        let curve = buffers(&data_path).unwrap();
        for pair in curve.points.windows(2) {
            prop_assert!(at_least(
                pair[1].throughput.bits_per_second(),
                pair[0].throughput.bits_per_second()
            ));
        }
    }

    #[test]
    fn the_best_place_is_the_best_of_all(drawn in any_drawn(smooth())) {
        let data_path = drawn.data_path();
        for count in 1..=data_path.nodes.len().saturating_sub(2) {
            let ranking = place(&data_path, count, usize::MAX).unwrap();
            prop_assert!(ranking.exhaustive);
            for pair in ranking.placements.windows(2) {
                prop_assert!(pair[0].outcome.throughput >= pair[1].outcome.throughput);
            }
        }
        prop_assert!(place(&data_path, data_path.nodes.len(), 1).is_err());
    }
}
