//! Patches of row ranges against one dense residual.

use std::{ops::Range, sync::Arc};

use burn::tensor::{Device, FloatDType, Tensor};
use overglaze_patches::{
    BaseAccess, BaseLayer, LayerShape, LowRank, Patch, PatchError, RowPart, RowRanges, slice_rows,
};

use crate::fixtures::{
    assert_close, delta, delta_bias, device, load, low_rank, matrix, message, refusal, scalar, wave,
};

/// Sums of at most 7 products of numbers below 1, in f32.
const TOLERANCE: f32 = 1e-5;

fn part(rows: Range<usize>, rank: usize) -> RowPart {
    let patch = low_rank([rows.len(), 7], rank, 10 * rank);
    RowPart { rows, patch }
}

/// The parts' residuals in a dense weight of 12 rows.
fn dense(parts: &[RowPart]) -> Tensor<2> {
    parts
        .iter()
        .fold(Tensor::zeros([12, 7], &device()), |dense, part| {
            let delta = delta(part.patch.as_ref(), [part.rows.len(), 7]);
            dense.slice_assign([part.rows.clone(), 0..7], delta)
        })
}

fn check(parts: Vec<RowPart>) {
    let expected = dense(&parts);
    let patch = RowRanges::new(12, parts).expect("the ranges lie apart");
    assert_close(delta(&patch, [12, 7]), expected.clone(), TOLERANCE);
    let input = matrix(wave(&[3, 7], 5));
    let product = input.clone().matmul(expected.clone().transpose());
    let copy = patch.to_device(&device(), FloatDType::BF16);
    assert_eq!(2 * copy.num_bytes(), patch.num_bytes());
    for patch in [
        &patch as &dyn Patch,
        patch.to_device(&device(), FloatDType::F32).as_ref(),
    ] {
        let sidecar = patch.sidecar_linear(input.clone()).expect("low-rank parts");
        assert_close(sidecar, product.clone(), TOLERANCE);
    }
    let patch: Arc<dyn Patch> = Arc::new(patch);
    for rows in [0..12, 2..9, 3..5, 11..12] {
        let cut = slice_rows(&patch, rows.clone());
        let expected = expected.clone().slice([rows.clone(), 0..7]);
        if expected.clone().abs().max().into_scalar::<f32>() > 0.0 {
            assert_close(delta(cut.as_ref(), [rows.len(), 7]), expected, TOLERANCE);
        }
    }
}

#[test]
fn parts_of_different_ranks() {
    check(vec![part(0..4, 2), part(4..8, 3), part(8..12, 1)]);
}

#[test]
fn any_part_may_be_missing_and_any_order_given() {
    check(vec![part(8..12, 2), part(0..4, 3)]);
    check(vec![part(3..5, 2)]);
}

#[test]
fn no_part_is_no_change() {
    let patch = RowRanges::new(12, Vec::new()).expect("nothing overlaps");
    let shape = LayerShape::linear(12, 7);
    let base = BaseLayer::of_shape(&shape);
    assert!(patch.delta_weight(&base).expect("no part fails").is_none());
    assert!(delta_bias(&patch, &shape).is_none());
    assert_eq!(patch.num_bytes(), 0);
}

#[test]
fn biases_lie_at_their_rows() {
    let biased = load(&[
        ("lora_up.weight", wave(&[4, 2], 1)),
        ("lora_down.weight", wave(&[2, 7], 2)),
        ("lora_up.bias", wave(&[4], 3)),
        ("alpha", scalar(1.0)),
    ]);
    let parts = vec![
        part(0..4, 2),
        RowPart {
            rows: 5..9,
            patch: biased.expect("a patch"),
        },
    ];
    let patch = RowRanges::new(12, parts).expect("the ranges lie apart");
    let bias = matrix(wave(&[1, 4], 3)).mul_scalar(0.5);
    let expected = Tensor::zeros([1, 12], &device()).slice_assign([0..1, 5..9], bias);
    let found = delta_bias(&patch, &LayerShape::linear(12, 7)).expect("a bias");
    assert_close(found, expected.reshape([12]), TOLERANCE);
}

