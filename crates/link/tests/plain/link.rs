//! A link compared with figures that were computed by hand.

use crate::common::*;
use midspan_link::{
    Configuration, Count, DropReason, Link, QueueLimit, Schedule, Stage, State, Step,
};
use midspan_units::{ByteSize, Probability, Time, TimeSpan};

fn scheduled(state: State, steps: &[Step], repeat: Option<&str>) -> Link<Numbered> {
    link(Configuration {
        state,
        schedule: Schedule {
            steps: steps.to_vec(),
            repeat: repeat.map(span),
        },
        ..Configuration::default()
    })
}

#[test]
fn full_packets_at_ten_megabits_leave_every_1200_microseconds() {
    let mut link = link(constant("10 Mbit/s", "250 ms", "0 %"));
    let fates = run(&mut link, &[(Time::ZERO, 1500); 4]);
    assert_eq!(
        delivery_times(&fates),
        [251_200_000, 252_400_000, 253_600_000, 254_800_000]
    );
}

#[test]
fn an_idle_link_starts_when_the_packet_arrives() {
    let mut link = link(constant("10 Mbit/s", "0 s", "0 %"));
    let fates = run(
        &mut link,
        &[(us(0), 1500), (us(1200), 1500), (us(5000), 1500)],
    );
    assert_eq!(delivery_times(&fates), [1_200_000, 2_400_000, 6_200_000]);
}

#[test]
fn a_late_caller_shifts_nothing() {
    let arrivals = [(us(0), 1500), (us(100), 1500), (us(200), 1500)];
    let mut late = link(constant("10 Mbit/s", "10 ms", "0 %"));
    for (number, (at, size)) in arrivals.iter().enumerate() {
        let size = *size;
        late.handle(*at, Numbered { number, size });
    }
    // There is no poll for a second; then another packet arrives.
    late.handle(
        ms(1000),
        Numbered {
            number: 3,
            size: 1500,
        },
    );
    let fates = by_number(&drain(&mut late, ms(2000)), 4);
    assert_eq!(
        delivery_times(&fates),
        [11_200_000, 12_400_000, 13_600_000, 1_011_200_000]
    );
}

#[test]
fn overhead_is_sent_too() {
    // 1462 + 38 bytes, as on Ethernet with preamble and gap.
    let mut link = link(Configuration {
        overhead: 38,
        ..constant("10 Mbit/s", "0 s", "0 %")
    });
    let fates = run(&mut link, &[(Time::ZERO, 1462); 2]);
    assert_eq!(delivery_times(&fates), [1_200_000, 2_400_000]);
    assert_eq!(link.counters().delivered.bytes, 2 * 1462);
}

#[test]
fn without_a_rate_only_the_delay_counts() {
    let mut link = link(Configuration {
        queue: QueueLimit::Packets(0),
        ..constant("", "3 ms", "0 %")
    });
    let fates = run(&mut link, &[(us(7), 1500), (us(7), 40), (us(8), 9000)]);
    assert_eq!(delivery_times(&fates), [3_007_000, 3_007_000, 3_008_000]);
    assert_eq!(link.counters().queue_peak_packets, 0);
}

#[test]
fn a_queue_of_n_holds_exactly_n_and_the_one_being_sent() {
    for limit in [0, 1, 2, 10] {
        let mut link = link(Configuration {
            queue: QueueLimit::Packets(limit),
            ..constant("10 Mbit/s", "1 ms", "0 %")
        });
        let fates = run(&mut link, &[(us(3), 1500); 14]);
        let taken = limit as usize + 1;
        for (number, fate) in fates.iter().enumerate() {
            let expected = if number < taken {
                Fate::Delivered(1_003_000 + 1_200_000 * (number as u64 + 1))
            } else {
                Fate::Dropped(3_000, DropReason::QueueFull)
            };
            assert_eq!(*fate, expected, "limit {limit}, packet {number}");
        }
        assert_eq!(link.counters().queue_peak_packets, u64::from(limit));
    }
}

#[test]
fn a_departure_makes_room_for_an_arrival_at_the_same_instant() {
    let mut link = link(Configuration {
        queue: QueueLimit::Packets(1),
        ..constant("10 Mbit/s", "0 s", "0 %")
    });
    let just_before = ns(1_199_999);
    let fates = run(
        &mut link,
        &[
            (us(0), 1500),
            (us(0), 1500),
            (just_before, 1500),
            (us(1200), 1500),
        ],
    );
    assert_eq!(fates[2], Fate::Dropped(1_199_999, DropReason::QueueFull));
    assert_eq!(fates[3], Fate::Delivered(3_600_000));
}

