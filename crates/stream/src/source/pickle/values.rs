//! What a pickle builds: values in one arena, named by index, so that a memo and cycles cost nothing.

use super::{
    PickleError,
    globals::{ElementType, Global},
};

/// Several times the objects of a checkpoint with its optimizer; 32 bytes each, 128 MiB in all.
pub(super) const MAX_VALUES: usize = 1 << 22;

/// Index of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Id(u32);

/// One object of a pickle; what no tensor needs is opaque.
#[derive(Debug)]
pub(super) enum Value<'a> {
    Opaque,
    Bool(bool),
    Int(i64),
    Text(&'a str),
    Tuple(Vec<Id>),
    List(Vec<Id>),
    Dict(Vec<(Id, Id)>),
    Global(Global),
    Storage(Box<Storage<'a>>),
    Tensor(Box<Tensor>),
}

/// Where a storage lies and what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Storage<'a> {
    pub(super) key: &'a str,
    /// `None` where it has no type of its own: elements are bytes, and a tensor says what it holds.
    pub(super) element: Option<ElementType>,
    pub(super) num_elements: usize,
}

/// A view into a storage, not yet checked against it.
#[derive(Debug)]
pub(super) struct Tensor {
    pub(super) storage: Id,
    pub(super) element: ElementType,
    /// In elements.
    pub(super) offset: usize,
    pub(super) shape: Id,
    /// In elements.
    pub(super) strides: Id,
}

/// The arena.
#[derive(Debug, Default)]
pub(super) struct Values<'a>(Vec<Value<'a>>);

impl<'a> Values<'a> {
    /// `None` where there are too many.
    pub(super) fn insert(&mut self, value: Value<'a>) -> Option<Id> {
        let id = Id(u32::try_from(self.0.len()).ok()?);
        (self.0.len() < MAX_VALUES).then(|| {
            self.0.push(value);
            id
        })
    }

    pub(super) fn at(&self, id: Id) -> &Value<'a> {
        &self.0[id.0 as usize]
    }

    pub(super) fn at_mut(&mut self, id: Id) -> &mut Value<'a> {
        &mut self.0[id.0 as usize]
    }

    pub(super) fn text(&self, id: Id) -> Option<&'a str> {
        match self.at(id) {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A count or an offset: never negative.
    pub(super) fn size(&self, id: Id) -> Option<usize> {
        match self.at(id) {
            Value::Int(int) => usize::try_from(*int).ok(),
            _ => None,
        }
    }

    pub(super) fn sequence(&self, id: Id) -> Option<&[Id]> {
        match self.at(id) {
            Value::Tuple(items) | Value::List(items) => Some(items),
            _ => None,
        }
    }

    /// At most as many as a tensor has dimensions.
    pub(super) fn sizes(&self, id: Id) -> Option<Vec<usize>> {
        const MAX_DIMENSIONS: usize = 64;
        self.sequence(id)
            .filter(|items| items.len() <= MAX_DIMENSIONS)?
            .iter()
            .map(|item| self.size(*item))
            .collect()
    }

    pub(super) fn entry(&self, dict: Id, name: &str) -> Option<Id> {
        let Value::Dict(pairs) = self.at(dict) else {
            return None;
        };
        let mut named = pairs
            .iter()
            .filter(|(key, _)| self.text(*key) == Some(name));
        named.next_back().map(|(_, value)| *value)
    }
}

/// What one pickle came to.
#[derive(Debug)]
pub(super) struct Pickled<'a> {
    pub(super) values: Values<'a>,
    pub(super) root: Id,
    pub(super) storages: Vec<Storage<'a>>,
}

/// Of an operation that has nothing else to say.
pub(super) type Done = Result<(), PickleError>;
