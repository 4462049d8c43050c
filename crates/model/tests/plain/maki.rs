//! The printed figures of Maki et al.: Table I, Table II, §IV, and the statements of the text about
//! Figs 8–11.

#![allow(clippy::unwrap_used)]

use midspan_model::overlay::{Outcome, Reading};
use midspan_model::papers::maki::{self, Network};
use midspan_model::placement;
use midspan_units::{ByteSize, Probability, TimeSpan};

/// Like the paper's figures: the remaining digits are cut off, not rounded.
fn truncated(value: f64, decimals: i32) -> f64 {
    let scale = 10f64.powi(decimals);
    (value * scale).floor() / scale
}

fn network(loss: f64, delay_us: u64) -> (Probability, TimeSpan) {
    let delay = TimeSpan::from_nanoseconds(delay_us * 1000);
    (Probability::from_f64(loss).unwrap(), delay)
}

fn bytes(packets: u64) -> ByteSize {
    ByteSize::from_bytes(packets * 1000)
}

#[test]
fn table_1() {
    let printed = [
        "2.823370",
        "7.977354",
        "22.550680",
        "63.764141",
        "180.320358",
    ];
    for (row, printed) in maki::table_1().iter().zip(printed) {
        assert_eq!(format!("{:.6}", row.single), printed);
        let off = row.double / row.paper - 1.0;
        assert!(off.abs() < 3e-5, "{} legs: {}", row.legs, row.double);
    }
}

#[test]
fn table_1_in_double_precision() {
    let found: Vec<String> = maki::table_1()
        .iter()
        .map(|row| format!("{:.6}", row.double))
        .collect();
    let expected = [
        "2.823359",
        "7.977305",
        "22.550544",
        "63.764021",
        "180.325219",
    ];
    assert_eq!(found, expected);
}

#[test]
fn table_2() {
    for cell in maki::table_2().unwrap() {
        let expected = cell.expected.megabits_per_second();
        if (cell.network, cell.router) == (Network::Homogeneous, 2) {
            assert_eq!(truncated(expected, 3), 109.298);
        } else {
            assert_eq!(truncated(expected, 3), cell.paper, "R{}", cell.router);
        }
    }
}

#[test]
fn table_2_r2_with_the_coupling() {
    let cells = maki::table_2().unwrap();
    let of = |network, router| {
        let found = |c: &&maki::Table2Cell| (c.network, c.router) == (network, router);
        cells.iter().find(found).unwrap()
    };
    let rate = |outcome: &Outcome| outcome.throughput.megabits_per_second();
    let r2 = of(Network::Homogeneous, 2);
    // As printed, a send buffer of 64 packets gives every printed digit of R2 …
    assert_eq!(truncated(rate(&r2.printed), 2), 108.53);
    assert!((rate(&r2.conserving) - 108.540).abs() < 0.001);
    // … and lowers R1 and R3, which the paper prints without any interaction.
    assert!((rate(&of(Network::Homogeneous, 1).printed) - 59.463).abs() < 0.001);
    assert!((rate(&of(Network::Homogeneous, 3).printed) - 58.971).abs() < 0.001);
    // With packets conserved, R3 keeps its printed figure, and R1 deviates by 0.05 %.
    let r3 = of(Network::Homogeneous, 3);
    assert_eq!(truncated(rate(&r3.conserving), 3), 59.494);
    assert!((rate(&of(Network::Homogeneous, 1).conserving) - 59.463).abs() < 0.001);
    // In the heterogeneous network the legs hardly interact in either reading.
    for router in 1..=3 {
        let cell = of(Network::Heterogeneous, router);
        assert_eq!(truncated(rate(&cell.conserving), 3), cell.paper);
        assert_eq!(truncated(rate(&cell.printed), 3), cell.paper);
    }
}

/// §IV: split where the round trips are equal; isolate the lossy network if there is one.
#[test]
fn table_2_best_places() {
    for (network, best) in [(Network::Homogeneous, 2), (Network::Heterogeneous, 3)] {
        let path = maki::table_2_path(network).unwrap();
        for reading in [Reading::Printed, Reading::Conserving] {
            let setup = maki::setup(
                reading,
                maki::TABLE_2_RECEIVE_BUFFER,
                maki::TABLE_2_SEND_BUFFER,
            );
            let ranking = placement::rank(&path, &setup, 1, 3).unwrap();
            let found = &ranking.placements[0].positions;
            assert_eq!(found, &[best], "{network:?} {reading:?}");
        }
    }
}

#[test]
fn section_4_expects_about_800_kbit_per_second() {
    let expected = maki::expected_throughput();
    assert!((expected.bits_per_second() / 1e3 - 799.36).abs() < 0.005);
}

#[test]
fn section_4_a_leg_needs_10_kilobytes_by_itself() {
    let path = maki::figure_7_path([maki::figure_10_network(); 3]).unwrap();
    let outcome = maki::split(&path, Reading::Printed, bytes(64), bytes(64)).unwrap();
    let in_flight = outcome.legs[0].isolated.throughput.bits_per_second() / 8.0 * 0.1;
    assert!((in_flight / 1000.0 - 10.0).abs() < 0.05, "{in_flight}");
}

