//! Which kernel a product gets and how its output is cut: a pure function of the shape.

/// How a product `[num_rows, d_input] · [d_output, d_input]ᵀ` is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The kernel.
    pub path: Path,
    /// Rows and columns of the output in one tile.
    pub tile: [usize; 2],
    /// Whether the tiles are worth more than one thread.
    pub is_parallel: bool,
}

/// The kernels, from few input rows to many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// Weights are decoded in registers.
    Dot,
    /// Weight tiles are decoded to f32; blocks of outputs are summed in registers.
    Block,
    /// Weight tiles are decoded to f32 and repacked by the `gemm` crate.
    Gemm,
}

impl Plan {
    /// The plan of a product of these sizes.
    #[must_use]
    pub fn new(num_rows: usize, [d_output, d_input]: [usize; 2]) -> Self {
        let path = path(num_rows);
        let tile = match path {
            Path::Dot => [num_rows.max(1), DOT_COLUMNS],
            Path::Block => [num_rows, BLOCK_COLUMNS],
            Path::Gemm => gemm_tile([d_output, d_input]),
        };
        let products = num_rows.saturating_mul(d_output).saturating_mul(d_input);
        Self {
            path,
            tile,
            is_parallel: products >= MIN_PARALLEL_PRODUCTS,
        }
    }
}

fn path(num_rows: usize) -> Path {
    if num_rows <= MAX_DOT_ROWS {
        Path::Dot
    } else if num_rows <= MAX_BLOCK_ROWS {
        Path::Block
    } else {
        Path::Gemm
    }
}

/// Long rows get fewer columns, to bound the buffer; few columns get fewer rows, to have work for every
/// thread.
fn gemm_tile([d_output, d_input]: [usize; 2]) -> [usize; 2] {
    let columns = MAX_DECODED_VALUES / d_input.max(1) / 16 * 16;
    let columns = columns.clamp(16, GEMM_COLUMNS);
    let rows = if d_output.div_ceil(columns) >= 8 {
        GEMM_ROWS
    } else {
        GEMM_ROWS / 4
    };
    [rows, columns]
}

/// Measured at 3072 × 3072: up to here decoding in registers beats a decoded tile.
const MAX_DOT_ROWS: usize = 8;
/// Measured at 3072 × 3072: from here on repacking pays.
const MAX_BLOCK_ROWS: usize = 96;
/// Enough for long streams of weights, few enough to have work for every thread.
const DOT_COLUMNS: usize = 32;
/// A multiple of the block kernel's 3, small enough for the second-level cache.
const BLOCK_COLUMNS: usize = 24;
/// The `gemm` crate repacks the input for every tile: wide tiles repeat that less often.
const GEMM_COLUMNS: usize = 256;
/// Input rows that stay in the last-level cache while every weight tile meets them.
const GEMM_ROWS: usize = 1024;
/// 3 MiB of f32 per thread.
const MAX_DECODED_VALUES: usize = 3 << 18;
/// Below so many multiplications waking another thread costs more than it gives.
const MIN_PARALLEL_PRODUCTS: usize = 1 << 17;
