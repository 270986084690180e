//! Slots: alignment, books, reuse, the cap, and garbage after release.

use overglaze_stream::{SlotPool, StreamError};

#[test]
fn slots_are_aligned_and_of_exact_size() {
    let pool = SlotPool::new(u64::MAX);
    for num_bytes in [0_u64, 1, 63, 64, 65, 1000] {
        let mut slot = pool.take(num_bytes).unwrap();
        assert_eq!(slot.as_mut_slice().len() as u64, num_bytes);
        assert_eq!(slot.num_bytes(), num_bytes);
        let bytes = slot.freeze();
        assert_eq!(bytes.len() as u64, num_bytes);
        assert!(num_bytes == 0 || bytes.as_ptr().addr().is_multiple_of(64));
    }
}

#[test]
fn the_last_clone_gives_the_buffer_back() {
    let pool = SlotPool::new(100);
    let mut slot = pool.take(60).unwrap();
    slot.as_mut_slice().fill(7);
    let bytes = slot.freeze();
    let (view, address) = (bytes.slice(10..20), bytes.as_ptr());
    drop(bytes);
    assert_eq!(pool.ledger().live_bytes(), 60);
    assert_eq!(&view[..], [7; 10]);
    drop(view);
    assert_eq!(pool.ledger().live_bytes(), 0);
    assert_eq!(pool.ledger().peak_bytes(), 60);
    let mut again = pool.take(60).unwrap();
    assert_eq!(again.as_mut_slice().as_ptr(), address);
}

#[test]
fn the_budget_is_a_hard_cap() {
    let pool = SlotPool::new(100);
    let first = pool.take(60).unwrap();
    let error = pool.take(41).unwrap_err();
    assert_eq!(
        error.to_string(),
        "41 bytes do not fit: 60 live and 0 reserved of a budget of 100; release some or raise the budget"
    );
    let reservation = pool.ledger().reserve(40).unwrap();
    assert_eq!(pool.ledger().reserved_bytes(), 40);
    assert!(matches!(pool.take(1), Err(StreamError::NoRoom { .. })));
    assert!(pool.ledger().reserve(1).is_err());
    assert!(pool.ledger().reserve(u64::MAX).is_err());
    drop(first);
    assert_eq!(pool.ledger().free_bytes(), 60);
    drop(reservation);
    // The idle buffer of 60 bytes does not stand in the way of one of 100.
    drop(pool.take(100).unwrap());
    assert_eq!(
        (pool.ledger().live_bytes(), pool.ledger().peak_bytes()),
        (0, 100)
    );
}

#[test]
fn a_size_no_memory_has_is_refused_under_any_budget() {
    let pool = SlotPool::new(u64::MAX);
    for num_bytes in [u64::MAX, i64::MAX.unsigned_abs()] {
        let error = pool.take(num_bytes).unwrap_err();
        assert!(matches!(error, StreamError::NoRoom { .. }), "{error}");
    }
    assert_eq!(pool.ledger().live_bytes(), 0);
}

#[test]
fn a_poisoning_pool_leaves_garbage() {
    let pool = SlotPool::poisoning(8);
    let mut slot = pool.take(8).unwrap();
    slot.as_mut_slice().fill(1);
    drop(slot.freeze());
    assert_eq!(pool.take(8).unwrap().as_mut_slice(), [0xA5; 8]);
}
