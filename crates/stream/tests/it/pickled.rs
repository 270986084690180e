//! `PyTorch` files written for a test, instruction by instruction.

use std::io::Write;

use rawzip::ZipArchiveWriter;

/// `BINUNICODE`.
pub(crate) fn text(text: &str) -> Vec<u8> {
    let mut bytes = vec![b'X'];
    bytes.extend(u32::try_from(text.len()).unwrap().to_le_bytes());
    bytes.extend(text.as_bytes());
    bytes
}

/// `BININT`.
pub(crate) fn int(int: i32) -> Vec<u8> {
    [&b"J"[..], &int.to_le_bytes()].concat()
}

/// `GLOBAL`.
pub(crate) fn global(module: &str, name: &str) -> Vec<u8> {
    format!("c{module}\n{name}\n").into_bytes()
}

/// `MARK` … `TUPLE`.
pub(crate) fn tuple(items: &[Vec<u8>]) -> Vec<u8> {
    [b"(".to_vec(), items.concat(), b"t".to_vec()].concat()
}

pub(crate) fn ints(ints: &[i32]) -> Vec<u8> {
    tuple(&ints.iter().copied().map(int).collect::<Vec<_>>())
}

/// A dictionary without a memo entry.
pub(crate) fn dict(entries: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = b"}(".to_vec();
    for (key, value) in entries {
        bytes.extend(text(key));
        bytes.extend(value);
    }
    bytes.push(b'u');
    bytes
}

/// A storage by its class in `torch` and its key.
pub(crate) fn storage(class: &str, key: &str, num_elements: i32) -> Vec<u8> {
    let class = global("torch", class);
    let parts = [
        text("storage"),
        class,
        text(key),
        text("cpu"),
        int(num_elements),
    ];
    [tuple(&parts), b"Q".to_vec()].concat()
}

/// A tensor of a storage.
pub(crate) fn tensor(storage: &[u8], offset: i32, shape: &[i32], strides: &[i32]) -> Vec<u8> {
    let hooks = [global("collections", "OrderedDict"), b")R".to_vec()].concat();
    let arguments = [
        storage.to_vec(),
        int(offset),
        ints(shape),
        ints(strides),
        b"\x89".to_vec(),
        hooks,
    ];
    let rebuild = global("torch._utils", "_rebuild_tensor_v2");
    [rebuild, tuple(&arguments), b"R".to_vec()].concat()
}

/// `PROTO` … `STOP`.
pub(crate) fn pickle(object: &[u8]) -> Vec<u8> {
    [b"\x80\x02", object, b"."].concat()
}

/// An archive of stored members.
pub(crate) fn archive(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut archive = ZipArchiveWriter::new(&mut file);
    for (name, bytes) in members {
        let (mut entry, config) = archive.new_file(*name).start().unwrap();
        let mut writer = config.wrap(&mut entry);
        writer.write_all(bytes).unwrap();
        let (_, descriptor) = writer.finish().unwrap();
        entry.finish(descriptor).unwrap();
    }
    archive.finish().unwrap();
    file
}

/// The zip form, with one storage `0`.
pub(crate) fn zip(object: &[u8], storage: &[u8]) -> Vec<u8> {
    archive(&[("a/data.pkl", &pickle(object)), ("a/data/0", storage)])
}

/// The legacy form: system, object, and the storages by key with their number of elements.
pub(crate) fn legacy(system: &[u8], object: &[u8], storages: &[(&str, u64, &[u8])]) -> Vec<u8> {
    let keys: Vec<_> = storages.iter().map(|(key, ..)| text(key)).collect();
    let keys = [b"](".to_vec(), keys.concat(), b"e".to_vec()].concat();
    let mut file = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.".to_vec();
    for object in [&int(1001)[..], system, object, &keys] {
        file.extend(pickle(object));
    }
    for (_, num_elements, bytes) in storages {
        file.extend(num_elements.to_le_bytes());
        file.extend(*bytes);
    }
    file
}
