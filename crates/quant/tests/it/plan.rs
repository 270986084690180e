//! The choice of a kernel, as a function of the shape alone.

use overglaze_quant::kernels::{Path, Plan};

fn check(num_rows: usize, shape: [usize; 2], path: Path, tile: [usize; 2]) {
    let plan = Plan::new(num_rows, shape);
    assert_eq!(
        (plan.path, plan.tile),
        (path, tile),
        "{num_rows} rows of {shape:?}"
    );
}

#[test]
fn the_number_of_rows_chooses_the_kernel() {
    check(0, [8, 8], Path::Dot, [1, 32]);
    check(1, [3072, 3072], Path::Dot, [1, 32]);
    check(8, [3072, 3072], Path::Dot, [8, 32]);
    check(9, [3072, 3072], Path::Block, [9, 24]);
    check(96, [3072, 3072], Path::Block, [96, 24]);
    check(97, [3072, 3072], Path::Gemm, [1024, 256]);
}

#[test]
fn tiles_of_long_rows_are_bounded() {
    check(4096, [3072, 12_288], Path::Gemm, [1024, 64]);
    check(4096, [3072, 15_360], Path::Gemm, [1024, 48]);
    check(4096, [3072, 1 << 20], Path::Gemm, [1024, 16]);
}

#[test]
fn few_columns_are_cut_along_the_rows() {
    check(4096, [64, 3072], Path::Gemm, [256, 256]);
}

#[test]
fn small_products_stay_on_one_thread() {
    assert!(!Plan::new(1, [64, 64]).is_parallel);
    assert!(Plan::new(1, [3072, 3072]).is_parallel);
    assert!(Plan::new(usize::MAX, [3072, 3072]).is_parallel);
}
