//! The comment of Midspan's nftables tables. It identifies the tables, and contains the former
//! values of changed kernel parameters.

/// How the comment of each of Midspan's tables begins.
pub const OURS: &str = "Midspan, removed when it ends";

/// A changed parameter of the kernel. The process that removes the table restores it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parameter {
    EarlyDemuxWasOn,
    AccountingWasOff,
}

impl Parameter {
    const ALL: [Self; 2] = [Self::EarlyDemuxWasOn, Self::AccountingWasOff];

    const fn note(self) -> &'static str {
        match self {
            Self::EarlyDemuxWasOn => "; net.ipv4.tcp_early_demux was 1",
            Self::AccountingWasOff => "; net.netfilter.nf_conntrack_acct was 0",
        }
    }
}

/// The comment of a table with Midspan's rules, for which these parameters were changed.
pub fn comment(changed: &[Parameter]) -> String {
    let notes = changed.iter().map(|parameter| parameter.note());
    std::iter::once(OURS).chain(notes).collect()
}

/// A table of Midspan.
#[derive(Debug, PartialEq, Eq)]
pub struct Table {
    pub family: String,
    pub name: String,
    pub changed: Vec<Parameter>,
}

/// Midspan's tables in the output of `nft list ruleset`.
pub fn tables(text: &str) -> Vec<Table> {
    let mut found = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(header) = line.strip_prefix("table ") else {
            continue;
        };
        let mut words = header.split_whitespace();
        let (Some(family), Some(name)) = (words.next(), words.next()) else {
            continue;
        };
        let comment = lines.next().map(str::trim).unwrap_or_default();
        let Some(rest) = comment.strip_prefix(&format!("comment \"{OURS}")) else {
            continue;
        };
        found.push(Table {
            family: family.to_owned(),
            name: name.to_owned(),
            changed: Parameter::ALL
                .into_iter()
                .filter(|parameter| rest.contains(parameter.note()))
                .collect(),
        });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_tables_are_known_by_their_comment() {
        let [early, counted] = Parameter::ALL;
        let (with, without) = (comment(&[early]), comment(&[]));
        let (counting, both) = (comment(&[counted]), comment(&Parameter::ALL));
        let text = format!(
            "table inet midspan {{\n\tcomment \"somebody else's\"\n}}\n\
             table inet odd {{\n\tcomment \"{with}\"\n\tchain a {{\n\t}}\n}}\n\
             table ip odd_queue {{\n\tcomment \"{without}\"\n}}\ntable ip6 filter {{\n}}\n\
             table inet odd_accounting {{\n\tcomment \"{counting}\"\n}}\n\
             table inet even {{\n\tcomment \"{both}\"\n}}\n"
        );
        let table = |family: &str, name: &str, changed: &[_]| Table {
            family: family.to_owned(),
            name: name.to_owned(),
            changed: changed.to_vec(),
        };
        assert_eq!(
            tables(&text),
            [
                table("inet", "odd", &[early]),
                table("ip", "odd_queue", &[]),
                table("inet", "odd_accounting", &[counted]),
                table("inet", "even", &Parameter::ALL),
            ]
        );
    }
}
