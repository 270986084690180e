//! Many threads on one streamer, in any order.

use std::{sync::Arc, thread};

use overglaze_stream::Streamer;

use crate::toy::{Gate, Hook, config, content, model, streamer, visit};

/// Numbers that look random and are the same in every run (a linear congruential generator).
fn random_indices(seed: u64, num_weights: usize) -> impl Iterator<Item = usize> {
    let mut state = seed;
    std::iter::repeat_with(move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        usize::try_from(state >> 33).unwrap() % num_weights
    })
}

#[test]
fn threads_in_random_order_get_the_right_bytes() {
    let sizes: Vec<_> = (0..12).map(|index| 40 + index * 13 % 90).collect();
    for (budget_bytes, lookahead) in [(130, 0), (130, 2), (260, 1), (500, 4)] {
        let streamer = streamer(&sizes, budget_bytes, lookahead);
        thread::scope(|scope| {
            for seed in 0..8 {
                let streamer = &streamer;
                scope.spawn(move || {
                    random_indices(seed, 12)
                        .take(200)
                        .for_each(|index| visit(streamer, index));
                });
            }
        });
        let stats = streamer.stats();
        assert_eq!(stats.hits + stats.waits, 1600);
        assert!(
            stats.peak_slot_bytes <= budget_bytes && stats.loads > 12,
            "{stats:?}"
        );
    }
}

#[test]
fn two_leases_each_work_where_the_budget_holds_them() {
    let streamer = streamer(&[50; 8], 400 - 1, 2);
    thread::scope(|scope| {
        for seed in 0..3 {
            let streamer = &streamer;
            scope.spawn(move || {
                for index in random_indices(seed, 8).take(200) {
                    let first = streamer.acquire(streamer.slot_id(index)).unwrap();
                    let second = streamer.acquire(streamer.slot_id((index + 3) % 8)).unwrap();
                    assert_eq!(first[..], content(index, 50));
                    assert_eq!(second[..], content((index + 3) % 8, 50));
                }
            });
        }
    });
    assert!(streamer.stats().peak_slot_bytes <= 399);
}

#[test]
fn two_threads_load_one_weight_once() {
    let (source, mut weights) = model(&[100; 3]);
    let (gate, has_begun, give_leave) = Gate::new();
    weights[0].hook = Hook::Gate(gate);
    let streamer = Streamer::new(source, weights, config(300, 0)).unwrap();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| visit(&streamer, 0));
        }
        has_begun.recv().unwrap();
        give_leave.send(()).unwrap();
    });
    assert_eq!(streamer.stats().loads, 1);
}

#[test]
fn a_lease_protects_its_weight_from_everyone() {
    let streamer = streamer(&[100; 5], 200, 1);
    let lease = streamer.acquire(streamer.slot_id(2)).unwrap();
    let other = Arc::clone(&streamer);
    thread::spawn(move || (0..20).for_each(|index| visit(&other, index % 5)))
        .join()
        .unwrap();
    assert_eq!(lease[..], content(2, 100));
}

#[test]
fn a_lease_may_end_on_another_thread() {
    let streamer = streamer(&[100; 3], 100, 1);
    let lease = streamer.acquire(streamer.slot_id(0)).unwrap();
    let other = thread::spawn(move || drop(lease));
    visit(&streamer, 1);
    other.join().unwrap();
}
