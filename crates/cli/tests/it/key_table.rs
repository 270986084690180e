//! Every public set of adapter keys, over the layers of the model it is for: `docs/keys.md`, byte for byte.
//!
//! `OVERGLAZE_BLESS=1` writes the page anew.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use burn::tensor::Device;
use overglaze_cli::{adapter_of_keys, model_of_keys};
use overglaze_core::MountReport;
use overglaze_models::families::LayerCatalog;
use overglaze_patches::{FileKey, dialects::dialects};
use serde::Deserialize;

/// A row of `cases/keys/table.json`.
#[derive(Deserialize)]
struct Set {
    set: String,
    class: String,
    models: Vec<String>,
    /// The set is there to fail, and this is how.
    #[serde(default)]
    fails: Option<String>,
}

/// What became of a set.
struct Outcome {
    num_keys: usize,
    counts: BTreeMap<&'static str, usize>,
    why: String,
}

#[test]
fn every_key_of_every_public_set_is_accounted_for() {
    let table = fs::read_to_string(keys("table.json")).unwrap();
    let sets: Vec<Set> = serde_json::from_str(&table).unwrap();
    let mut catalogs = HashMap::new();
    let mut page = String::from(HEAD);
    for set in &sets {
        for model in &set.models {
            let catalog = catalogs
                .entry(model.clone())
                .or_insert_with(|| catalog(model));
            let outcome = Outcome::of(&set.set, catalog);
            set.check(model, &outcome);
            set.write(&mut page, model, &outcome);
        }
    }
    page.push_str(&names_alone());
    compare(&page);
}

/// Every file of the folder is in the table.
#[test]
fn every_set_is_in_the_table() {
    let table = fs::read_to_string(keys("table.json")).unwrap();
    let sets: Vec<Set> = serde_json::from_str(&table).unwrap();
    let mut num_files = 0;
    for folder in ["sets", "small"] {
        for file in fs::read_dir(keys(folder)).unwrap() {
            let name = file.unwrap().file_name().into_string().unwrap();
            let name = format!("{folder}/{}", name.trim_end_matches(".json"));
            let is_listed = sets.iter().any(|set| set.set == name) || name == NAMES;
            assert!(is_listed, "{name}");
            num_files += 1;
        }
    }
    assert_eq!(num_files, sets.len() + 1);
}

impl Set {
    fn check(&self, model: &str, outcome: &Outcome) {
        let name = format!("{} over {model}: {:?}", self.set, outcome.counts);
        assert!(outcome.num_keys > 0, "{name}");
        let sum: usize = outcome.counts.values().sum();
        assert_eq!(sum, outcome.num_keys, "{name}");
        let bad = outcome
            .counts
            .keys()
            .find(|outcome| !["applied", "not loaded"].contains(outcome));
        match &self.fails {
            None => assert_eq!(bad, None, "{name}: {}", outcome.why),
            Some(expected) => {
                assert!(outcome.why.contains(expected), "{name}: {}", outcome.why);
            }
        }
    }

    fn write(&self, page: &mut String, model: &str, outcome: &Outcome) {
        let Self { set, class, .. } = self;
        let set = set.split_once('/').map_or(set.as_str(), |(_, name)| name);
        let applied = outcome.counts.get("applied").copied().unwrap_or(0);
        let others = outcome
            .counts
            .iter()
            .filter(|(name, _)| **name != "applied");
        let others: Vec<_> = others.map(|(name, num)| format!("{num} {name}")).collect();
        writeln!(
            page,
            "| {set} | {class} | {model} | {} | {applied} | {} | {} |",
            outcome.num_keys,
            others.join(", "),
            outcome.why.replace('|', "\\|")
        )
        .unwrap();
    }
}

impl Outcome {
    fn of(set: &str, catalog: &LayerCatalog) -> Self {
        let path = keys(&format!("{set}.json"));
        let num_keys = model_of_keys(&path).unwrap().len();
        let refused = |why: String| Self {
            num_keys,
            counts: BTreeMap::from([("refused", num_keys)]),
            why,
        };
        match adapter_of_keys(&path, &Device::flex()) {
            Err(error) => refused(error.to_string()),
            Ok(adapter) => Self::from_report(num_keys, &catalog.fit(&adapter).unwrap().report),
        }
    }

    fn from_report(num_keys: usize, report: &MountReport) -> Self {
        Self {
            num_keys,
            counts: report.counts(),
            why: report.first_failure().unwrap_or_default(),
        }
    }
}

fn catalog(model: &str) -> LayerCatalog {
    let shapes = model_of_keys(&keys(&format!("models/{model}.json"))).unwrap();
    LayerCatalog::new(&shapes).unwrap()
}

/// The list without shapes: which of its keys are read, and name a layer of SD 1.5 or SDXL.
fn names_alone() -> String {
    let text = fs::read_to_string(keys(&format!("{NAMES}.json"))).unwrap();
    let layers: BTreeMap<String, Vec<String>> = serde_json::from_str(&text).unwrap();
    let (sd1, sdxl) = (catalog("sd1_ldm"), catalog("sdxl_sgm"));
    let mut counts = BTreeMap::<&str, usize>::new();
    for (tails, layers) in &layers {
        for tail in tails.split(' ') {
            for layer in layers {
                let key = read(&format!("{layer}.{tail}"));
                let is_in = |model: &LayerCatalog| model.names().resolve(&key.target).is_some();
                let found = match (is_in(&sd1), is_in(&sdxl)) {
                    (true, true) => "both",
                    (true, false) => "SD 1.5",
                    (false, true) => "SDXL",
                    (false, false) => panic!("{layer}.{tail} is no layer of either"),
                };
                *counts.entry(found).or_default() += 1;
            }
        }
    }
    assert_eq!(counts.values().sum::<usize>(), 7973);
    let counts: Vec<_> = counts
        .iter()
        .map(|(name, num)| format!("{name} {num}"))
        .collect();
    format!("{NAMES_HEAD}{}.\n", counts.join(", "))
}

fn read(key: &str) -> FileKey {
    let known = dialects();
    let mut found = known.iter().filter_map(|dialect| (dialect.parse)(key));
    found
        .next()
        .unwrap_or_else(|| panic!("no dialect reads {key}"))
}

fn compare(page: &str) {
    let path = root().join("docs/keys.md");
    if std::env::var_os("OVERGLAZE_BLESS").is_some() {
        fs::write(&path, page).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    let mut lines = committed.lines();
    for line in page.lines() {
        assert_eq!(
            lines.next(),
            Some(line),
            "docs/keys.md; OVERGLAZE_BLESS=1 writes it anew"
        );
    }
    assert_eq!(lines.next(), None);
}

fn keys(path: &str) -> PathBuf {
    root().join("cases/keys").join(path)
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

const NAMES: &str = "sets/names_lorainspector_sd15_sdxl_lokr_loha_oft";

const HEAD: &str = "\
# Public sets of adapter keys

Names and shapes of adapters from public repositories ([`cases/keys`](../cases/keys/README.md)), over the layers of the
model each is for: what `overglaze check --keys SET --model-keys MODEL` says. A test writes this page and fails where a
count changes. What is left over is there to be: see the last column.

| set | class | model | keys | applied | left over | the first left over |
|---|---|---|---:|---:|---|---|
";

const NAMES_HEAD: &str = "
The list `names_lorainspector_sd15_sdxl_lokr_loha_oft` has no shapes, so no patch can be built from it. Each of its 7973
keys is read and names a layer of SD 1.5 or SDXL: ";
