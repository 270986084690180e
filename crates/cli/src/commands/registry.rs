//! `registry`: what is compiled in, from whichever crates are linked.

use overglaze_patches::{dialects::dialects, registry::kinds};
use overglaze_quant::formats_by_name;
use serde::Serialize;

use crate::{CliError, Console, Exit, device, table};

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
struct Kind {
    name: &'static str,
    signatures: &'static [&'static [&'static str]],
    optional: &'static [&'static str],
}

#[derive(Serialize)]
struct Format {
    name: &'static str,
    tags: &'static [&'static str],
    block_len: usize,
    block_bytes: usize,
}

pub(crate) fn run(console: &Console) -> Result<Exit, CliError> {
    let registry = Registry {
        version: JSON_VERSION,
        kinds: kinds()
            .into_iter()
            .map(|kind| Kind {
                name: kind.name,
                signatures: kind.signatures,
                optional: kind.optional,
            })
            .collect(),
        formats: formats_by_name()
            .into_iter()
            .map(|format| Format {
                name: format.name(),
                tags: format.tags(),
                block_len: format.block_len(),
                block_bytes: format.block_bytes(),
            })
            .collect(),
        dialects: dialects().into_iter().map(|dialect| dialect.name).collect(),
        devices: device::compiled(),
    };
    console.result(&registry, || registry.text())?;
    Ok(Exit::Done)
}

impl Registry {
    fn text(&self) -> String {
        let kinds: Vec<_> = self.kinds.iter().map(Kind::row).collect();
        let formats: Vec<_> = self.formats.iter().map(Format::row).collect();
        format!(
            "{}\n\n{}\n\ndialects: {}\ndevices:  {}",
            table::of_text(&["Patch kind", "Keys of a layer", "Optional keys"], &kinds),
            table::of_text(
                &["Format", "Type tags", "Values a block", "Bytes a block"],
                &formats
            ),
            self.dialects.join(", "),
            self.devices.join(", "),
        )
    }
}

impl Kind {
    fn row(&self) -> Vec<String> {
        let signatures: Vec<_> = self
            .signatures
            .iter()
            .map(|keys| keys.join(" + "))
            .collect();
        vec![
            self.name.into(),
            signatures.join("\n"),
            self.optional.join("\n"),
        ]
    }
}

impl Format {
    fn row(&self) -> Vec<String> {
        let sizes = [self.block_len.to_string(), self.block_bytes.to_string()];
        [vec![self.name.into(), self.tags.join(", ")], sizes.to_vec()].concat()
    }
}
