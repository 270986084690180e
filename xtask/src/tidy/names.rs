//! A patch kind, a quant format or a dialect is named in its own file and in the `mod` line, nowhere else.
//!
//! In code, that is not in comments and tests, a name is a string literal that equals it (`"lora"`) or a
//! path to its module (`kinds::lora`, `kinds::{lora, …}`; beside it `super::lora`, `use lora::…`). Words that only
//! contain it are no names: a type `LoraFile`, a variable `loras`, a flag `#[arg(long = "lora")]`, the
//! Rust type `f32`.

use super::{
    Finding, TreeFile,
    rust_text::{self, RustText, is_word, line_of},
};

/// A folder whose files register one thing each.
#[derive(Debug)]
pub(super) struct Registry {
    pub(super) what: &'static str,
    /// Whether what it holds has golden cases of numbers.
    pub(super) has_cases: bool,
    folder: &'static str,
    /// The module the folder is.
    module: &'static str,
    /// Crates where the same word means something of their own.
    exempt: &'static [&'static str],
}

/// The registries of this project.
pub(super) const REGISTRIES: [Registry; 3] = [
    Registry {
        what: "patch kind",
        has_cases: true,
        folder: "crates/patches/src/kinds/",
        module: "kinds",
        exempt: &[],
    },
    Registry {
        what: "quant format",
        has_cases: true,
        folder: "crates/quant/src/formats/",
        module: "formats",
        exempt: &[],
    },
    // `models` owns the names of checkpoints, which carry some of the dialects' words.
    Registry {
        what: "dialect",
        has_cases: false,
        folder: "crates/patches/src/dialects/",
        module: "dialects",
        exempt: &["crates/models/"],
    },
];

/// A file that registers something, and the names it registers.
#[derive(Debug)]
pub(super) struct Entry<'a> {
    pub(super) file: &'a TreeFile,
    pub(super) names: Vec<String>,
}

impl Registry {
    /// The files of the folder that register something.
    pub(super) fn entries<'a>(&self, files: &'a [TreeFile]) -> Vec<Entry<'a>> {
        let inside = files
            .iter()
            .filter(|file| file.is_rust() && file.path.starts_with(self.folder));
        inside.filter_map(entry).collect()
    }
}

/// Checks the library code of every crate.
pub(super) fn check(files: &[TreeFile]) -> Vec<Finding> {
    let code = files.iter().filter(|file| is_library_code(file));
    let code: Vec<_> = code
        .map(|file| (file, rust_text::read(&file.text)))
        .collect();
    let mut findings = Vec::new();
    for registry in &REGISTRIES {
        for entry in registry.entries(files) {
            let elsewhere = code.iter().filter(|(file, _)| {
                file.path != entry.file.path
                    && !registry
                        .exempt
                        .iter()
                        .any(|folder| file.path.starts_with(folder))
            });
            elsewhere
                .for_each(|(file, text)| check_file(file, text, registry, &entry, &mut findings));
        }
    }
    findings
}

fn is_library_code(file: &TreeFile) -> bool {
    let mut parts = file.path.splitn(4, '/');
    let (root, _, source) = (parts.next(), parts.next(), parts.next());
    root == Some("crates") && source == Some("src") && file.is_rust() && file.stem() != "tests"
}

/// A file that submits to a registry; its names are what stands after `name:` or in `fn name`, or else the
/// file's own name.
fn entry(file: &TreeFile) -> Option<Entry<'_>> {
    let text = rust_text::read(&file.text);
    let submits = [
        "submit!",
        "register_patch!",
        "register_format!",
        "register_dialect!",
    ];
    if file.stem() == "mod" || !submits.iter().any(|word| text.code.contains(word)) {
        return None;
    }
    let literals = text.literals.iter().filter(|literal| {
        let before = text.code[..literal.start - 1].trim_end();
        before.ends_with("name:") || before.ends_with("fn name(&self) -> &'static str {")
    });
    let mut names: Vec<_> = literals.map(|literal| literal.value.clone()).collect();
    if names.is_empty() {
        names.push(file.stem().into());
    }
    Some(Entry { file, names })
}

fn check_file(
    file: &TreeFile,
    text: &RustText,
    registry: &Registry,
    entry: &Entry<'_>,
    findings: &mut Vec<Finding>,
) {
    let named = text.literals.iter().filter(|literal| {
        entry.names.contains(&literal.value) && !is_flag(&text.code[..literal.start - 1])
    });
    let literals = named.map(|literal| (literal.start, format!("{:?}", literal.value)));
    let stem = entry.file.stem();
    let mut paths = paths_to(&text.code, registry.module, stem);
    if file.path.starts_with(registry.folder) {
        paths.extend(paths_to(&text.code, "super", stem));
        paths.extend(
            text.code
                .match_indices(&format!("use {stem}::"))
                .map(|(start, _)| start),
        );
    }
    let paths = paths
        .into_iter()
        .map(|at| (at, format!("a path to `{stem}`")));
    findings.extend(literals.chain(paths).map(|(at, name)| {
        let why = format!("names the {} of {}: {name}", registry.what, entry.file.path);
        file.finding(line_of(&text.code, at), why)
    }));
}

