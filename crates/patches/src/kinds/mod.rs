//! The built-in patch kinds, one file each; every file registers itself.

mod lora;
