//! What decoding reads of an SDNQ weight's layout is checked, wherever it comes from.

use overglaze_quant::{FoundPart, Part, Parts, QuantizedTensor, find_weight, format_by_name};

use crate::sdnq_refused::uint4;

/// Parts need not come from a search.
#[test]
fn layouts_are_checked() {
    let weight = uint4().weight("a.weight").unwrap();
    let parts: Vec<Part> = weight.parts().iter().cloned().collect();
    let refused = |change: &dyn Fn(&mut Part)| {
        let mut parts = parts.clone();
        parts
            .iter_mut()
            .filter(|part| part.name == "layout")
            .for_each(change);
        let found =
            QuantizedTensor::new(format_by_name("sdnq").unwrap(), [4, 16], Parts::new(parts));
        found.map_or_else(|error| error.to_string(), |_| "taken".into())
    };
    assert_eq!(refused(&|_| ()), "taken");
    let wrong = "the part `layout` of a sdnq weight does not describe the rows, expected groups that divide 16 values; \
                 quantize the weight again";
    for number in 0..9 {
        for value in [3, u64::MAX, 1 << 63, 1 << 32] {
            let change = |part: &mut Part| {
                let mut bytes = part.bytes.to_vec();
                bytes[8 * number..][..8].copy_from_slice(&u64::to_le_bytes(value));
                part.bytes = bytes.into();
            };
            assert_eq!(refused(&change), wrong, "{number} {value}");
        }
    }
    assert_eq!(refused(&|part| part.bytes = vec![0; 71].into()), wrong);
    assert_eq!(refused(&|part| part.bytes = vec![0; 72].into()), wrong);
    assert_eq!(refused(&|part| part.tag = "uint16".into()), wrong);
    assert_eq!(
        refused(&|part| part.name = "other"),
        "a sdnq weight has no part `layout`; add it, or choose the format that its parts belong to"
    );
}

#[test]
fn numbers_that_are_known_are_parts() {
    let found = find_weight("a.weight", &uint4()).unwrap();
    let last = found.parts.last().unwrap();
    assert!(
        matches!(last, FoundPart::Known(part) if part.name == "layout" && part.bytes.len() == 72)
    );
    assert!(found.described_by.is_empty());
}
