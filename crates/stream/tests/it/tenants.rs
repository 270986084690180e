//! Many threads on one streamer, in any order.

use std::{marker::PhantomData, sync::Arc, thread};

use overglaze_stream::{Lease, Streamer};

use crate::{
    random::Random,
    toy::{Gate, Hook, ToyWeight, config, content, model, streamer, visit},
};

fn random_indices(seed: u64, num_weights: usize) -> impl Iterator<Item = usize> {
    let mut random = Random::new(seed);
    std::iter::repeat_with(move || random.below(num_weights))
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

/// Tells whether a type is `Send`: the constant of `Probe` itself goes before that of the trait.
struct Probe<T>(PhantomData<T>);

impl<T: Send> Probe<T> {
    const IS_SEND: bool = true;
}

trait NotSend {
    const IS_SEND: bool = false;
}

impl<T> NotSend for Probe<T> {}

#[test]
fn a_lease_stays_on_its_thread() {
    // A lease moved to a thread that acquires would wait for itself, unnoticed.
    let found = [
        Probe::<Lease<ToyWeight>>::IS_SEND,
        Probe::<Arc<Streamer<ToyWeight>>>::IS_SEND,
    ];
    assert_eq!(found, [false, true]);
}

#[test]
fn a_lease_may_be_read_from_other_threads() {
    let streamer = streamer(&[100; 3], 100, 1);
    let lease = streamer.acquire(streamer.slot_id(1)).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| assert_eq!(lease[..], content(1, 100)));
    });
}
