//! Budgets: how they are written, and that the output does not depend on them.

use std::fs;

use overglaze_cli::{Budget, WeightMemory, weight_budget};

use crate::overglaze::overglaze;

#[test]
fn budgets_are_read_as_people_write_them() {
    let check = |text: &str, expected| assert_eq!(text.parse::<Budget>(), Ok(expected), "{text}");
    check("3_000_000", Budget::Bytes(3_000_000));
    check("6GiB", Budget::Bytes(6 << 30));
    check("1.5 MiB", Budget::Bytes(3 << 19));
    check("800KB", Budget::Bytes(800_000));
    check("2gb", Budget::Bytes(2_000_000_000));
    check("50%", Budget::Percent(50.0));
}

#[test]
fn what_is_no_budget_is_refused() {
    for text in [
        "",
        "GiB",
        "-1",
        "0",
        "5 apples",
        "0%",
        "101%",
        "1e9",
        "9999999TiB",
        "1..2",
    ] {
        assert!(text.parse::<Budget>().is_err(), "{text}");
    }
}

#[test]
fn a_third_of_the_model_gives_the_same_pixels() {
    let folder = tempfile::tempdir().unwrap();
    let sweep = |name: &str, budget: &[&str]| {
        let arguments = [
            "sweep", "--prompt", "boot", "--prompt", "bag", "--steps", "3", "--json", "-o", name,
        ];
        let run = overglaze(folder.path(), &[&arguments, budget].concat());
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        (run.json(), fs::read(folder.path().join(name)).unwrap())
    };
    let (free, free_pixels) = sweep("free.png", &[]);
    let (tight, tight_pixels) = sweep("tight.png", &["--device-budget", "780_000"]);
    assert!(
        free_pixels == tight_pixels,
        "the sheets are the same byte for byte"
    );
    let residency = &tight["residency"];
    let number = |name: &str| residency[name].as_u64().unwrap_or_else(|| panic!("{name}"));
    assert_eq!(number("budget_bytes"), 780_000);
    assert!(number("model_bytes") > 3 * 700_000);
    assert!(number("peak_slot_bytes") <= 780_000 && number("peak_slot_bytes") > 0);
    assert!(number("loads") > number("num_weights"));
    assert!(number("evictions") > 0);
    assert_eq!(tight["base_restored"], true);
    assert_eq!(free["residency"]["is_streamed"], false);
    assert_eq!(free["residency"]["budget_bytes"], serde_json::Value::Null);
}

#[test]
fn a_card_takes_bytes_of_its_own_memory_only() {
    let of_card = |host, device| {
        weight_budget(WeightMemory::Card, host, device).map_err(|error| error.to_string())
    };
    assert_eq!(of_card(None, None), Ok(None));
    assert_eq!(of_card(None, Some(Budget::Bytes(7))), Ok(Some(7)));
    let percent = of_card(None, Some(Budget::Percent(50.0)));
    let expected = "--device-budget 50%: the free memory of a card cannot be told, so a percentage means nothing \
                    here; give bytes, such as 6GiB";
    assert_eq!(percent, Err(expected.into()));
    let host = of_card(Some(Budget::Bytes(7)), Some(Budget::Bytes(9)));
    let expected = "--host-budget does not apply to a card: its weights pass from the mapped file to the card and \
                    none stay in host memory, so give --device-budget instead";
    assert_eq!(host, Err(expected.into()));
}

#[test]
fn in_host_memory_the_smaller_budget_holds() {
    let bytes = |bytes| Some(Budget::Bytes(bytes));
    let of_host = |host, device| weight_budget(WeightMemory::Host, host, device).unwrap();
    assert_eq!(of_host(bytes(7), bytes(9)), Some(7));
    assert_eq!(of_host(bytes(9), bytes(7)), Some(7));
    assert_eq!(of_host(bytes(7), None), Some(7));
    assert_eq!(of_host(None, None), None);
}

#[test]
fn on_the_cpu_the_smaller_budget_holds() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = [
        "sample", "--prompt", "bag", "--steps", "1", "--json", "--device", "cpu",
    ];
    let budgets = ["--host-budget", "900KB", "--device-budget", "50%"];
    let run = overglaze(folder.path(), &[&arguments[..], &budgets].concat());
    assert_eq!(
        run.json()["residency"]["budget_bytes"],
        900_000,
        "{}",
        run.stderr
    );
}
