//! The formats, one file each. A file registers itself: nothing else names it.

mod bf16;
mod f16;
mod f32;
mod q8_0;
