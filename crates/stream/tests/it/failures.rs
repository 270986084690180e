//! Errors and panics of a load reach the caller with the layer's name, and do not stay.

use std::{
    error::Error,
    sync::{Arc, atomic::AtomicBool},
    thread,
};

use overglaze_stream::{StreamError, Streamer};

use crate::toy::{Gate, Hook, ToyWeight, config, model, run_cycles, visit};

const SIZES: [usize; 4] = [100; 4];

fn broken(hook: fn(Arc<AtomicBool>) -> Hook, lookahead: usize) -> Arc<Streamer<ToyWeight>> {
    let (source, mut weights) = model(&SIZES);
    weights[1].hook = hook(Arc::new(AtomicBool::new(true)));
    Streamer::new(source, weights, config(200, lookahead)).unwrap()
}

/// The first acquire of layer 1 fails, whoever loads it; the second works.
fn failure_of(streamer: &Arc<Streamer<ToyWeight>>) -> StreamError {
    visit(streamer, 0);
    let error = streamer.acquire(streamer.slot_id(1)).unwrap_err();
    run_cycles(streamer, 3);
    assert!(streamer.ledger().peak_bytes() <= 200);
    error
}

#[test]
fn an_error_names_the_layer_and_keeps_its_cause() {
    for lookahead in [0, 1, 3] {
        let error = failure_of(&broken(Hook::Fail, lookahead));
        assert_eq!(error.to_string(), "the layer `w1` could not be loaded");
        let cause = error.source().unwrap().to_string();
        assert!(
            cause.starts_with("`memory` has no tensor `no such tensor`"),
            "{cause}"
        );
    }
}

#[test]
fn a_panic_names_the_layer() {
    for lookahead in [0, 1, 3] {
        let error = failure_of(&broken(Hook::Panic, lookahead));
        assert_eq!(
            error.to_string(),
            "loading the layer `w1` panicked: a toy breaks; this is a bug in its weight format"
        );
    }
}

#[test]
fn an_own_error_is_not_wrapped_twice() {
    let error = StreamError::load("blocks.0", "scale is NaN");
    assert_eq!(
        error.to_string(),
        "the layer `blocks.0` could not be loaded"
    );
    assert_eq!(error.source().unwrap().to_string(), "scale is NaN");
}

#[test]
fn the_streamer_may_go_while_its_worker_loads() {
    let (source, mut weights) = model(&SIZES);
    let (gate, has_begun, give_leave) = Gate::new();
    weights[1].hook = Hook::Gate(gate);
    let streamer = Streamer::new(source, weights, config(200, 1)).unwrap();
    let lease = streamer.acquire(streamer.slot_id(0)).unwrap();
    has_begun.recv().unwrap();
    let ledger = Arc::clone(streamer.ledger());
    let dropping = thread::spawn(move || drop(streamer));
    give_leave.send(()).unwrap();
    dropping.join().unwrap();
    // A lease outlives its streamer.
    assert_eq!(lease.len(), 100);
    drop(lease);
    assert_eq!(ledger.live_bytes(), 0);
}
