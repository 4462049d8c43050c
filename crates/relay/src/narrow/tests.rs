use std::net::{SocketAddr, UdpSocket};

use midspan_policy::learned_start::{LearnedStart, SEGMENT};
use midspan_policy::oversized_segments::SegmentSizes;
use midspan_policy::sending_ahead::SendAhead;
use midspan_policy::{Configured, Policy, SessionSettings};

use super::*;
use crate::knowledge::SharedKnowledge;

fn everyone() -> AccessProfile {
    AccessProfile {
        name: "everyone".to_owned(),
        clients: Vec::new(),
        downstream: None,
        upstream: None,
        oversized_segments: SegmentSizes::Off,
        send_ahead: SendAhead::Off,
        fragment_size: None,
        timestamps: true,
        hold_to_fill: TimeSpan::ZERO,
    }
}

/// A leg whose socket the kernel refuses to read and to change: one of UDP has no option of TCP.
fn begin(with: Vec<AccessProfile>, bound: Option<u32>) -> (Option<Box<NarrowLeg>>, u64) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let client = IpAddr::from([192, 0, 2, 1]);
    let server = SocketAddr::from(([192, 0, 2, 2], 80));
    let listener = Listener {
        profiles: with,
        ..Listener::new("test", server.into())
    };
    let profiles = Profiles {
        listener: Arc::new(listener),
        verdicts: Remembered::default(),
    };
    let mut policy = Configured::new(SessionSettings::default());
    let mut known = SharedKnowledge::default();
    let decides = (&mut policy as &mut dyn Policy, &mut known);
    let window = bound.map(|bound| LearnedStart {
        window: 640,
        bound: Some(bound),
        rate: None,
        is_lossy: false,
    });
    NarrowLeg::begin(&socket, client, &profiles, decides, window, Time::ZERO)
}

#[test]
fn a_start_is_bounded_even_if_the_kernel_refuses_everything() {
    for profiles in [Vec::new(), vec![everyone()]] {
        let (leg, refused) = begin(profiles, Some(80));
        let leg = leg.unwrap();
        let first_flight = ByteSize::from_bytes(80 * u64::from(SEGMENT));
        assert_eq!((leg.cap(), refused), (Some(first_flight), 1));
        assert_eq!(leg.room(), None);
    }
}

#[test]
fn without_a_bound_such_a_leg_is_left_as_it_is() {
    let (leg, refused) = begin(vec![everyone()], None);
    assert!(leg.is_none());
    assert_eq!(refused, 1);
}