/// Fig. 8: LAN2 with p = 0.01 and D = 0.05 s; the WAN varies.
#[test]
fn figure_8_the_wan_limits_only_where_it_is_the_slowest() {
    let through = |wan_delay_ms: u64, loss: f64| {
        let networks = [
            network(0.001, 5_000),
            network(loss, wan_delay_ms * 1000),
            network(0.01, 50_000),
        ];
        let path = maki::figure_7_path(networks).unwrap();
        maki::split(&path, Reading::Conserving, bytes(4000), bytes(512)).unwrap()
    };
    // 5 and 50 ms: below a loss of 0.01, LAN2 is the slowest leg and determines the throughput …
    let lan2 = through(5, 1e-5).legs[2].isolated.throughput;
    for delay in [5, 50] {
        for loss in [1e-5, 1e-4, 1e-3, 5e-3] {
            let outcome = through(delay, loss);
            assert_eq!(outcome.slowest, 2, "{delay} ms, {loss}");
            let share = outcome.throughput.ratio(lan2).unwrap();
            assert!(share > 0.97, "{delay} ms, {loss}: {share}");
        }
    }
    // … above it the WAN does: at once for 50 ms, from about 0.025 for 5 ms.
    for (delay, loss) in [(50, 0.011), (50, 0.1), (5, 0.03), (5, 0.1)] {
        assert_eq!(through(delay, loss).slowest, 1, "{delay} ms, {loss}");
    }
    // 500 ms: the WAN is the slowest leg from a loss of about 0.0001.
    assert_eq!(through(500, 1e-4).slowest, 2);
    assert_eq!(through(500, 2e-4).slowest, 1);
    assert!(through(500, 1e-2).throughput < through(500, 1e-3).throughput);
}

/// The losses and delays (in µs) of LAN2 in Figs 9 and 10; the axes are not printed.
fn lan2_grid() -> Vec<(f64, u64)> {
    let mut grid = Vec::new();
    for loss in [1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1] {
        for delay in [1_000, 10_000, 50_000, 100_000, 500_000] {
            grid.push((loss, delay));
        }
    }
    grid
}

/// Fig. 9 according to §III as printed, with buffers of the 10 KB that a leg needs.
///
/// "About 3 times" if LAN2 is at least as lossy and as long as the other two, which the text
/// assumes (§III C). A long LAN2 with hardly any loss would gain more: 8.5 times in this grid.
#[test]
fn figure_9_splitting_always_wins_up_to_about_3_times() {
    let (mut most, mut most_of_all): (f64, f64) = (0.0, 0.0);
    for (loss, delay) in lan2_grid() {
        let lan2 = network(loss, delay);
        let path =
            maki::figure_7_path([maki::figure_10_network(), maki::figure_10_network(), lan2])
                .unwrap();
        let split = maki::split(&path, Reading::Printed, bytes(64), bytes(10)).unwrap();
        let ratio = split.throughput.ratio(maki::unsplit(&path)).unwrap();
        assert!(ratio > 1.0, "{loss} {delay} µs: {ratio}");
        if loss >= 0.01 && delay >= 50_000 {
            most = most.max(ratio);
        }
        most_of_all = most_of_all.max(ratio);
    }
    assert!((most - 3.64).abs() < 0.02, "{most}");
    assert!((most_of_all - 8.5).abs() < 0.1, "{most_of_all}");
}

/// Fig. 10 according to §III as printed.
#[test]
fn figure_10_the_interaction_costs_up_to_about_40_percent() {
    let loss_at = |lan2, packets| {
        let path =
            maki::figure_7_path([maki::figure_10_network(), maki::figure_10_network(), lan2])
                .unwrap();
        maki::split(&path, Reading::Printed, bytes(64), bytes(packets))
            .unwrap()
            .coupling_loss()
    };
    // Three equal legs: 35 % with the smallest send buffer, 30 % with the leg's own need.
    let equal = maki::figure_10_network();
    assert!(
        (loss_at(equal, 1) - 0.345).abs() < 0.01,
        "{}",
        loss_at(equal, 1)
    );
    assert!(
        (loss_at(equal, 10) - 0.300).abs() < 0.01,
        "{}",
        loss_at(equal, 10)
    );
    // A LAN2 that is by far the slowest leg keeps its send buffer full, and the others hardly
    // affect it.
    assert!(loss_at(network(0.1, 500_000), 64) < 0.01);
    assert!(loss_at(network(0.03, 100_000), 64) < loss_at(equal, 64));
}

/// Fig. 11: three equal networks.
#[test]
fn figure_11_a_send_buffer_of_512_kilobytes_removes_the_interaction() {
    let path = maki::figure_7_path([maki::figure_10_network(); 3]).unwrap();
    for reading in [Reading::Printed, Reading::Conserving] {
        let share = |receive, send| {
            let outcome = maki::split(&path, reading, bytes(receive), bytes(send)).unwrap();
            outcome.throughput.ratio(outcome.expected).unwrap()
        };
        let shares: Vec<f64> = [8, 16, 32, 64, 128, 256, 512, 1024]
            .map(|send| share(64, send))
            .to_vec();
        for pair in shares.windows(2) {
            assert!(pair[0] < pair[1], "{reading:?}: {shares:?}");
        }
        assert!(shares[0] < 0.85, "{reading:?}: {shares:?}");
        assert!(shares[6] > 0.98, "{reading:?}: {shares:?}");
        // The receive buffer has little effect.
        assert!(
            (share(16, 64) - share(1024, 64)).abs() < 0.01,
            "{reading:?}"
        );
    }
}
