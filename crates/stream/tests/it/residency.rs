//! One caller, layer after layer: the budget holds, the bytes are right, and what is evicted is planned.

use overglaze_stream::{StreamError, Streamer};

use crate::toy::{config, model, run_cycles, streamer, visit};

const SIZES: [usize; 6] = [100, 120, 80, 100, 90, 110];

#[test]
fn every_budget_gives_the_same_bytes() {
    for budget_bytes in [120, 150, 200, 230, 330, 420, 599, 600, u64::MAX] {
        for lookahead in [0, 1, 2, 9] {
            let streamer = streamer(&SIZES, budget_bytes, lookahead);
            run_cycles(&streamer, 5);
            let stats = streamer.stats();
            assert!(stats.peak_slot_bytes <= budget_bytes, "{stats:?}");
            assert_eq!(stats.hits + stats.waits, 30, "{stats:?}");
            if budget_bytes < 600 {
                assert!(stats.loads > 6 && stats.evictions > 0, "{stats:?}");
                assert!(stats.bytes_loaded > stats.model_bytes, "{stats:?}");
            } else {
                assert_eq!(
                    (stats.loads, stats.evictions, stats.bytes_loaded),
                    (6, 0, 600)
                );
            }
            assert!(stats.loads >= stats.loads_ahead);
        }
    }
}

#[test]
fn without_a_worker_the_loads_are_exactly_those_planned() {
    // Four stay, and the ring of 100 takes the other two in turn: nothing is loaded ahead.
    let streamer = streamer(&[100; 6], 500, 0);
    run_cycles(&streamer, 4);
    let stats = streamer.stats();
    assert_eq!((stats.num_weights, stats.resident_weights), (6, 4));
    assert_eq!(stats.loads, 6 + 3 * 2, "{stats:?}");
    assert_eq!(stats.bytes_loaded - 600, 3 * streamer.plan().streamed_bytes);
    assert_eq!(stats.waits, stats.loads);
    assert!(stats.stall_ns > 0);
}

#[test]
fn least_recently_used_would_score_zero_here() {
    // Room for four of five: evicting the oldest would miss 25 times in 25.
    let streamer = streamer(&[100; 5], 400, 0);
    run_cycles(&streamer, 5);
    let stats = streamer.stats();
    assert!(stats.hits >= 10, "{stats:?}");
}

#[test]
fn the_weight_just_used_goes_first() {
    // The last one keeps the plan from having any resident.
    let streamer = streamer(&[100, 100, 100, 150], 200, 0);
    assert_eq!(streamer.plan().num_resident, 0);
    for index in [0, 1] {
        visit(&streamer, index);
    }
    visit(&streamer, 2); // evicts 1: of 0 and 1, both behind, 1 is the one used last
    let before = streamer.stats();
    visit(&streamer, 0);
    assert_eq!(streamer.stats().hits, before.hits + 1);
    visit(&streamer, 1);
    assert_eq!(streamer.stats().loads, before.loads + 1);
}

#[test]
fn nothing_is_loaded_before_it_is_wanted() {
    let streamer = streamer(&SIZES, 600, 4);
    assert_eq!(streamer.stats().loads, 0);
    assert_eq!(streamer.ledger().live_bytes(), 0);
    assert_eq!(streamer.ledger().peak_bytes(), 0);
}

#[test]
fn a_layer_over_budget_is_refused_before_anything_loads() {
    let (source, weights) = model(&SIZES);
    let error = Streamer::new(source, weights, config(119, 1)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the layer `w1` alone needs 120 bytes, more than the budget of 119; raise the budget to at \
         least 120 bytes"
    );
}

#[test]
fn a_foreign_slot_id_is_an_error() {
    let (long, short) = (streamer(&SIZES, 600, 0), streamer(&[10], 10, 0));
    let error = short.acquire(long.slot_id(3)).unwrap_err();
    assert!(matches!(
        error,
        StreamError::UnknownSlot {
            index: 3,
            num_weights: 1
        }
    ));
}

#[test]
fn reservations_shrink_what_weights_may_have() {
    let streamer = streamer(&SIZES, 600, 2);
    let reservation = streamer.ledger().reserve(400).unwrap();
    run_cycles(&streamer, 3);
    assert!(streamer.ledger().peak_bytes() <= 200);
    let error = streamer.ledger().reserve(201).unwrap_err();
    assert!(matches!(error, StreamError::NoRoom { .. }), "{error}");
    drop(reservation);
    run_cycles(&streamer, 3);
    assert!(streamer.ledger().peak_bytes() > 200);
}

#[test]
fn empty_models_and_empty_weights_work() {
    assert_eq!(streamer(&[], 0, 2).num_weights(), 0);
    let streamer = streamer(&[0, 5, 0], 5, 1);
    for index in [0, 1, 2, 0, 1, 2] {
        let lease = streamer.acquire(streamer.slot_id(index)).unwrap();
        assert_eq!(lease.len() as u64, streamer.weights()[index].num_bytes);
    }
}

#[test]
fn statistics_are_json() {
    let streamer = streamer(&SIZES, 300, 0);
    run_cycles(&streamer, 2);
    let json = serde_json::to_value(streamer.stats()).unwrap();
    assert_eq!(json["budget_bytes"], 300);
    assert_eq!(json["model_bytes"], 600);
    assert!(
        serde_json::to_string(streamer.plan())
            .unwrap()
            .contains("\"ring_bytes\"")
    );
    assert!(format!("{streamer:?}").contains("Streamer"));
}
