//! Strengths by layer: patterns over the model's names, and how they are written.

use burn::tensor::Tensor;
use overglaze_core::{
    MountedStrength, Mounting, Placement, Strengths, mount, mounted, reweight, swap,
};

use crate::{
    numbers::{message, plain},
    toy::{Toy, lora_adapter, piece, resident},
};

const SHAPE: [usize; 2] = [6, 8];
const PATHS: [&str; 4] = [
    "double_blocks.0.img_attn.proj",
    "double_blocks.0.txt_attn.proj",
    "double_blocks.10.img_attn.proj",
    "single_blocks.0.linear2",
];

fn toy() -> Toy {
    resident(&PATHS.map(|path| (path, "F32", SHAPE)))
}

fn input() -> Tensor<2> {
    plain([3, SHAPE[1]], 3)
}

fn set() -> overglaze_patches::PatchSet {
    lora_adapter(&[0, 1, 2, 3].map(|index| (PATHS[index], SHAPE, 20 + 2 * index)))
}

/// The strengths of the four layers.
fn strengths_of(toy: &Toy) -> Vec<f32> {
    let adapter = mounted(toy).remove(0);
    match adapter.strength {
        MountedStrength::Uniform(strength) => vec![strength; 4],
        MountedStrength::PerLayer(layers) => PATHS.map(|path| layers[path]).to_vec(),
    }
}

#[test]
fn the_last_pattern_that_matches_counts() {
    for (text, expected) in [
        ("0.7", [0.7, 0.7, 0.7, 0.7]),
        ("1.0,double_blocks.0.*=0.5", [0.5, 0.5, 1.0, 1.0]),
        ("double_blocks.0.*=0.5, 2", [0.5, 0.5, 2.0, 2.0]),
        ("0,*.img_attn.*=0.25", [0.25, 0.0, 0.25, 0.0]),
        (
            "*.img_attn.*=0.25,double_blocks.0.*=3",
            [3.0, 3.0, 0.25, 1.0],
        ),
        (
            "double_blocks.0.*=3,*.img_attn.*=0.25",
            [0.25, 3.0, 0.25, 1.0],
        ),
        ("single_blocks.0.linear2=-1", [1.0, 1.0, 1.0, -1.0]),
        ("*=0.5", [0.5; 4]),
        ("*_blocks.*0.*proj*=2", [2.0, 2.0, 2.0, 1.0]),
        // The alias stands for the whole layer, the one after it for half of it.
        ("attn.whole=2", [2.0, 1.0, 1.0, 1.0]),
    ] {
        let whole = vec![piece(PATHS[0], 0..6, 0..6)];
        let mut toy = toy().with_alias("attn.whole", whole);
        let strengths: Strengths = text.parse().expect(text);
        mount(&mut toy, "set", &set(), strengths.clone()).expect("it fits");
        assert_eq!(strengths_of(&toy), expected, "{text}");
        assert_eq!(
            strengths.to_string().parse::<Strengths>().ok(),
            Some(strengths)
        );
    }
}

#[test]
fn each_layer_gets_its_own_strength_however_it_is_placed() {
    let strengths = Strengths::uniform(1.0)
        .with_pattern("double_blocks.*", 0.5)
        .with_pattern("*.txt_attn.*", 0.0);
    let outputs = |placement, strengths: [f32; 4]| {
        let mut toy = toy();
        for (index, strength) in strengths.into_iter().enumerate() {
            let set = lora_adapter(&[(PATHS[index], SHAPE, 20 + 2 * index)]);
            let mounting = Mounting::new(PATHS[index], &set, strength).with_placement(placement);
            swap(&mut toy, &[], &[mounting]).expect("it fits");
        }
        toy.output_bits(&input())
    };
    for placement in [Placement::Sidecar, Placement::Direct] {
        let expected = outputs(placement, [0.5, 0.0, 0.5, 1.0]);
        let uniform = outputs(placement, [0.3; 4]);
        let mut toy = toy();
        let set = set();
        let mounting = Mounting::new("set", &set, &strengths).with_placement(placement);
        swap(&mut toy, &[], &[mounting]).expect("it fits");
        assert_eq!(toy.output_bits(&input()), expected);
        reweight(&mut toy, "set", 0.3).expect("it is mounted");
        assert_eq!(toy.output_bits(&input()), uniform);
        reweight(&mut toy, "set", &strengths).expect("it is mounted");
        assert_eq!(toy.output_bits(&input()), expected);
        assert_ne!(expected, uniform);
    }
}

#[test]
fn a_pattern_without_a_layer_is_an_error_naming_the_nearest() {
    let half = vec![piece(PATHS[0], 0..3, 0..3)];
    let mut toy = toy().with_alias("attn.half", half);
    mount(&mut toy, "set", &set(), 1.0).expect("it fits");
    let before = toy.output_bits(&input());
    for (pattern, nearest) in [
        ("double_block.0.*", "double_blocks.0.*"),
        ("DOUBLE_BLOCKS.*", "double_blocks.*"),
        ("*.img_atn.*", "*.img_attn.*"),
        ("single_blocks.7.linear2", "single_blocks.0.linear2"),
        ("single_blocks.7.linear2.weight", "single_blocks.0.linear2"),
        ("linear2", "*.linear2"),
        ("double_blocks.0", "double_blocks.0.*"),
        ("attn.half", "*.img_attn.*"),
    ] {
        let strengths = Strengths::uniform(1.0).with_pattern(pattern, 0.5);
        let reweighted = reweight(&mut toy, "set", strengths.clone());
        let message = message(reweighted);
        let start =
            format!("the strength pattern `{pattern}` matches no layer of the model; nearest: ");
        assert!(message.starts_with(&start), "{message}");
        if pattern != "attn.half" {
            assert_eq!(message, format!("{start}`{nearest}`"));
        }
        let mounted = mount(&mut toy, "other", &set(), strengths);
        assert!(self::message(mounted).starts_with(&start));
        assert_eq!(toy.output_bits(&input()), before);
    }
}

#[test]
fn what_is_no_strength_is_named() {
    for (text, part, why) in [
        ("", "", "expected a finite number"),
        ("strong", "strong", "expected a finite number"),
        ("1.0,a.*=", "a.*=", "expected a finite number"),
        ("1.0,a.*=inf", "a.*=inf", "expected a finite number"),
        ("nan", "nan", "expected a finite number"),
        ("1.0,", "", "expected a finite number"),
        (
            "=0.5",
            "=0.5",
            "expected a pattern of layer names before the `=`",
        ),
        (
            "1.0,0.5",
            "0.5",
            "there is a number for all layers before it already",
        ),
    ] {
        let message = message(text.parse::<Strengths>());
        let expected = format!("`{part}` is no strength: {why}; write a number");
        assert!(message.starts_with(&expected), "{text}: {message}");
    }
}