/// The name of a command-line flag, as in `#[arg(long = "lora")]`.
fn is_flag(before: &str) -> bool {
    let before = before.trim_end().strip_suffix('=').map(str::trim_end);
    before.is_some_and(|before| before.ends_with("long") || before.ends_with("value_name"))
}

/// Offsets in `code` of paths that start at the module `module` and pass through `stem`.
fn paths_to(code: &str, module: &str, stem: &str) -> Vec<usize> {
    let starts = code.match_indices(module).map(|(start, _)| start);
    let whole = starts.filter(|start| !code[..*start].chars().next_back().is_some_and(is_word));
    let through = whole.filter(|start| {
        path_tail(&code[start + module.len()..])
            .split(|c| !is_word(c))
            .any(|word| word == stem)
    });
    through.collect()
}

/// The rest of a path: segments, up to and with one group in braces. Empty unless `::` follows at once.
fn path_tail(code: &str) -> &str {
    let (mut end, mut depth) = (0, 0_usize);
    if !code.starts_with("::") {
        return "";
    }
    for character in code.chars() {
        match character {
            '{' => depth += 1,
            '}' if depth <= 1 => break,
            '}' => depth -= 1,
            _ if depth > 0 || character == ':' || is_word(character) => {}
            _ => break,
        }
        end += character.len_utf8();
    }
    &code[..end]
}

#[cfg(test)]
mod tests {
    use super::{
        super::{lines_of, tree_of},
        *,
    };

    const KIND: (&str, &str) = (
        "crates/patches/src/kinds/lora.rs",
        "register_patch! { PatchKind { name: \"lora\", } }",
    );
    const FORMAT: (&str, &str) = (
        "crates/quant/src/formats/dense/f32.rs",
        "fn name(&self) -> &'static str {\n \"f32\" }\ninventory::submit! { X }",
    );
    const DIALECT: (&str, &str) = (
        "crates/patches/src/dialects/kohya.rs",
        "inventory::submit! { Dialect { name: \"kohya\" } }",
    );

    fn findings(path: &str, text: &str) -> Vec<String> {
        lines_of(&check(&tree_of(&[KIND, FORMAT, DIALECT, (path, text)])))
    }

    #[test]
    fn each_naming_is_found() {
        for (path, text) in [
            (
                "crates/core/src/attach.rs",
                "if patch.kind() == \"lora\" {}",
            ),
            (
                "crates/core/src/attach.rs",
                "use overglaze_patches::kinds::lora::Lora;",
            ),
            (
                "crates/core/src/attach.rs",
                "use overglaze_patches::{kinds::{self, lora}, Patch};",
            ),
            ("crates/patches/src/kinds/dora.rs", "use super::lora::Lora;"),
            (
                "crates/patches/src/kinds/mod.rs",
                "pub mod lora;\npub use lora::Lora;",
            ),
            (
                "crates/quant/src/kernels/cpu.rs",
                "match format.name() { \"f32\" => 1, _ => 0 }",
            ),
            (
                "crates/quant/src/lib.rs",
                "pub use formats::dense::f32::F32;",
            ),
            (
                "crates/cli/src/check.rs",
                "let is_kohya = dialect == r\"kohya\";",
            ),
        ] {
            let found = findings(path, text);
            assert!(
                found.len() == 1 && found[0].starts_with(path),
                "{text}: {found:?}"
            );
        }
    }

    #[test]
    fn what_only_looks_alike_passes() {
        for (path, text) in [
            ("crates/patches/src/kinds/mod.rs", "pub mod lora;"),
            (
                "crates/core/src/attach.rs",
                "// as \"lora\" does, see kinds::lora\nlet loras = Lora(\"lora_up\");",
            ),
            (
                "crates/core/src/attach.rs",
                "#[cfg(test)]\nmod tests { const A: &str = \"lora\"; }",
            ),
            ("crates/core/tests/it/attach.rs", "let kind = \"lora\";"),
            (
                "crates/cli/src/sample.rs",
                "#[arg(long = \"lora\")] lora: Vec<String>",
            ),
            (
                "crates/quant/src/kernels/cpu.rs",
                "use half::f16; let x: f32 = f32::from_le_bytes(b);",
            ),
            (
                "crates/models/src/names.rs",
                "const NAMING: &str = \"kohya\";",
            ),
            ("tools/parity/src/main.rs", "let kind = \"lora\";"),
        ] {
            assert_eq!(findings(path, text), [""; 0], "{text}");
        }
    }

    #[test]
    fn an_entry_is_a_file_that_submits() {
        let files = tree_of(&[
            FORMAT,
            ("crates/quant/src/formats/blocks.rs", "fn name() {}"),
        ]);
        let entries = REGISTRIES[1].entries(&files);
        assert_eq!(entries.len(), 1);
        assert_eq!(entries[0].names, ["f32"]);
    }
}
