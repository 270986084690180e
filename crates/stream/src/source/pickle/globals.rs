//! What a checkpoint may name, and nothing else: what rebuilds tensors, and a few inert values beside them.
//!
//! Of the list of `torch.load(…, weights_only=True)` this is what has to do with plain tensors, in
//! `torch/_weights_only_unpickler.py`. Nothing here calls anything; a name on the list stands for what this reader does itself.

/// A name on the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Global {
    /// `torch._utils._rebuild_tensor`, its second and its third version.
    RebuildTensor,
    RebuildTensorV2,
    RebuildTensorV3,
    /// `torch._utils._rebuild_parameter`, with attributes or without: the tensor inside.
    RebuildParameter,
    /// `collections.OrderedDict`.
    OrderedDict,
    /// `torch.Size`: a tuple.
    Size,
    /// The class of a storage.
    Storage(ElementType),
    /// `torch.storage.UntypedStorage`.
    UntypedStorage,
    /// `torch.float32` and the like.
    Dtype(ElementType),
    /// A call of it makes a value that no tensor needs.
    Inert,
}

/// A type of elements: the tag of safetensors, and its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ElementType {
    pub(super) tag: &'static str,
    pub(super) num_bytes: usize,
}

/// `None` where it is not on the list.
pub(super) fn resolve(module: &str, name: &str) -> Option<Global> {
    match (module, name) {
        ("torch._utils", "_rebuild_tensor") => Some(Global::RebuildTensor),
        ("torch._utils", "_rebuild_tensor_v2") => Some(Global::RebuildTensorV2),
        ("torch._utils", "_rebuild_tensor_v3") => Some(Global::RebuildTensorV3),
        ("torch._utils", "_rebuild_parameter" | "_rebuild_parameter_with_state") => {
            Some(Global::RebuildParameter)
        }
        ("collections", "OrderedDict") => Some(Global::OrderedDict),
        ("torch", "Size") => Some(Global::Size),
        ("torch" | "torch.storage", "UntypedStorage") => Some(Global::UntypedStorage),
        ("torch", "device")
        | ("torch.serialization", "_get_layout")
        | ("collections", "Counter")
        | ("_codecs", "encode")
        | ("builtins" | "__builtin__", "set" | "bytearray" | "complex") => Some(Global::Inert),
        ("torch" | "torch.cuda", _) => storage(name)
            .map(Global::Storage)
            .or_else(|| dtype(name).map(Global::Dtype)),
        _ => None,
    }
}

/// Whether it is the class of a storage that is not on the list, such as one of quantized numbers.
pub(super) fn is_other_storage(module: &str, name: &str) -> bool {
    matches!(module, "torch" | "torch.cuda" | "torch.storage") && name.ends_with("Storage")
}

fn storage(name: &str) -> Option<ElementType> {
    let prefix = name.strip_suffix("Storage")?;
    let found = TYPES.iter().find(|(storage, ..)| *storage == prefix)?;
    (!prefix.is_empty()).then(|| element(found))
}

fn dtype(name: &str) -> Option<ElementType> {
    TYPES
        .iter()
        .find(|(_, dtype, ..)| *dtype == name)
        .map(element)
}

fn element(&(_, _, tag, num_bytes): &(&str, &str, &'static str, usize)) -> ElementType {
    ElementType { tag, num_bytes }
}

/// Storage class without its ending (empty where there is none), name of the type in `torch`, tag, bytes.
const TYPES: &[(&str, &str, &str, usize)] = &[
    ("Double", "float64", "F64", 8),
    ("Float", "float32", "F32", 4),
    ("Half", "float16", "F16", 2),
    ("BFloat16", "bfloat16", "BF16", 2),
    ("Long", "int64", "I64", 8),
    ("Int", "int32", "I32", 4),
    ("Short", "int16", "I16", 2),
    ("Char", "int8", "I8", 1),
    ("Byte", "uint8", "U8", 1),
    ("Bool", "bool", "BOOL", 1),
    ("ComplexFloat", "complex64", "C64", 8),
    ("", "uint16", "U16", 2),
    ("", "uint32", "U32", 4),
    ("", "uint64", "U64", 8),
    ("", "float8_e4m3fn", "F8_E4M3", 1),
    ("", "float8_e5m2", "F8_E5M2", 1),
    ("", "float8_e4m3fnuz", "F8_E4M3FNUZ", 1),
    ("", "float8_e5m2fnuz", "F8_E5M2FNUZ", 1),
    ("", "float8_e8m0fnu", "F8_E8M0", 1),
];
