//! Every kind of patch on every layer, over every form of base, in place and streamed.
//!
//! `kinds` is the table of kinds and their variants, `layers` that of layers; the two are crossed whole. What a
//! pair has to satisfy where the kind has a meaning on the layer is in `cell`, what happens where it has none in
//! `refusals`.

mod cell;
mod closed;
mod dtypes;
mod keys;
mod kind_case;
mod kinds;
mod layers;
mod model;
mod reads;
mod refusals;
mod table;
