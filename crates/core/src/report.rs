//! What became of every key of an adapter file.

use std::collections::BTreeMap;

use overglaze_patches::Component;

/// What became of the keys of one target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyOutcome {
    /// Laid over these layers.
    Applied {
        /// Paths of the layers.
        layers: Vec<String>,
    },
    /// The model has no such layer.
    Unmatched {
        /// Nearest names the model has.
        nearest: Vec<String>,
    },
    /// The keys are for a text encoder's layer, and the model does not hold it.
    NotLoaded {
        /// The text encoder.
        component: Component,
    },
    /// The layer has another shape.
    ShapeMismatch {
        /// Shape the patch is for, `[d_output, fan_in]`.
        found: Vec<usize>,
        /// Shape of the layer's weight.
        expected: Vec<usize>,
        /// Both, in words.
        why: String,
    },
    /// No kind accepts the keys.
    KindUnknown {
        /// What they look like.
        why: String,
    },
    /// The patch could not be built, or has no meaning on the layer.
    Refused {
        /// Why.
        why: String,
    },
    /// The keys repeat others of the file, bit for bit, and are used once.
    Duplicate,
    /// No dialect understands the key.
    Unread,
}

/// One target of an adapter file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyReport {
    /// Target as the file spells it.
    pub target: String,
    /// Keys of the file.
    pub keys: Vec<String>,
    /// What became of them.
    pub outcome: KeyOutcome,
}

/// What a mount did, key by key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountReport {
    /// Every target of the file; every key is in exactly one of them.
    pub targets: Vec<KeyReport>,
}

impl MountReport {
    /// Keys whose patch is in place.
    #[must_use]
    pub fn keys_applied(&self) -> usize {
        self.count(|outcome| matches!(outcome, KeyOutcome::Applied { .. }))
    }

    /// Keys that had no effect, for whatever reason.
    #[must_use]
    pub fn keys_unmatched(&self) -> usize {
        self.count(|outcome| !matches!(outcome, KeyOutcome::Applied { .. }))
    }

    /// The first target that was not applied and why, as a clause.
    #[must_use]
    pub fn first_failure(&self) -> Option<String> {
        let report = self
            .targets
            .iter()
            .find(|target| !matches!(target.outcome, KeyOutcome::Applied { .. }))?;
        Some(format!("`{}`: {}", report.target, report.outcome.reason()))
    }

    /// Keys by outcome: name and count, those of no key left out.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<&'static str, usize> {
        let mut counts = BTreeMap::new();
        for target in &self.targets {
            *counts.entry(target.outcome.name()).or_default() += target.keys.len();
        }
        counts
    }

    fn count(&self, wanted: impl Fn(&KeyOutcome) -> bool) -> usize {
        self.targets
            .iter()
            .filter(|target| wanted(&target.outcome))
            .map(|target| target.keys.len())
            .sum()
    }
}

impl KeyOutcome {
    /// Short name, for tables and JSON.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Applied { .. } => "applied",
            Self::Unmatched { .. } => "unmatched",
            Self::NotLoaded { .. } => "not loaded",
            Self::ShapeMismatch { .. } => "shape mismatch",
            Self::KindUnknown { .. } => "kind unknown",
            Self::Refused { .. } => "refused",
            Self::Duplicate => "duplicate",
            Self::Unread => "unread",
        }
    }

    /// The outcome in words.
    #[must_use]
    pub fn reason(&self) -> String {
        match self {
            Self::Applied { layers } => format!("applied to {}", layers.join(", ")),
            Self::Unmatched { nearest } if nearest.is_empty() => {
                "the model has no layer of this name".into()
            }
            Self::Unmatched { nearest } => {
                format!(
                    "the model has no layer of this name; nearest: {}",
                    nearest.join(", ")
                )
            }
            Self::NotLoaded { component } => {
                format!("it is for {component}, and this model does not hold the layer")
            }
            Self::ShapeMismatch { why, .. } | Self::KindUnknown { why } | Self::Refused { why } => {
                why.clone()
            }
            Self::Duplicate => "it repeats another key of the file bit for bit".into(),
            Self::Unread => "no dialect understands this key".into(),
        }
    }
}
