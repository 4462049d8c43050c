//! What cannot change while the proxy runs.

use super::Configuration;

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

    /// Replaces what not even another program can change while sessions continue by the running configuration's: names
    /// and numbers that are in rules, in marks of sockets and in packets, and the control socket. Returns the keys that
    /// had other values.
    pub fn keep_numbers(&mut self, running: &Self) -> Vec<&'static str> {
        self.interception.numbers.marks = running.interception.numbers.marks;
        keep! {
            self, running,
            "marks.mask" => marks.marks,
            "marks.table" => marks.table,
            "marks.priority" => marks.priority,
            "interception.table" => interception.numbers.table,
            "interception.routing_table" => interception.numbers.routing_table,
            "interception.rule_priority" => interception.numbers.rule_priority,
            "interception.forward_priority" => interception.numbers.forward_priority,
            "interception.zone" => interception.numbers.zone,
            "interception.queue" => interception.numbers.queue,
            "control.socket" => control,
        }
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
}