#[test]
fn a_byte_limit_counts_bytes_without_overhead() {
    let mut link = link(Configuration {
        queue: QueueLimit::Bytes(ByteSize::from_bytes(3000)),
        overhead: 500,
        ..constant("8 Mbit/s", "0 s", "0 %")
    });
    let sizes = [1000, 1500, 1460, 41, 40, 1];
    let arrivals: Vec<_> = sizes.into_iter().map(|size| (us(0), size)).collect();
    let full = Fate::Dropped(0, DropReason::QueueFull);
    assert_eq!(
        run(&mut link, &arrivals),
        [
            Fate::Delivered(1_500_000),
            Fate::Delivered(3_500_000),
            Fate::Delivered(5_460_000),
            full,
            Fate::Delivered(6_000_000),
            full,
        ]
    );
    assert_eq!(link.counters().queue_peak_bytes, 3000);
}

#[test]
fn a_slower_rate_in_mid_packet_leaves_what_was_sent() {
    // Half of the packet is sent at 10 Mbit/s in 0.6 ms, the other half at 5 Mbit/s in 1.2 ms.
    let steps = [rate_step("600 us", "5 Mbit/s")];
    let mut link = scheduled(state("10 Mbit/s", "0 s", "0 %"), &steps, None);
    let fates = run(&mut link, &[(us(0), 1500), (us(0), 1500)]);
    assert_eq!(delivery_times(&fates), [1_800_000, 4_200_000]);
}

#[test]
fn a_rate_may_change_several_times_in_one_packet() {
    // 12,000 bits: 100 µs at 10 (1,000), 200 µs at 1 (200), 300 µs at 20 (6,000), 4,800 at 5.
    let steps = [
        rate_step("100 us", "1 Mbit/s"),
        rate_step("300 us", "20 Mbit/s"),
        rate_step("600 us", "5 Mbit/s"),
    ];
    let mut link = scheduled(state("10 Mbit/s", "0 s", "0 %"), &steps, None);
    let fates = run(&mut link, &[(us(0), 1500)]);
    assert_eq!(delivery_times(&fates), [600_000 + 960_000]);
}

#[test]
fn a_rate_may_begin_after_an_unlimited_time() {
    let steps = [rate_step("1 ms", "10 Mbit/s")];
    let mut link = scheduled(state("", "0 s", "0 %"), &steps, None);
    let fates = run(&mut link, &[(us(999), 1500), (us(1000), 1500)]);
    assert_eq!(delivery_times(&fates), [999_000, 2_200_000]);
}

#[test]
fn a_shorter_delay_does_not_reorder() {
    let steps = [Step {
        delay: Some(span("5 ms")),
        ..step("10 ms")
    }];
    let mut link = scheduled(state("10 Mbit/s", "40 ms", "0 %"), &steps, None);
    // Sent at 1.2, 10.2 (due 15.2, but not before the first packet) and 41.2 ms.
    let fates = run(&mut link, &[(ms(0), 1500), (ms(9), 1500), (ms(40), 1500)]);
    assert_eq!(delivery_times(&fates), [41_200_000, 41_200_000, 46_200_000]);
}

#[test]
fn the_delay_is_that_of_the_end_of_the_transmission() {
    let steps = [Step {
        delay: Some(span("5 ms")),
        ..step("1200 us")
    }];
    let arrivals = [(us(0), 1500), (us(0), 1500)];
    let mut link = scheduled(state("10 Mbit/s", "1 ms", "0 %"), &steps, None);
    // The first packet ends at the time of the change, and is not affected by it.
    let fates = run(&mut link, &arrivals);
    assert_eq!(delivery_times(&fates), [2_200_000, 7_400_000]);
}

#[test]
fn an_outage_is_a_loss_of_all_packets_and_uses_the_rate() {
    let steps = [
        loss_step("1 ms", Probability::ONE),
        loss_step("3 ms", Probability::ZERO),
    ];
    let mut link = scheduled(state("10 Mbit/s", "1 ms", "0 %"), &steps, Some("10 ms"));
    let mut arrivals = vec![(us(0), 1500); 4];
    arrivals.extend([(us(10_000), 1500); 4]);
    let expected = |start: u64| {
        [
            Fate::Dropped(start + 1_200_000, DropReason::Lost),
            Fate::Dropped(start + 2_400_000, DropReason::Lost),
            Fate::Delivered(start + 4_600_000),
            Fate::Delivered(start + 5_800_000),
        ]
    };
    let fates = run(&mut link, &arrivals);
    assert_eq!(fates[..4], expected(0));
    assert_eq!(fates[4..], expected(10_000_000));
    assert_eq!(
        link.counters().lost,
        Count {
            packets: 4,
            bytes: 6000
        }
    );
}

