//! `registry`: what is compiled in, from whichever crates are linked, and what each patch kind is.

mod kind;

use overglaze_patches::{dialects::dialects, registry::kinds};
use overglaze_quant::{Encode, QuantFormat, formats_by_name};
use serde::Serialize;

use crate::{CliError, Console, Exit, args::RegistryArgs, device, table};

use self::kind::Kind;
use super::JSON_VERSION;

#[derive(Serialize)]
struct Registry {
    version: u32,
    kinds: Vec<Kind>,
    formats: Vec<Format>,
    dialects: Vec<&'static str>,
    devices: Vec<&'static str>,
}

#[derive(Serialize)]
struct Format {
    name: &'static str,
    tags: &'static [&'static str],
    ggml_type: Option<u32>,
    /// Absent where the weight is several tensors.
    block_len: Option<usize>,
    block_bytes: Option<usize>,
    /// Names that `quantize --format` takes; none where it is only read.
    written_as: Vec<&'static str>,
}

pub(crate) fn run(args: &RegistryArgs, console: &Console) -> Result<Exit, CliError> {
    let registry = Registry {
        version: JSON_VERSION,
        kinds: kinds().into_iter().map(Kind::of).collect(),
        formats: formats_by_name().into_iter().map(Format::of).collect(),
        dialects: dialects().into_iter().map(|dialect| dialect.name).collect(),
        devices: device::compiled(),
    };
    console.result(&registry, || match args.markdown {
        true => registry.page(),
        false => registry.text(),
    })?;
    Ok(Exit::Done)
}

impl Registry {
    fn text(&self) -> String {
        let kinds: Vec<_> = self.kinds.iter().map(Kind::row).collect();
        let formats: Vec<_> = self.formats.iter().map(Format::row).collect();
        let others = [
            vec!["dialects".into(), self.dialects.join(", ")],
            vec!["devices".into(), self.devices.join(", ")],
        ];
        format!(
            "{}\n\n{}\n\n{}",
            table::of_paragraphs(&["Patch kind", "What it is"], &kinds),
            table::of_text(
                &[
                    "Format",
                    "Type tags",
                    "Values a block",
                    "Bytes a block",
                    "Written as"
                ],
                &formats
            ),
            table::of_paragraphs(&["Others", "Compiled in"], &others),
        )
    }

    /// The kinds as a page of Markdown.
    fn page(&self) -> String {
        let sections: Vec<_> = self.kinds.iter().map(Kind::section).collect();
        format!("{PAGE_START}\n{}", sections.join("\n"))
    }
}

impl Format {
    fn of(format: &'static dyn QuantFormat) -> Self {
        Self {
            name: format.name(),
            tags: format.tags(),
            ggml_type: format.ggml_type(),
            block_len: format.block().map(|block| block.len),
            block_bytes: format.block().map(|block| block.bytes),
            written_as: format
                .encoders()
                .iter()
                .map(|encoder| Encode::encoding(*encoder))
                .collect(),
        }
    }

    fn row(&self) -> Vec<String> {
        let size = |size: Option<usize>| size.map_or_else(String::new, |size| size.to_string());
        vec![
            self.name.into(),
            self.tags.join(", "),
            size(self.block_len),
            size(self.block_bytes),
            self.written_as.join(", "),
        ]
    }
}

const PAGE_START: &str = "\
# Patch kinds

<!-- Written by `overglaze registry --markdown > docs/kinds.md` from the entries of the kinds; do not edit. -->

What each kind adds to a layer's weight W and bias b at strength 1, in the letters of the keys its files hold. A layer
gets the kind whose keys it has, exactly; a kind that stands beside another changes what that one adds.
`*` in a key stands for the adapter's name that PEFT writes there.
";
