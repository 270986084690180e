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
  overglaze sample --model flux1-schnell.safetensors --conditioning prompts.safetensors --steps 4";

pub(crate) const INSPECT: &str = "\
Examples:
  overglaze inspect adapter.safetensors
  overglaze inspect FLUX.1-dev/ --json
  overglaze inspect epoch-1.safetensors --compare epoch-2.safetensors";

pub(crate) const CHECK: &str = "\
Examples:
  overglaze check loras/ --model FLUX.1-dev/
  overglaze check adapter.safetensors --model-keys flux-keys.json --keys
  overglaze check adapter.safetensors --strict        against the embedded demo

Exit code 3 where nothing applies, or with --strict where anything is left over; 1 where an adapter cannot
be read, after all have been looked at.";

pub(crate) const REGISTRY: &str = "\
Examples:
  overglaze registry
  overglaze registry --json";

pub(crate) const COMPLETIONS: &str = "\
Examples:
  overglaze completions bash > ~/.local/share/bash-completion/completions/overglaze
  overglaze completions fish > ~/.config/fish/completions/overglaze.fish";
