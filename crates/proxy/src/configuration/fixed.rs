//! What cannot change while the proxy runs.

use midspan_gateway::interception::FormerSessions;

use super::Configuration;

/// How many values of `marks.mask` running sessions may have.
const FORMER_LIMIT: usize = 4;

/// Takes over values of the running configuration; names those that differ.
macro_rules! keep {
    ($new:expr, $running:expr, $($name:literal => $($field:ident).+,)+) => {{
        let mut differing = Vec::new();
        $(if $new.$($field).+ != $running.$($field).+ {
            $new.$($field).+ = $running.$($field).+.clone();
            differing.push($name);
        })+
        differing
    }};
}

impl Configuration {
    /// Takes over from the `running` configuration what cannot change without a restart; returns
    /// the names of the keys that differ.
    pub fn keep_fixed(&mut self, running: &Self) -> Vec<&'static str> {
        // Where it stands in the file does not matter.
        if let (Some(new), Some(running)) = (&mut self.admin, &running.admin) {
            new.place = running.place.clone();
        }
        // The same bits, a second time.
        self.interception.numbers.marks = running.interception.numbers.marks;
        keep! {
            self, running,
            "relay.threads" => relay.threads,
            "relay.pin_threads" => relay.pin_threads,
            "relay.pipe_size" => relay.pipe_size,
            "relay.pipe_memory" => relay.pipe_memory,
            "relay.reset_timeout" => relay.reset_timeout,
            "relay.user" => relay.user,
            "relay.state_directory" => state,
            "log.level" => log.level,
            "log.format" => log.format,
            "marks.mask" => marks.marks,
            "marks.table" => marks.table,
            "marks.priority" => marks.priority,
            "interception.table" => interception.numbers.table,
            "interception.routing_table" => interception.numbers.routing_table,
            "interception.rule_priority" => interception.numbers.rule_priority,
            "interception.forward_priority" => interception.numbers.forward_priority,
            "interception.zone" => interception.numbers.zone,
            "interception.queue" => interception.numbers.queue,
            "interception.asymmetric_route_time" => interception.asymmetric_route_time,
            "interception.opening_limit" => interception.opening_limit,
            "interception.opening_limit_per_client" => interception.opening_limit_per_client,
            "control.socket" => control,
            "[admin]" => admin,
        }
    }

    /// Replaces numbers of sessions that another program cannot change by the running configuration's. These numbers are
    /// in marks of sockets and in entries of connection tracking, so the rules have to tell sessions with the former
    /// numbers, and `earlier` ones, from new sessions. Returns the keys that keep their values, with the reasons.
    pub fn keep_numbers(
        &mut self,
        running: &Self,
        earlier: &[FormerSessions],
    ) -> Vec<(&'static str, &'static str)> {
        let former = FormerSessions::new(&running.interception.numbers, &[].into(), &[].into());
        let is_distinct = earlier
            .iter()
            .chain(&former)
            .all(|sessions| sessions.are_distinct_from(&self.interception.numbers));
        let has_same_marks = self.marks.marks == running.marks.marks;
        let reason = match (has_same_marks, is_distinct) {
            (true, true) => return Vec::new(),
            (true, false) => {
                "it changes together with marks.mask only, because both distinguish running sessions from new ones"
            }
            (false, true) if earlier.len() < FORMER_LIMIT => return Vec::new(),
            (false, true) => "it has changed too often since the start: restart Midspan",
            (false, false) => {
                "the new mask has bits of a former one, so running sessions would look like new ones: \
                 choose other bits, or restart Midspan"
            }
        };
        self.interception.numbers.marks = running.interception.numbers.marks;
        let keys = keep! {
            self, running,
            "marks.mask" => marks.marks,
            "interception.zone" => interception.numbers.zone,
        };
        keys.into_iter().map(|key| (key, reason)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use midspan_document::Source;

    fn read(text: &str) -> Configuration {
        let listener =
            "[[listener]]\nname = \"a\"\nlisten = \"127.0.0.1:1\"\nto = \"127.0.0.1:2\"\n";
        Configuration::read(&Source::new("file", format!("{text}{listener}"))).unwrap()
    }

    #[test]
    fn what_needs_a_restart_is_named_and_kept() {
        let running = read("[relay]\nthreads = 1\n");
        let mut new = read(
            "[relay]\nthreads = 2\ndrain_timeout = \"1 s\"\n[marks]\nmask = 0xf0\n\
             [control]\nsocket = \"none\"\n[interception]\nasymmetric_route_time = \"1 min\"\n",
        );
        let names = new.keep_fixed(&running);
        let expected = [
            "relay.threads",
            "marks.mask",
            "interception.asymmetric_route_time",
            "control.socket",
        ];
        assert_eq!(names, expected);
        assert_eq!((new.relay.threads, new.marks), (1, running.marks));
        assert_ne!(new.relay.drain_timeout, running.relay.drain_timeout);
    }
    #[test]
    fn an_upgrade_changes_numbers_if_sessions_stay_distinct() {
        let running = read("[marks]\nmask = 0xf0\n[interception]\nzone = 10\n");
        let former = |of: &Configuration| {
            FormerSessions::new(&of.interception.numbers, &[].into(), &[].into()).unwrap()
        };
        let change = |text: &str, earlier: &[FormerSessions]| {
            let mut new = read(text);
            let kept = new.keep_numbers(&running, earlier);
            assert_eq!(new.interception.numbers.marks, new.marks.marks);
            let keys: Vec<&str> = kept.iter().map(|(key, _)| *key).collect();
            (new.marks.marks.mask(), new.interception.numbers.zone, keys)
        };
        let other = "[marks]\nmask = 0xf00\n[interception]\nzone = 20\ntable = \"t\"\n";
        assert_eq!(change(other, &[]), (0xf00, 20, vec![]));
        // Other names do not matter.
        let names = "[marks]\nmask = 0xf0\n[interception]\nzone = 10\nqueue = 5\n";
        assert_eq!(change(names, &[]), (0xf0, 10, vec![]));
        // The zone alone, and a mask with common bits.
        let zone = "[marks]\nmask = 0xf0\n[interception]\nzone = 20\n";
        assert_eq!(change(zone, &[]), (0xf0, 10, vec!["interception.zone"]));
        let wider = "[marks]\nmask = 0x1f0\n[interception]\nzone = 20\n";
        let kept = vec!["marks.mask", "interception.zone"];
        assert_eq!(change(wider, &[]), (0xf0, 10, kept.clone()));
        // Earlier sessions count too. Those with the same numbers are no obstacle.
        let same = former(&read(other));
        assert_eq!(
            change(other, std::slice::from_ref(&same)),
            (0xf00, 20, vec![])
        );
        let zone = FormerSessions { zone: 30, ..same };
        assert_eq!(change(other, &[zone]), (0xf0, 10, kept.clone()));
        let many = [12, 16, 20, 24]
            .map(|shift| former(&read(&format!("[marks]\nmask = {}\n", 0xf_u32 << shift))));
        assert_eq!(change(other, &many), (0xf0, 10, kept));
    }
}
