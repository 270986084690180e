//! The examples at the end of every `--help`.

pub(crate) const TOP: &str = "\
Examples:
  overglaze sweep                                     the embedded demo, its LoRAs, sheet.png
  overglaze sweep --model flux1-dev.safetensors --loras loras/ --conditioning prompts.safetensors
  overglaze check loras/ --model flux1-dev.safetensors
  overglaze inspect adapter.safetensors

Exit codes: 0 done, 1 failed, 2 usage, 3 the adapter does not fit the model";

pub(crate) const SWEEP: &str = "\
Examples:
  overglaze sweep                                     demo model, demo LoRAs, ten words, 20 steps
  overglaze sweep --prompt boot --prompt bag --strengths 0.5,1 -o boots.png
  overglaze sweep --device-budget 800KB               stream the model through 800 kB
  overglaze sweep --model FLUX.1-dev/ --loras loras/ --conditioning prompts.safetensors \\
                  --size 768x512 --device-budget 6GiB --save-latents latents.safetensors

Rows are prompts, columns are no LoRA and then each LoRA. A LoRA that cannot be read or does not fit is
listed with the reason, and the sweep goes on. For a model other than the demo the sheet shows a preview of
the latents: their first three principal components as red, green and blue.";

pub(crate) const SAMPLE: &str = "\
Examples:
  overglaze sample --prompt boot -o boot.png
  overglaze sample --lora outline.safetensors:0.7 --lora negative.safetensors:-0.3
  overglaze sample --lora style.safetensors --block-strength 'single_blocks.*=0.5' --placement auto
  overglaze sample --model flux1-schnell.safetensors --conditioning prompts.safetensors --steps 4";

pub(crate) const INSPECT: &str = "\
Examples:
  overglaze inspect adapter.safetensors
  overglaze inspect FLUX.1-dev/ --json
  overglaze inspect epoch-1.safetensors --compare epoch-2.safetensors
  overglaze inspect flux1-dev-Q4_K.gguf --compare flux1-dev.safetensors   what quantizing cost";

pub(crate) const CHECK: &str = "\
Examples:
  overglaze check loras/ --model FLUX.1-dev/
  overglaze check adapter.safetensors --model-keys flux-keys.json --keys
  overglaze check --keys lora-keys.json --model-keys flux-keys.json     names and shapes alone
  overglaze check adapter.safetensors --strict        against the embedded demo

Exit code 3 where nothing applies, or with --strict where anything is left over; 1 where an adapter cannot
be read, after all have been looked at.";

pub(crate) const MERGE: &str = "\
Examples:
  overglaze merge --model flux1-dev.safetensors --lora style.safetensors:0.8 -o flux1-style.safetensors
  overglaze merge --model FLUX.1-dev/ --lora a.safetensors --lora b.safetensors:-0.3 -o merged.safetensors
  overglaze merge --lora outline.safetensors -o demo-outline.safetensors   into the embedded demo

Without --model it is tried on the demo's transformer; the commands sample the demo itself from inside the program
only. A sharded model becomes one file. Exit code 3, and no file, where nothing of a LoRA applies, or with --strict
where anything is left over.";

pub(crate) const QUANTIZE: &str = "\
Examples:
  overglaze quantize --format q8_0 -o demo-Q8_0.gguf  the embedded demo
  overglaze quantize flux1-dev.safetensors --format q4_k -o flux1-dev-Q4_K.gguf
  overglaze quantize FLUX.1-dev/ --format nf4 -o flux1-dev-nf4.safetensors
  overglaze quantize model.safetensors --format q8_0 --keep 'single_blocks.*' -o model.gguf
  overglaze quantize model.gguf --format llm_int8 --dry-run -o model.safetensors

A name that ends in .gguf gives a GGUF file, for q4_0, q4_1, q5_0, q5_1, q8_0, q2_k to q6_k and iq4_nl; one that ends in
.safetensors is for nf4, fp4 and llm_int8.";

pub(crate) const DEQUANTIZE: &str = "\
Examples:
  overglaze dequantize flux1-dev-Q4_K.gguf -o flux1-dev.safetensors
  overglaze dequantize flux1-dev-nf4.safetensors --dtype bf16 -o flux1-dev.safetensors";

pub(crate) const CONVERT: &str = "\
Examples:
  overglaze convert pytorch_model.bin -o model.safetensors
  overglaze convert flux1-dev-Q8_0.gguf --dtype bf16 -o flux1-dev.safetensors
  overglaze convert a.ckpt b.pt -o folder/            a file of the same name for each";

pub(crate) const REGISTRY: &str = "\
Examples:
  overglaze registry
  overglaze registry --json
  overglaze registry --markdown > kinds.md";

pub(crate) const COMPLETIONS: &str = "\
Examples:
  overglaze completions bash > ~/.local/share/bash-completion/completions/overglaze
  overglaze completions fish > ~/.config/fish/completions/overglaze.fish";
