//! The formats, one file each, by the library that writes them. A file registers itself: nothing else names it.

mod bitsandbytes;
mod float;
mod ggml;
mod sdnq;
