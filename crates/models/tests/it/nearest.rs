//! The nearest name, for messages.

use overglaze_models::{did_you_mean, nearest};

const WORDS: [&str; 4] = ["boot", "bag", "T-shirt", "shirt"];

#[test]
fn a_mistyped_name_is_recognized() {
    let check = |wanted, expected| assert_eq!(nearest(wanted, WORDS), expected, "{wanted}");
    check("bot", Some("boot"));
    check("BAGS", Some("bag"));
    check("t-shrt", Some("T-shirt"));
    check("trousers", None);
    check("", None);
    assert_eq!(nearest("boot", []), None);
}

#[test]
fn it_is_a_clause_of_a_message() {
    assert_eq!(did_you_mean("bot", WORDS), " (did you mean `boot`?)");
    assert_eq!(did_you_mean("zzz", WORDS), "");
}
