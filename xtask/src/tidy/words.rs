//! What must not be committed: reminders, debugging macros, and paths or hosts of one machine.

use super::{
    Finding, TreeFile,
    rust_text::{self, line_of},
};

/// Written in halves, so that this file does not find itself.
const REMINDERS: [&str; 3] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
];
const MACROS: [&str; 3] = ["todo!", "dbg!", "unimplemented!"];
const MACHINE_PATHS: [&str; 6] = [
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
    concat!("/Us", "ers/"),
    concat!("/fa", "rm/"),
    concat!("C:\\Us", "ers\\"),
];
const MACHINE_HOSTS: [&str; 4] = [
    concat!("://local", "host"),
    concat!("://12", "7."),
    concat!("://1", "0."),
    concat!("://19", "2.168."),
];

/// Checks every file that is text.
pub(super) fn check(files: &[TreeFile]) -> Vec<Finding> {
    files.iter().flat_map(check_file).collect()
}

fn check_file(file: &TreeFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut report = |at: usize, text: &str, what: &str| {
        findings.push(file.finding(line_of(text, at), format!("`{what}` must not be committed")));
    };
    for path in MACHINE_PATHS {
        places(&file.text, path, starts_a_path).for_each(|at| report(at, &file.text, path));
    }
    for host in MACHINE_HOSTS {
        places(&file.text, host, |_, _| true).for_each(|at| report(at, &file.text, host));
    }
    if file.is_rust() {
        for word in REMINDERS {
            places(&file.text, word, is_whole_word).for_each(|at| report(at, &file.text, word));
        }
        let code = rust_text::read(&file.text).code;
        for name in MACROS {
            places(&code, name, starts_a_word).for_each(|at| report(at, &code, name));
        }
    }
    findings
}

/// Where `needle` stands in `text`, if `is_wanted(text, needle range)`.
fn places<'a>(
    text: &'a str,
    needle: &'a str,
    is_wanted: impl Fn(&str, (usize, usize)) -> bool + 'a,
) -> impl Iterator<Item = usize> + 'a {
    let starts = text.match_indices(needle).map(|(start, _)| start);
    starts.filter(move |start| is_wanted(text, (*start, start + needle.len())))
}

/// Not the inside of a longer path, as in `target/…`, or of an address.
fn starts_a_path(text: &str, (start, _): (usize, usize)) -> bool {
    let before = text[..start].chars().next_back();
    !before.is_some_and(|before| before.is_alphanumeric() || "_-./)}~*".contains(before))
}

fn starts_a_word(text: &str, (start, _): (usize, usize)) -> bool {
    !text[..start]
        .chars()
        .next_back()
        .is_some_and(rust_text::is_word)
}

fn is_whole_word(text: &str, (start, end): (usize, usize)) -> bool {
    starts_a_word(text, (start, end)) && !text[end..].chars().next().is_some_and(rust_text::is_word)
}

#[cfg(test)]
mod tests {
    use super::{
        super::{lines_of, tree_of},
        *,
    };

    fn findings(path: &str, text: &str) -> Vec<String> {
        lines_of(&check(&tree_of(&[(path, text)])))
    }

    #[test]
    fn each_fault_is_found_at_its_line() {
        for (path, bad) in [
            ("a.rs", format!("// {}: later", REMINDERS[0])),
            ("a.rs", "fn f() { todo!() }".into()),
            ("a.rs", "fn f() { dbg!(1); }".into()),
            ("a.md", format!("see {}x", MACHINE_PATHS[0])),
            ("a.json", format!("{{\"path\": \"{}x\"}}", MACHINE_PATHS[2])),
            ("a.toml", format!("index = \"http{}:80\"", MACHINE_HOSTS[0])),
        ] {
            let found = findings(path, &format!("//! A.\n{bad}\n"));
            assert!(
                found.len() == 1 && found[0].starts_with(&format!("{path}:2: ")),
                "{found:?}"
            );
        }
    }

    #[test]
    fn what_only_looks_alike_passes() {
        let inner = format!("target{}x", MACHINE_PATHS[0]);
        for (path, good) in [
            ("a.rs", "// dbg!(x) shows a value\nlet mytodo = \"todo!\";"),
            ("a.md", "Everything is done, nothing is todo!"),
            ("a.md", &inner),
        ] {
            assert!(findings(path, good).is_empty(), "{good}");
        }
    }
}