#[test]
fn a_schedule_repeats_and_keeps_what_no_step_sets() {
    // 10 Mbit/s only until 5 ms; then 5 Mbit/s, and from 8 ms of each 10 ms on 20 Mbit/s.
    let steps = [
        rate_step("5 ms", "5 Mbit/s"),
        rate_step("8 ms", "20 Mbit/s"),
    ];
    let mut link = scheduled(state("10 Mbit/s", "0 s", "0 %"), &steps, Some("10 ms"));
    let sent: Vec<_> = [0, 5, 8, 10, 15, 18, 1_000_000_010, 1_000_000_015]
        .into_iter()
        .map(|at| (ms(at), 1500))
        .collect();
    let times = delivery_times(&run(&mut link, &sent));
    let taken: Vec<u64> = times
        .iter()
        .zip(&sent)
        .map(|(due, (at, _))| (due - at.nanoseconds()) / 1000)
        .collect();
    assert_eq!(taken, [1200, 2400, 600, 600, 2400, 600, 600, 2400]);
}

#[test]
fn an_idle_link_with_a_schedule_wakes_nobody() {
    let steps = [rate_step("0 s", "5 Mbit/s"), rate_step("1 ms", "20 Mbit/s")];
    let mut link = scheduled(state("10 Mbit/s", "0 s", "0 %"), &steps, Some("2 ms"));
    assert_eq!(link.poll_timeout(), None);
    link.handle(
        ms(3),
        Numbered {
            number: 0,
            size: 1500,
        },
    );
    assert!(link.poll(ms(3)).is_none());
    assert_eq!(link.poll_timeout(), Some(us(3600)));
    assert_eq!(drain(&mut link, us(3600)).len(), 1);
    assert_eq!(link.poll_timeout(), None);
}

#[test]
fn the_deadline_is_that_of_the_next_delivery() {
    let mut link = link(constant("10 Mbit/s", "10 ms", "0 %"));
    let packet = |number| Numbered { number, size: 1500 };
    link.handle(us(0), packet(0));
    link.handle(us(0), packet(1));
    assert!(link.poll(us(0)).is_none());
    assert_eq!(
        link.poll_timeout(),
        Some(us(1200)),
        "end of the transmission"
    );
    assert!(link.poll(us(1200)).is_none());
    assert_eq!(link.poll_timeout(), Some(us(11_200)), "delivery");
    assert_eq!(drain(&mut link, us(11_200)).len(), 1);
    assert_eq!(link.poll_timeout(), Some(us(12_400)));
    assert_eq!(drain(&mut link, us(12_400)).len(), 1);
    assert_eq!(link.poll_timeout(), None);
}

#[test]
fn time_never_goes_back() {
    let mut link = link(constant("10 Mbit/s", "0 s", "0 %"));
    assert!(link.poll(ms(5)).is_none());
    link.handle(
        ms(1),
        Numbered {
            number: 0,
            size: 1500,
        },
    );
    let fates = by_number(&drain(&mut link, ms(100)), 1);
    assert_eq!(delivery_times(&fates), [6_200_000]);
}

#[test]
fn all_comes_out_at_the_end_of_time() {
    let steps = [rate_step("0 s", "5 Mbit/s"), rate_step("1 ms", "20 Mbit/s")];
    let mut link = scheduled(state("10 Mbit/s", "1 s", "0 %"), &steps, Some("2 ms"));
    for number in 0..3 {
        link.handle(ms(1), Numbered { number, size: 1500 });
    }
    assert_eq!(drain(&mut link, END).len(), 3);
    assert_eq!(link.held(), 0);
}

#[test]
fn counters_add_up_while_packets_are_on_the_way() {
    let mut link = link(Configuration {
        queue: QueueLimit::Packets(2),
        ..constant("10 Mbit/s", "2 ms", "0 %")
    });
    for number in 0..5 {
        link.handle(us(0), Numbered { number, size: 1500 });
    }
    assert_eq!(
        drain(&mut link, us(3200)).len(),
        3,
        "two dropped, one delivered"
    );
    let counters = link.counters();
    let count = |packets| Count {
        packets,
        bytes: packets * 1500,
    };
    assert_eq!(counters.handled, count(5));
    assert_eq!(counters.delivered, count(1));
    assert_eq!(counters.dropped(DropReason::QueueFull), count(2));
    assert_eq!(counters.dropped(DropReason::Lost), count(0));
    assert_eq!((counters.held_packets(), link.held()), (2, 2));
    assert_eq!(
        (counters.queue_peak_packets, counters.queue_peak_bytes),
        (2, 3000)
    );
}

#[test]
fn a_wrong_schedule_is_refused() {
    let configuration = Configuration {
        schedule: Schedule {
            steps: vec![step("2 s"), step("1 s")],
            repeat: Some(TimeSpan::from_seconds(3)),
        },
        ..Configuration::default()
    };
    let error = Link::<Numbered>::new(configuration, loss_stream()).unwrap_err();
    assert!(error.to_string().contains("step 2"), "{error}");
}
