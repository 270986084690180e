//! Two formats that claim one name or tag: refused, never resolved by order.
//!
//! A program of its own, for what is registered is registered in all of it.

use overglaze_quant::{
    FormatEntry, Part, QuantFormat, format_by_name, format_by_tag, inventory, kernels::WeightRows,
};

/// Whole bytes as values, under a name of choice.
#[derive(Debug)]
struct Bytes {
    name: &'static str,
    tags: &'static [&'static str],
}

impl QuantFormat for Bytes {
    fn name(&self) -> &'static str {
        self.name
    }

    fn tags(&self) -> &'static [&'static str] {
        self.tags
    }

    fn decode_rows(&self, rows: &WeightRows<'_>, values: &mut [f32]) {
        let bytes = &rows.parts().bytes(Part::VALUES)[rows.values()];
        for (value, byte) in values.iter_mut().zip(bytes) {
            *value = f32::from(*byte);
        }
    }
}

inventory::submit! { FormatEntry(&Bytes { name: "bytes", tags: &["U8"] }) }
inventory::submit! { FormatEntry(&Bytes { name: "bytes", tags: &["B8"] }) }
inventory::submit! { FormatEntry(&Bytes { name: "octets", tags: &["U8", "O8"] }) }

#[test]
fn a_name_of_two_formats_is_refused() {
    assert_eq!(
        format_by_name("bytes").unwrap_err().to_string(),
        "`bytes` stands for 2 registered weight formats (bytes, bytes); link only one of the crates that \
         bring them"
    );
}

#[test]
fn a_tag_of_two_formats_is_refused() {
    assert_eq!(
        format_by_tag("U8").unwrap_err().to_string(),
        "`U8` stands for 2 registered weight formats (bytes, octets); link only one of the crates that \
         bring them"
    );
}

#[test]
fn what_only_one_claims_is_found() {
    assert_eq!(format_by_name("octets").unwrap().name(), "octets");
    for (tag, name) in [("O8", "octets"), ("B8", "bytes"), ("Q8_0", "q8_0")] {
        assert_eq!(format_by_tag(tag).unwrap().name(), name);
    }
}
