//! A chain of nftables as text.

use std::fmt::{self, Display};

/// A chain and its rules.
pub(super) struct Chain {
    name: String,
    base: Option<String>,
    rules: Vec<String>,
}

impl Chain {
    /// A chain that packets enter at a hook.
    pub fn base(name: &str, kind: &str, hook: &str, priority: i32) -> Self {
        Self {
            name: name.to_owned(),
            base: Some(format!(
                "type {kind} hook {hook} priority {priority}; policy accept;"
            )),
            rules: Vec::new(),
        }
    }

    /// A chain that other chains lead to.
    pub fn regular(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            base: None,
            rules: Vec::new(),
        }
    }

    /// Adds a rule.
    pub fn rule(mut self, rule: impl Into<String>) -> Self {
        self.rules.push(rule.into());
        self
    }

    /// Adds rules.
    pub fn rules(mut self, rules: impl IntoIterator<Item = String>) -> Self {
        self.rules.extend(rules);
        self
    }
}

impl Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\tchain {} {{", self.name)?;
        for line in self.base.iter().chain(&self.rules) {
            writeln!(f, "\t\t{line}")?;
        }
        writeln!(f, "\t}}")
    }
}
