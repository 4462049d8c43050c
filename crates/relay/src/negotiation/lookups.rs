//! The look-up of names: which names the resolver gets now, and which requests wait; pure.
//!
//! Addresses are kept for 10 s, and the result that a name has none for 2 s; upper and lower case do not
//! matter. A name that several clients request at the same time is looked up once. A client has at most 4
//! look-ups at a time, so if its names are in a zone that does not answer, only its own requests wait.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

use midspan_units::{Time, TimeSpan};

use crate::limits::Client;
use crate::table::Key;

/// How long addresses are kept, or the result that there are none.
pub const KEPT: TimeSpan = TimeSpan::from_seconds(10);
pub const KEPT_FAILURE: TimeSpan = TimeSpan::from_seconds(2);
/// Most names that are kept: about a kilobyte each at most.
const MOST_KEPT: usize = 4096;
/// Look-ups at a time of one client.
pub const MOST_OF_CLIENT: usize = 4;
/// Look-ups at a time of all clients together.
pub const MOST_OF_ALL: usize = 64;
/// From this number of look-ups on, a client that already has one gets no other: the rest is for
/// other clients.
const MOST_FURTHER: usize = MOST_OF_ALL / 4 * 3;
/// Names of one client, and of all, that wait for their turn.
const MOST_WAITING_OF_CLIENT: usize = 64;
const MOST_WAITING: usize = 4096;
/// After this time an answer counts as lost, because the resolver was ended. No negotiation waits
/// longer.
const LOST: TimeSpan = TimeSpan::from_seconds(30);
/// Time limit of a look-up, after which a negotiation gives up: the default time-outs of name servers, and a
/// little more.
pub const LONGEST_LOOK_UP: TimeSpan = TimeSpan::from_seconds(15);

/// The receiver of an answer: a thread and the key of its negotiation.
pub type Waiter = (usize, Key);

/// The immediate result of a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Asked {
    /// The addresses are already available.
    Known(Vec<IpAddr>),
    /// The answer will follow.
    Waiting,
    /// Too many requests wait.
    Refused,
}

/// Look-ups at the resolver, and requests that wait for it.
#[derive(Debug, Default)]
pub struct Lookups {
    kept: BTreeMap<String, (Time, Vec<IpAddr>)>,
    by_end: BTreeSet<(Time, String)>,
    running: BTreeMap<u64, Running>,
    by_name: BTreeMap<String, u64>,
    clients: BTreeMap<Client, OfClient>,
    /// Clients with waiting requests, in the order of their turns.
    turns: VecDeque<Client>,
    waiting: usize,
    next: u64,
    /// Look-ups to send to the resolver.
    outgoing: Vec<(u64, String)>,
}

#[derive(Debug)]
struct Running {
    name: String,
    client: Client,
    since: Time,
    waiters: Vec<Waiter>,
    /// The resolver has crashed since, and got the name once more.
    is_repeated: bool,
}

#[derive(Debug, Default)]
struct OfClient {
    running: usize,
    waiting: VecDeque<(Time, String, Waiter)>,
}

impl Lookups {
    /// A client requests the addresses of a name.
    pub fn ask(&mut self, now: Time, client: Client, name: &str, waiter: Waiter) -> Asked {
        let name = name.to_ascii_lowercase();
        self.forget_old(now);
        if let Some((_, addresses)) = self.kept.get(&name) {
            return Asked::Known(addresses.clone());
        }
        if self.join(&name, waiter) {
            return Asked::Waiting;
        }
        if self.has_room(client) {
            self.begin(now, client, name, waiter);
            return Asked::Waiting;
        }
        let of_client = self.clients.entry(client).or_default();
        if self.waiting >= MOST_WAITING || of_client.waiting.len() >= MOST_WAITING_OF_CLIENT {
            self.forget_client(client);
            return Asked::Refused;
        }
        of_client.waiting.push_back((now, name, waiter));
        self.waiting += 1;
        if !self.turns.contains(&client) {
            self.turns.push_back(client);
        }
        Asked::Waiting
    }

