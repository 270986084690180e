//! What the listed names do when a pickle calls them, and how it names a storage.
//!
//! ```text
//! _rebuild_tensor(storage, offset, size, stride)
//! _rebuild_tensor_v2(storage, offset, size, stride, requires_grad, backward_hooks[, metadata])
//! _rebuild_tensor_v3(storage, offset, size, stride, requires_grad, backward_hooks, dtype[, metadata])
//! ("storage", storage class, key, location, num_elements[, view])
//! ```
//! Source: `PyTorch`, `torch/_utils.py` and `torch/serialization.py`.

use super::{
    PickleError,
    globals::{ElementType, Global},
    machine::Machine,
    values::{Done, Id, Storage, Tensor, Value},
};

/// Calls what lies under the arguments.
pub(super) fn reduce(machine: &mut Machine<'_, '_>) -> Done {
    let arguments = machine.pop_sequence()?;
    let callable = machine.pop()?;
    let Value::Global(global) = *machine.values.at(callable) else {
        return Err(machine.cursor.malformed("a name to call on the stack"));
    };
    let value = match (global, arguments.as_slice()) {
        (Global::RebuildTensor, &[storage, offset, shape, strides])
        | (
            Global::RebuildTensorV2,
            &[storage, offset, shape, strides, _, _] | &[storage, offset, shape, strides, _, _, _],
        ) => tensor(machine, None, [storage, offset, shape, strides])?,
        (
            Global::RebuildTensorV3,
            &[storage, offset, shape, strides, _, _, dtype]
            | &[storage, offset, shape, strides, _, _, dtype, _],
        ) => tensor(machine, Some(dtype), [storage, offset, shape, strides])?,
        (Global::RebuildParameter, &[data, ..]) => return parameter(machine, data),
        (Global::OrderedDict, []) => Value::Dict(Vec::new()),
        (Global::Size, &[sizes]) => return machine.push_id(sizes),
        (Global::Inert, _) => Value::Opaque,
        _ => return Err(machine.cursor.malformed("the arguments that a name takes")),
    };
    machine.push(value)
}

/// Resolves the name of a storage.
pub(super) fn persistent(machine: &mut Machine<'_, '_>) -> Done {
    let parts = machine.pop_sequence()?;
    let storage = storage(machine, &parts);
    let expected = "a storage's type, key, place and size, and no view of another";
    let storage = storage.ok_or_else(|| machine.cursor.malformed(expected))?;
    note(machine, storage)?;
    machine.push(Value::Storage(Box::new(storage)))
}

fn storage<'a>(machine: &Machine<'a, '_>, parts: &[Id]) -> Option<Storage<'a>> {
    let values = &machine.values;
    let (&[tag, class, key, _, num_elements], view) = parts.split_first_chunk::<5>()?;
    let is_whole = match view {
        [] => true,
        // Before PyTorch 0.4 a storage could be a part of another one.
        [view] => matches!(values.at(*view), Value::Opaque),
        _ => false,
    };
    let element = match values.at(class) {
        Value::Global(Global::Storage(element)) => Some(*element),
        Value::Global(Global::UntypedStorage) => None,
        _ => return None,
    };
    (is_whole && values.text(tag) == Some("storage")).then_some(Storage {
        key: values.text(key)?,
        element,
        num_elements: values.size(num_elements)?,
    })
}

/// Every later use of a key must say the same.
fn note<'a>(machine: &mut Machine<'a, '_>, storage: Storage<'a>) -> Done {
    let known = machine.storage_indices.get(storage.key);
    match known.map(|index| machine.storages[*index]) {
        None => {
            let index = machine.storages.len();
            machine.storage_indices.insert(storage.key, index);
            machine.storages.push(storage);
            Ok(())
        }
        Some(known) if known == storage => Ok(()),
        Some(_) => Err(machine
            .cursor
            .malformed("the same type and size at every use of a storage")),
    }
}

fn tensor<'a>(
    machine: &Machine<'a, '_>,
    dtype: Option<Id>,
    [storage, offset, shape, strides]: [Id; 4],
) -> Result<Value<'a>, PickleError> {
    let expected = "a tensor's storage, type, offset, sizes and strides";
    let tensor = (|| {
        Some(Tensor {
            storage,
            element: element(machine, storage, dtype)?,
            offset: machine.values.size(offset)?,
            shape,
            strides,
        })
    })();
    tensor
        .map(|tensor| Value::Tensor(Box::new(tensor)))
        .ok_or_else(|| machine.cursor.malformed(expected))
}

fn element(machine: &Machine<'_, '_>, storage: Id, dtype: Option<Id>) -> Option<ElementType> {
    let Value::Storage(storage) = machine.values.at(storage) else {
        return None;
    };
    match (storage.element, dtype.map(|dtype| machine.values.at(dtype))) {
        (None, Some(Value::Global(Global::Dtype(element)))) => Some(*element),
        (element, None) => element,
        _ => None,
    }
}

/// The tensor inside stands for it.
fn parameter(machine: &mut Machine<'_, '_>, data: Id) -> Done {
    match machine.values.at(data) {
        Value::Tensor(_) => machine.push_id(data),
        _ => Err(machine.cursor.malformed("a tensor in a parameter")),
    }
}
