use proptest::prelude::*;

use super::*;

const KEEP: TimeSpan = TimeSpan::from_seconds(600);

fn request(client: &str, server: &str) -> Request {
    Request {
        client: client.parse().unwrap(),
        server: server.parse().unwrap(),
    }
}

fn at(seconds: u64) -> Time {
    Time::ZERO + TimeSpan::from_seconds(seconds)
}

#[test]
fn a_client_that_repeats_its_syn_gets_its_way() {
    let routes = AsymmetricRoutes::new(KEEP);
    let one = request("192.0.2.1:1000", "198.51.100.1:80");
    assert_eq!(routes.repeat(at(1), &one, 1), Passage::Intercept);
    assert_eq!(routes.repeat(at(3), &one, 2), Passage::PassWatched);
}

#[test]
fn a_dead_server_teaches_nothing() {
    let mut routes = AsymmetricRoutes::new(KEEP);
    let one = request("192.0.2.1:1000", "198.51.100.1:80");
    assert_eq!(routes.arrive(at(0), &one), Passage::Intercept);
    assert_eq!(routes.repeat(at(3), &one, 2), Passage::PassWatched);
    assert_eq!(routes.arrive(at(9), &one), Passage::Intercept);
    assert_eq!(routes.count(), 0);
}

#[test]
fn what_is_proven_holds_for_the_prefix_and_the_time() {
    for (client, server, near, far) in [
        (
            "192.0.2.1:1000",
            "198.51.100.1:80",
            "198.51.100.255:443",
            "198.51.101.1:80",
        ),
        (
            "[2001:db8::1]:1000",
            "[2001:db8:7::1]:80",
            "[2001:db8:7:8::1]:443",
            "[2001:db8:8::1]:80",
        ),
    ] {
        let mut routes = AsymmetricRoutes::new(KEEP);
        routes.prove(at(3), &request(client, server));
        assert_eq!(routes.arrive(at(4), &request(client, near)), Passage::Pass);
        assert_eq!(
            routes.repeat(at(4), &request(client, near), 1),
            Passage::Pass
        );
        assert_eq!(
            routes.arrive(at(4), &request(client, far)),
            Passage::Intercept
        );
        assert_eq!(
            routes.arrive(at(602), &request(client, near)),
            Passage::Pass
        );
        // One connection shows whether the route is still asymmetric …
        let again = request(client, server);
        assert_eq!(routes.arrive(at(604), &again), Passage::PassWatched);
        routes.prove(at(604), &again);
        assert_eq!(routes.arrive(at(605), &again), Passage::Pass);
        // … or no longer is.
        assert_eq!(routes.arrive(at(1300), &again), Passage::PassWatched);
        assert_eq!(routes.arrive(at(1301), &again), Passage::Intercept);
    }
}

#[test]
fn after_an_early_handshake_the_next_connection_decides() {
    let mut routes = AsymmetricRoutes::new(KEEP);
    let one = request("192.0.2.1:1000", "198.51.100.1:80");
    routes.suspect(at(30), &one);
    assert_eq!(routes.arrive(at(31), &one), Passage::PassWatched);
    assert_eq!(routes.arrive(at(32), &one), Passage::Intercept);
    routes.prove(at(33), &one);
    // A suspicion does not remove a proof.
    routes.suspect(at(34), &one);
    assert_eq!(routes.arrive(at(35), &one), Passage::Pass);
}

#[test]
fn nothing_is_learnt_where_it_is_switched_off() {
    let mut routes = AsymmetricRoutes::new(TimeSpan::ZERO);
    let one = request("192.0.2.1:1000", "198.51.100.1:80");
    assert_eq!(routes.repeat(at(9), &one, 9), Passage::Intercept);
    routes.prove(at(9), &one);
    routes.suspect(at(9), &one);
    assert_eq!(routes.arrive(at(9), &one), Passage::Intercept);
    assert_eq!(routes.count(), 0);
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Arrive,
    Repeat(u32),
    Suspect,
    Prove,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        Just(Step::Arrive),
        (1..5_u32).prop_map(Step::Repeat),
        Just(Step::Suspect),
        Just(Step::Prove),
    ]
}

fn address() -> impl Strategy<Value = std::net::SocketAddr> {
    prop_oneof![
        any::<u16>()
            .prop_map(|bits| (Ipv4Addr::from_bits(0x0a00_0000 | u32::from(bits) << 4), 80).into()),
        any::<u16>().prop_map(|bits| (
            Ipv6Addr::from_bits(0x2001_0db8_u128 << 96 | u128::from(bits) << 62),
            80
        )
            .into()),
    ]
}

proptest! {
    /// One client's behaviour does not change how another client's connections are treated.
    #[test]
    fn no_client_changes_what_another_gets(
        steps in prop::collection::vec((step(), address(), 0..2000_u64, any::<bool>()), 0..200),
    ) {
        let honest = "192.0.2.1:1000".parse().unwrap();
        let other = "192.0.2.2:1000".parse().unwrap();
        let (mut beside, mut alone) = (AsymmetricRoutes::new(KEEP), AsymmetricRoutes::new(KEEP));
        let mut now = 0;
        for (step, server, wait, is_honest) in steps {
            now += wait;
            let client = if is_honest { honest } else { other };
            let request = Request { client, server };
            let seen = take(&mut beside, step, at(now), &request);
            if is_honest {
                prop_assert_eq!(seen, take(&mut alone, step, at(now), &request));
            }
        }
    }

    /// The bounds hold, and both indices agree.
    #[test]
    fn what_is_remembered_is_bounded(
        clients in 1..40_u32,
        servers in 1..400_u32,
    ) {
        let mut routes = AsymmetricRoutes::new(KEEP);
        for server in 0..servers {
            for client in 0..clients {
                let one = Request {
                    client: (Ipv4Addr::from_bits(0xc000_0200 + client), 1000).into(),
                    server: (Ipv4Addr::from_bits(server << 8), 80).into(),
                };
                routes.prove(at(0), &one);
                // The newest route is never the one that is forgotten.
                prop_assert_eq!(routes.repeat(at(1), &one, 1), Passage::Pass);
            }
        }
        prop_assert!(routes.count() <= LIMIT);
        prop_assert_eq!(routes.routes.len(), routes.ages.len());
        for (route, known) in &routes.routes {
            prop_assert!(routes.ages.contains(&(known.age, *route)));
            prop_assert!(routes.count_of(route.client) <= LIMIT_PER_CLIENT);
        }
    }
}

fn take(
    routes: &mut AsymmetricRoutes,
    step: Step,
    now: Time,
    request: &Request,
) -> Option<Passage> {
    match step {
        Step::Arrive => Some(routes.arrive(now, request)),
        Step::Repeat(count) => Some(routes.repeat(now, request, count)),
        Step::Suspect => {
            routes.suspect(now, request);
            None
        }
        Step::Prove => {
            routes.prove(now, request);
            None
        }
    }
}