    /// The resolver has answered (`None`: it could not look the name up). Returns the receivers of
    /// the answer.
    pub fn answer(
        &mut self,
        now: Time,
        number: u64,
        addresses: Option<Vec<IpAddr>>,
    ) -> Vec<(Waiter, Option<Vec<IpAddr>>)> {
        let mut told = Vec::new();
        self.forget_old(now);
        if let Some(running) = self.end(number) {
            if let Some(addresses) = &addresses {
                self.keep(now, running.name, addresses.clone());
            }
            let waiters = running.waiters.into_iter();
            told.extend(waiters.map(|waiter| (waiter, addresses.clone())));
        }
        self.take_turns(now, &mut told);
        told
    }

    /// The resolver has crashed, and may have lost what it was looking up: it gets each name once more. A
    /// name that was there at two crashes is given up, because it may be their cause. Returns the receivers
    /// of these answers.
    pub fn ask_again(&mut self, now: Time) -> Vec<(Waiter, Option<Vec<IpAddr>>)> {
        let mut told = Vec::new();
        let mut given_up = Vec::new();
        for (number, running) in &mut self.running {
            match std::mem::replace(&mut running.is_repeated, true) {
                false => self.outgoing.push((*number, running.name.clone())),
                true => given_up.push(*number),
            }
        }
        for number in given_up {
            told.extend(self.answer(now, number, None));
        }
        told
    }

    /// The look-ups to send to the resolver now, each with its number.
    pub fn take_outgoing(&mut self) -> Vec<(u64, String)> {
        std::mem::take(&mut self.outgoing)
    }

    /// Starts waiting requests in turn while there is room.
    fn take_turns(&mut self, now: Time, told: &mut Vec<(Waiter, Option<Vec<IpAddr>>)>) {
        for _ in 0..self.turns.len() {
            let Some(client) = self.turns.pop_front() else {
                return;
            };
            while self.has_room(client)
                && let Some(of_client) = self.clients.get_mut(&client)
                && let Some((since, name, waiter)) = of_client.waiting.pop_front()
            {
                self.waiting -= 1;
                if now.since(since) >= LONGEST_LOOK_UP {
                    told.push((waiter, None));
                } else if let Some((_, addresses)) = self.kept.get(&name) {
                    told.push((waiter, Some(addresses.clone())));
                } else if !self.join(&name, waiter) {
                    self.begin(now, client, name, waiter);
                }
            }
            let of_client = self.clients.get(&client);
            if of_client.is_some_and(|of_client| !of_client.waiting.is_empty()) {
                self.turns.push_back(client);
            }
            self.forget_client(client);
        }
    }

    fn has_room(&self, client: Client) -> bool {
        let own = self.clients.get(&client).map_or(0, |own| own.running);
        let most = if own == 0 { MOST_OF_ALL } else { MOST_FURTHER };
        own < MOST_OF_CLIENT && self.running.len() < most
    }

    /// Adds a receiver to a look-up of the same name; returns whether there is one.
    fn join(&mut self, name: &str, waiter: Waiter) -> bool {
        let number = self.by_name.get(name);
        let Some(running) = number.and_then(|number| self.running.get_mut(number)) else {
            return false;
        };
        running.waiters.push(waiter);
        true
    }

    fn begin(&mut self, now: Time, client: Client, name: String, waiter: Waiter) {
        let number = self.next;
        self.next += 1;
        self.clients.entry(client).or_default().running += 1;
        self.by_name.insert(name.clone(), number);
        self.outgoing.push((number, name.clone()));
        let running = Running {
            name,
            client,
            since: now,
            waiters: vec![waiter],
            is_repeated: false,
        };
        self.running.insert(number, running);
    }

    fn end(&mut self, number: u64) -> Option<Running> {
        let running = self.running.remove(&number)?;
        self.by_name.remove(&running.name);
        if let Some(of_client) = self.clients.get_mut(&running.client) {
            of_client.running = of_client.running.saturating_sub(1);
        }
        self.forget_client(running.client);
        Some(running)
    }

