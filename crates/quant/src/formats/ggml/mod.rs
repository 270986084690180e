//! GGML's block formats, as they stand in GGUF files (`ggml-common.h` and `ggml-quants.c` of ggml).

mod q8_0;
