//! Where weights go: a safetensors or GGUF file, written tensor by tensor.
//!
//! Names, types, shapes and metadata are known first, as a [`SafetensorsLayout`] or [`GgufLayout`]; the header is written from them,
//! and then each tensor once, in the layout's order. No more than one tensor has to be in memory. What the bytes
//! are written to is the caller's: a file that appears whole or not at all, a buffer, a socket.
//!
//! ```text
//! u64 little-endian: header bytes, a multiple of 8 | JSON object, padded with blanks | data
//! ```
//!
//! In a safetensors file, tensors lie in order of the size of their elements, the largest first, and of their names within one size: every
//! tensor starts at a multiple of its element's size, and the same tensors make the same file.

mod error;
mod gguf_layout;
mod gguf_writer;
mod layout;
mod queue;
mod writer;

pub use self::{
    error::SinkError,
    gguf_layout::{GgufLayout, GgufTensor},
    gguf_writer::GgufWriter,
    layout::SafetensorsLayout,
    writer::SafetensorsWriter,
};