    fn keep(&mut self, now: Time, name: String, addresses: Vec<IpAddr>) {
        if self.kept.len() >= MOST_KEPT
            && let Some((_, oldest)) = self.by_end.pop_first()
        {
            self.kept.remove(&oldest);
        }
        let end = now
            + match addresses.is_empty() {
                true => KEPT_FAILURE,
                false => KEPT,
            };
        if let Some((old, _)) = self.kept.insert(name.clone(), (end, addresses)) {
            self.by_end.remove(&(old, name.clone()));
        }
        self.by_end.insert((end, name));
    }

    /// Drops results that were kept long enough, and look-ups whose answers are lost.
    fn forget_old(&mut self, now: Time) {
        while self.by_end.first().is_some_and(|(end, _)| *end <= now)
            && let Some((_, name)) = self.by_end.pop_first()
        {
            self.kept.remove(&name);
        }
        // The look-ups are in the order of their start; their receivers have given up.
        while let Some((number, running)) = self.running.first_key_value()
            && now.since(running.since) >= LOST
        {
            let number = *number;
            self.end(number);
        }
    }

    fn forget_client(&mut self, client: Client) {
        let is_done = |of: &OfClient| of.running == 0 && of.waiting.is_empty();
        if self.clients.get(&client).is_some_and(is_done) {
            self.clients.remove(&client);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Time {
        Time::ZERO + TimeSpan::from_milliseconds(milliseconds)
    }

    fn client(host: u8) -> Client {
        Client::of(IpAddr::from([192, 0, 2, host]))
    }

    fn waiter(number: u64) -> Waiter {
        (0, Key::from_number(number))
    }

    fn address(host: u8) -> Vec<IpAddr> {
        vec![IpAddr::from([198, 51, 100, host])]
    }

    /// Requests a name whose answer has to be waited for; returns the look-ups that begin.
    fn asked(lookups: &mut Lookups, time: u64, host: u8, name: &str) -> Vec<u64> {
        let answer = lookups.ask(at(time), client(host), name, waiter(time));
        assert_eq!(answer, Asked::Waiting, "{name}");
        let outgoing = lookups.take_outgoing();
        outgoing.into_iter().map(|(number, _)| number).collect()
    }

    #[test]
    fn what_was_found_is_kept_for_10_seconds_and_a_failure_for_2() {
        let mut lookups = Lookups::default();
        let one = asked(&mut lookups, 0, 1, "One.example")[0];
        let none = asked(&mut lookups, 0, 1, "none.example")[0];
        let told = lookups.answer(at(100), one, Some(address(1)));
        assert_eq!(told, [(waiter(0), Some(address(1)))]);
        lookups.answer(at(100), none, Some(Vec::new()));
        let mut ask = |time, name| lookups.ask(at(time), client(2), name, waiter(9));
        assert_eq!(ask(10_099, "oNE.EXAMPLE"), Asked::Known(address(1)));
        assert_eq!(ask(10_100, "one.example"), Asked::Waiting);
        let mut lookups = Lookups::default();
        let none = asked(&mut lookups, 0, 1, "none.example")[0];
        lookups.answer(at(100), none, Some(Vec::new()));
        let mut ask = |time| lookups.ask(at(time), client(2), "none.example", waiter(9));
        assert_eq!(
            (ask(2_099), ask(2_100)),
            (Asked::Known(Vec::new()), Asked::Waiting)
        );
    }

    #[test]
    fn a_name_is_looked_up_once_for_all_who_ask() {
        let mut lookups = Lookups::default();
        let numbers = asked(&mut lookups, 0, 1, "one.example");
        assert!(asked(&mut lookups, 1, 2, "ONE.example").is_empty());
        let told = lookups.answer(at(5), numbers[0], None);
        assert_eq!(told, [(waiter(0), None), (waiter(1), None)]);
        // A failed look-up is not kept.
        assert_eq!(asked(&mut lookups, 6, 2, "one.example").len(), 1);
    }

    #[test]
    fn after_a_crash_of_the_resolver_each_name_is_asked_once_more() {
        let mut lookups = Lookups::default();
        let first = asked(&mut lookups, 0, 1, "one.example")[0];
        assert_eq!(lookups.ask_again(at(1)), []);
        assert_eq!(lookups.take_outgoing(), [(first, "one.example".to_owned())]);
        let second = asked(&mut lookups, 2, 2, "two.example")[0];
        // The first name may be the reason for both crashes.
        assert_eq!(lookups.ask_again(at(3)), [(waiter(0), None)]);
        assert_eq!(
            lookups.take_outgoing(),
            [(second, "two.example".to_owned())]
        );
        let told = lookups.answer(at(4), second, Some(address(2)));
        assert_eq!(told, [(waiter(2), Some(address(2)))]);
        // Its request may have been read twice.
        assert_eq!(lookups.answer(at(5), second, Some(address(2))), []);
        assert_eq!(lookups.ask_again(at(6)), []);
        assert!(lookups.take_outgoing().is_empty());
    }

    #[test]
    fn a_client_has_four_at_a_time_and_the_others_their_own() {
        let mut lookups = Lookups::default();
        let mut begun = Vec::new();
        for number in 0..6 {
            begun.extend(asked(
                &mut lookups,
                number,
                1,
                &format!("{number}.dark.example"),
            ));
        }
        assert_eq!(begun.len(), MOST_OF_CLIENT);
        assert_eq!(asked(&mut lookups, 7, 2, "one.example").len(), 1);
        // When one of the four look-ups ends, the next one begins.
        lookups.answer(at(8), begun[2], Some(Vec::new()));
        assert_eq!(lookups.take_outgoing()[0].1, "4.dark.example");
        lookups.answer(at(9), begun[1], Some(Vec::new()));
        assert_eq!(lookups.take_outgoing()[0].1, "5.dark.example");
        lookups.answer(at(9), begun[0], Some(Vec::new()));
        assert!(lookups.take_outgoing().is_empty());
    }

    #[test]
    fn many_clients_with_dark_names_leave_room_for_one_name_of_each_other() {
        let mut lookups = Lookups::default();
        let mut begun = 0;
        for number in 0..24 * 4 {
            let host = u8::try_from(number / 4).unwrap();
            begun += asked(&mut lookups, number, host, &format!("{number}.example")).len();
        }
        assert!(begun < MOST_OF_ALL, "{begun}");
        assert_eq!(asked(&mut lookups, 99, 200, "one.example").len(), 1);
    }

    #[test]
    fn what_waits_is_bounded_and_whoever_waited_too_long_is_told() {
        let mut lookups = Lookups::default();
        let numbers: Vec<u64> = (0..4)
            .flat_map(|number| asked(&mut lookups, number, 1, &format!("{number}.example")))
            .collect();
        for number in 0..MOST_WAITING_OF_CLIENT {
            let name = format!("w{number}.example");
            assert!(asked(&mut lookups, 10, 1, &name).is_empty());
        }
        let refused = lookups.ask(at(10), client(1), "more.example", waiter(7));
        assert_eq!(refused, Asked::Refused);
        let told = lookups.answer(at(16_000), numbers[0], Some(Vec::new()));
        assert_eq!(told.len(), 1 + MOST_WAITING_OF_CLIENT);
        assert_eq!((lookups.waiting, lookups.turns.len()), (0, 0));
    }

    #[test]
    fn an_answer_that_never_comes_keeps_no_place() {
        let mut lookups = Lookups::default();
        for number in 0..4 {
            asked(&mut lookups, number, 1, &format!("{number}.example"));
        }
        assert_eq!(asked(&mut lookups, 31_000, 1, "0.example").len(), 1);
        assert_eq!((lookups.running.len(), lookups.clients.len()), (1, 1));
        assert!(lookups.answer(at(31_001), 0, Some(address(1))).is_empty());
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut lookups = Lookups::default();
        for number in 0..MOST_KEPT as u64 + 10 {
            let name = format!("{number}.example");
            let numbers = asked(&mut lookups, number / 1000, 1, &name);
            lookups.answer(at(number / 1000), numbers[0], Some(address(1)));
        }
        assert_eq!(
            (lookups.kept.len(), lookups.by_end.len()),
            (MOST_KEPT, MOST_KEPT)
        );
        assert!(lookups.clients.is_empty());
    }
}
