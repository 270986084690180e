//! Plans: what stays resident, and how large the ring is.

use overglaze_stream::plan;

/// Sizes, budget, look-ahead, resident weights, ring bytes, overlap.
type Case<'a> = (&'a [u64], u64, usize, usize, u64, bool);

#[test]
fn the_prefix_is_the_longest_that_leaves_a_ring() {
    let cases: &[Case<'_>] = &[
        (&[], 0, 1, 0, 0, true),
        (&[4, 4, 4], 12, 1, 3, 0, true),
        (&[4, 4, 4, 4], 12, 1, 1, 8, true),
        (&[4, 4, 4, 4], 15, 1, 1, 11, true),
        (&[4, 4, 4, 4], 8, 1, 0, 8, true),
        (&[4, 4, 4, 4], 7, 1, 0, 7, false),
        (&[4, 4, 4, 4], 4, 1, 0, 4, false),
        // More look-ahead costs no resident weight, none needs no pair.
        (&[4, 4, 4, 4], 12, 9, 1, 8, true),
        (&[4, 4, 4, 4], 12, 0, 2, 4, false),
        (&[4, 4, 4, 4], 16, 0, 4, 0, true),
        (&[1, 1, 6, 6], 9, 0, 2, 7, false),
        // The pair that counts wraps from the last weight to the first streamed one.
        (&[6, 1, 1, 6], 12, 1, 0, 12, true),
        // No pair of 6 fits in 9, but the large weight alone does, after one resident.
        (&[2, 6, 6], 9, 1, 1, 7, false),
        // A long tail of small weights: the large ones stay.
        (&[9, 9, 1, 1, 1, 1], 20, 1, 2, 2, true),
    ];
    for (sizes, budget, lookahead, resident, ring, overlaps) in cases {
        let plan = plan(sizes, *budget, *lookahead);
        let found = (plan.num_resident, plan.ring_bytes, plan.overlaps);
        assert_eq!(
            found,
            (*resident, *ring, *overlaps),
            "{sizes:?} in {budget}, look-ahead {lookahead}"
        );
        assert_eq!(plan.model_bytes, sizes.iter().sum::<u64>());
        assert_eq!(plan.resident_bytes + plan.streamed_bytes, plan.model_bytes);
        assert!(plan.resident_bytes + plan.ring_bytes <= *budget);
        assert!((0..sizes.len()).all(|index| plan.is_resident(index) == (index < *resident)));
    }
}

#[test]
fn sums_past_the_end_of_u64_saturate() {
    let plan = plan(&[u64::MAX, u64::MAX, 1], 10, 1);
    assert_eq!((plan.num_resident, plan.model_bytes), (0, u64::MAX));
    assert!(!plan.overlaps);
}
