//! Mistakes other programs made with names and rows, by their number in the list of known bugs.

use crate::catalogs::{FLUX_BFL, FLUX_DIFFUSERS, adapter, catalog, check, deltas, product};

/// `InvokeAI` 8415: an adapter of `norm_out` has its halves the other way round.
#[test]
fn a3_norm_out_halves_are_swapped() {
    let bfl = catalog(FLUX_BFL);
    let swapped = |layer: &str| format!("{layer} 0..8<-8..16, {layer} 8..16<-0..8");
    check(
        &bfl,
        "norm_out.linear",
        &swapped("final_layer.adaLN_modulation.1"),
    );
    let diffusers = catalog(FLUX_DIFFUSERS);
    check(
        &diffusers,
        "final_layer.adaLN_modulation.1",
        &swapped("norm_out.linear"),
    );
}

/// `InvokeAI` PR 7708: the two guidance layers are two targets.
#[test]
fn a4_guidance_layers_are_apart() {
    let catalog = catalog(FLUX_BFL);
    for (name, expected) in [
        ("linear_1", "guidance_in.in_layer 0..8<-0..8"),
        ("linear_2", "guidance_in.out_layer 0..8<-0..8"),
    ] {
        check(
            &catalog,
            &format!("time_text_embed.guidance_embedder.{name}"),
            expected,
        );
    }
}

/// `InvokeAI` 7129: query, key and value without `proj_mlp` leave the MLP's rows of `linear1` alone.
#[test]
fn a5_a_part_that_is_missing_leaves_its_rows() {
    let shape = [8, 2, 8];
    let path = |name: &str| format!("single_transformer_blocks.0.attn.{name}");
    let names = ["to_q", "to_k", "to_v"].map(path);
    let layers: Vec<_> = names.iter().map(|name| (name.as_str(), shape)).collect();
    let deltas = deltas(&catalog(FLUX_BFL), &adapter(&layers));
    let rows = &deltas["single_blocks.0.linear1"];
    assert_eq!((deltas.len(), rows.len()), (1, 56));
    let product = product(shape);
    assert_eq!(rows[..24], [&product[..], &product, &product].concat());
    assert!(rows[24..].iter().flatten().all(|value| *value == 0.0));
}

/// `InvokeAI` 7709: names of attention layers alone tell SDXL by its topology.
#[test]
fn a9_attention_names_find_their_blocks() {
    let catalog = catalog(&[
        ("input_blocks.0.0.weight", &[8, 4, 3, 3]),
        ("time_embed.0.weight", &[8, 8]),
        (
            "input_blocks.7.1.transformer_blocks.9.attn1.to_q.weight",
            &[8, 8],
        ),
        (
            "middle_block.1.transformer_blocks.9.attn1.to_q.weight",
            &[8, 8],
        ),
        (
            "output_blocks.2.1.transformer_blocks.9.attn1.to_q.weight",
            &[8, 8],
        ),
        (
            "output_blocks.5.1.transformer_blocks.1.attn1.to_q.weight",
            &[8, 8],
        ),
    ]);
    for (name, layer) in [
        (
            "down_blocks.2.attentions.0.transformer_blocks.9",
            "input_blocks.7.1.transformer_blocks.9",
        ),
        (
            "mid_block.attentions.0.transformer_blocks.9",
            "middle_block.1.transformer_blocks.9",
        ),
        (
            "up_blocks.0.attentions.2.transformer_blocks.9",
            "output_blocks.2.1.transformer_blocks.9",
        ),
        (
            "up_blocks.1.attentions.2.transformer_blocks.1",
            "output_blocks.5.1.transformer_blocks.1",
        ),
    ] {
        let expected = format!("{layer}.attn1.to_q 0..8<-0..8");
        check(&catalog, &format!("{name}.attn1.to_q"), &expected);
    }
    check(
        &catalog,
        "down_blocks.2.attentions.1.transformer_blocks.9.attn1.to_q",
        "",
    );
}

/// diffusers 11224: SDXL's `label_emb` is diffusers' `add_embedding`.
#[test]
fn a19_label_embeddings_are_mapped() {
    let layers: [(&str, &str); 2] = [
        ("label_emb.0.0", "add_embedding.linear_1"),
        ("label_emb.0.2", "add_embedding.linear_2"),
    ];
    for (stability, diffusers) in layers {
        let ours = format!("{stability}.weight");
        let own = catalog(&[
            ("input_blocks.0.0.weight", &[8, 4, 3, 3]),
            ("time_embed.0.weight", &[8, 8]),
            (&ours, &[8, 6]),
        ]);
        check(&own, diffusers, &format!("{stability} 0..8<-0..8"));
        let theirs = format!("{diffusers}.weight");
        let own = catalog(&[
            ("conv_in.weight", &[8, 4, 3, 3]),
            ("time_embedding.linear_1.weight", &[8, 8]),
            (&theirs, &[8, 6]),
        ]);
        check(&own, stability, &format!("{diffusers} 0..8<-0..8"));
    }
}

/// diffusers 13998: the swap moves rows of `up` and leaves `down` as it is.
#[test]
fn c6_only_the_output_halves_are_swapped() {
    let shape = [16, 2, 8];
    let set = adapter(&[("final_layer.adaLN_modulation.1", shape)]);
    let deltas = deltas(&catalog(FLUX_DIFFUSERS), &set);
    let product = product(shape);
    let swapped = [&product[8..], &product[..8]].concat();
    assert_eq!(deltas["norm_out.linear"], swapped);
}

/// mflux splits a fused LoRA by its rank where that divides by three; it is `down` that is shared, and `up` cut.
#[test]
fn c16_a_fused_lora_shares_down_and_cuts_up() {
    let shape = [24, 12, 8];
    let set = adapter(&[("double_blocks.0.img_attn.qkv", shape)]);
    let deltas = deltas(&catalog(FLUX_DIFFUSERS), &set);
    let product = product(shape);
    for (layer, rows) in [("to_q", 0..8), ("to_k", 8..16), ("to_v", 16..24)] {
        let layer = format!("transformer_blocks.0.attn.{layer}");
        assert_eq!(deltas[&layer], product[rows], "{layer}");
    }
    assert_eq!(deltas.len(), 3);
}
