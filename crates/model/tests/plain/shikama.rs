//! Statements of Shikama's text about bursts (§5.1) and about the queues that they enter (Table 1).

use midspan_model::burst;
use midspan_model::papers::shikama;
use midspan_units::Probability;

#[test]
fn section_5_1_largest_bursts() {
    for figure in shikama::largest_bursts() {
        assert_eq!(figure.value, figure.paper, "{}", figure.case);
    }
}

#[test]
fn section_5_1_fewer_losses_make_larger_bursts() {
    let mean = |loss| {
        let loss = Probability::from_f64(loss).unwrap();
        burst::mean_burst(&shikama::wireless(loss))
    };
    // P_L = 0.001: the whole window; P_L = 0.01: well below it.
    assert_eq!(mean(0.001), 43.0);
    assert!((mean(0.01) - 17.28).abs() < 0.01, "{}", mean(0.01));
    assert!(mean(0.1) < mean(0.01));
    assert_eq!(mean(0.0), 0.0);
    assert_eq!(mean(1.0), 0.0);
}

#[test]
fn sections_5_2_and_5_3_which_queues_the_largest_burst_overflows() {
    // B_L = 20 overflows; B_L = 50 cannot, so the losses of B in Figs 12 and 13 do not follow from
    // the text.
    let meets = shikama::largest_burst_meets;
    assert_eq!(meets(shikama::B_W, 20).lost, 18);
    assert_eq!(meets(shikama::B_W, 50).lost, 0);
    // §5.5: twice the bottleneck changes little.
    assert_eq!(meets(shikama::B_W_DOUBLED, 20).lost, 14);
    // Paced bursts overflow neither queue.
    let node = shikama::node_n2(shikama::B_W, 20);
    assert!(!node.overflows(burst::PACED_BURST));
    // "larger than the maximum window size (43)": no overflow whatever the rates.
    let stopped = shikama::node_n2("1 bit/s".parse().unwrap(), 43);
    assert!(!stopped.overflows(43));
}

#[test]
fn section_3_3_paces_at_the_rate_of_the_wireless_section() {
    let wireless = "5 Mbit/s".parse().unwrap();
    assert_eq!(burst::pacing_rate(wireless, shikama::B_W), wireless);
}
