//! The built-in patch kinds, one file each; every file registers itself.

mod boft;
mod dense_bias;
mod dora;
mod full;
mod glora;
mod ia3;
mod loha;
mod lokr;
mod lora;
mod norm_layer;
mod oft;
mod peft_boft;
mod peft_oft;
pub mod set_weight;
mod sparse_bias;