#[test]
fn the_base_is_cut_for_parts_that_read_it() {
    let double = load(&[("test_double", wave(&[1], 0))]).expect("a patch");
    let patch = RowRanges::new(
        12,
        vec![RowPart {
            rows: 4..8,
            patch: double,
        }],
    )
    .expect("one part");
    assert_eq!(patch.base_access(), BaseAccess::Weight);
    assert_eq!(patch.kind(), "test-double");
    let weight = matrix(wave(&[12, 7], 1));
    let shape = LayerShape::linear(12, 7);
    let base = BaseLayer {
        weight: Some(&weight),
        ..BaseLayer::of_shape(&shape)
    };
    let found = patch
        .delta_weight(&base)
        .expect("the base is there")
        .expect("a residual");
    let middle = weight.clone().slice([4..8, 0..7]);
    let expected = weight.zeros_like().slice_assign([4..8, 0..7], middle);
    assert_close(found, expected, 0.0);
    assert!(patch.sidecar_linear(weight).is_none());
    let base = BaseLayer::of_shape(&shape);
    let expected = "a test-double patch needs the values of the base weight, but only its shape can be read; mount it on \
         a checkpoint whose weight can be decoded";
    assert_eq!(message(patch.delta_weight(&base)), expected);
}

/// A low-rank patch that must never be asked for ΔW.
#[derive(Clone, Debug)]
struct SidecarOnly(Arc<dyn Patch>);

impl Patch for SidecarOnly {
    fn kind(&self) -> &str {
        "test-sidecar-only"
    }

    fn check(&self, layer: &LayerShape) -> Result<(), PatchError> {
        self.0.check(layer)
    }

    fn delta_weight(&self, _base: &BaseLayer<'_>) -> Result<Option<Tensor<2>>, PatchError> {
        panic!("the dense residual was built")
    }

    fn low_rank(&self) -> Option<LowRank> {
        self.0.low_rank()
    }

    fn to_device(&self, _device: &Device, _dtype: FloatDType) -> Arc<dyn Patch> {
        Arc::new(self.clone())
    }

    fn num_bytes(&self) -> usize {
        self.0.num_bytes()
    }
}

#[test]
fn only_the_part_without_a_sidecar_goes_dense() {
    let full = load(&[("test_full", wave(&[4, 7], 0))]).expect("a patch");
    let rows = 5..9;
    let parts = vec![part(0..4, 2), RowPart { rows, patch: full }];
    let input = matrix(wave(&[3, 7], 5));
    let expected = input.clone().matmul(dense(&parts).transpose());
    let guarded = parts.into_iter().map(|part| match part.rows.start {
        0 => RowPart {
            patch: Arc::new(SidecarOnly(part.patch)),
            ..part
        },
        _ => part,
    });
    let patch = RowRanges::new(12, guarded.collect()).expect("the ranges lie apart");
    let sidecar = patch.sidecar_linear(input).expect("no part reads the base");
    assert_close(sidecar, expected, TOLERANCE);
}

#[test]
fn the_kinds_of_the_parts_are_named() {
    let full = load(&[("test_full", wave(&[4, 7], 0))]).expect("a patch");
    let parts = vec![
        RowPart {
            rows: 4..8,
            patch: full,
        },
        part(0..4, 2),
        part(8..12, 2),
    ];
    let patch = RowRanges::new(12, parts).expect("the ranges lie apart");
    assert_eq!(patch.kind(), "lora+test-full");
    assert_eq!(patch.base_access(), BaseAccess::Shape);
    assert_eq!(patch.parts().len(), 3);
}

#[test]
fn wrong_ranges_are_refused() {
    let outside = "are not a range inside a weight of 12 rows";
    for rows in [8..13, 4..4] {
        let patch = part(0..4, 1).patch;
        let found = message(RowRanges::new(
            12,
            vec![RowPart {
                rows: rows.clone(),
                patch,
            }],
        ));
        assert_eq!(found, format!("rows {rows:?} {outside}"));
    }
    let overlapping = RowRanges::new(12, vec![part(4..8, 1), part(7..9, 1), part(0..4, 1)]);
    assert_eq!(
        message(overlapping),
        "rows 4..8 and 7..9 of one weight overlap, expected disjoint ranges; leave one of the two patches out of \
         the adapter"
    );
}

#[test]
fn the_whole_and_each_part_must_fit() {
    let patch = RowRanges::new(12, vec![part(0..4, 1)]).expect("one part");
    assert!(patch.check(&LayerShape::linear(12, 7)).is_ok());
    let expected = "the lora patch is for a weight of shape [12, 7], the layer has [16, 7]";
    assert_eq!(refusal(&patch, &LayerShape::linear(16, 7)), expected);
    let expected = "the lora patch is for a weight of shape [4, 7], the layer has [4, 8]";
    assert_eq!(refusal(&patch, &LayerShape::linear(12, 8)), expected);
}
