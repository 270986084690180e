//! The stack machine of a pickle: builds values, calls nothing.
//!
//! There are no jumps, so the work is bounded by the bytes; what an instruction can allocate is bounded by its own
//! bytes, but for values, stack and memo, which have caps.

use std::collections::BTreeMap;

use super::{
    super::header::shorten,
    PickleError, calls,
    cursor::Cursor,
    globals, opcodes as op,
    values::{Done, Id, Pickled, Storage, Value, Values},
};

/// Runs one pickle up to its end; the cursor is then after it.
pub(super) fn unpickle<'a>(cursor: &mut Cursor<'a>) -> Result<Pickled<'a>, PickleError> {
    let mut machine = Machine {
        cursor,
        values: Values::default(),
        storages: Vec::new(),
        storage_indices: BTreeMap::new(),
        stack: Vec::new(),
        marks: Vec::new(),
        memo: BTreeMap::new(),
    };
    loop {
        match machine.cursor.byte()? {
            op::STOP => break,
            opcode => machine.step(opcode)?,
        }
    }
    Ok(Pickled {
        root: machine.pop()?,
        values: machine.values,
        storages: machine.storages,
    })
}

/// State of one run.
pub(super) struct Machine<'a, 'c> {
    pub(super) cursor: &'c mut Cursor<'a>,
    pub(super) values: Values<'a>,
    /// In the order of their first use, each key once.
    pub(super) storages: Vec<Storage<'a>>,
    pub(super) storage_indices: BTreeMap<&'a str, usize>,
    pub(super) stack: Vec<Id>,
    /// Heights of the stack.
    pub(super) marks: Vec<usize>,
    pub(super) memo: BTreeMap<u32, Id>,
}

impl<'a> Machine<'a, '_> {
    fn step(&mut self, opcode: u8) -> Done {
        match opcode {
            op::PROTO => self.cursor.byte().map(|_| ()),
            op::FRAME => self.cursor.take(8).map(|_| ()),
            op::MARK => self.mark(),
            op::POP => self.pop().map(|_| ()),
            op::POP_MARK => self.pop_to_mark().map(|_| ()),
            op::NONE | op::EMPTY_SET => self.push(Value::Opaque),
            op::NEWTRUE | op::NEWFALSE => self.push(Value::Bool(opcode == op::NEWTRUE)),
            op::BINFLOAT => {
                self.cursor.take(8)?;
                self.push(Value::Opaque)
            }
            op::BININT | op::BININT1 | op::BININT2 | op::LONG1 => self.int(opcode),
            op::BINUNICODE | op::SHORT_BINUNICODE | op::BINUNICODE8 => self.text(opcode),
            op::BINSTRING | op::SHORT_BINSTRING => self.old_text(opcode),
            op::BINBYTES | op::SHORT_BINBYTES | op::BINBYTES8 | op::BYTEARRAY8 => {
                self.counted(opcode)?;
                self.push(Value::Opaque)
            }
            op::BINGET | op::LONG_BINGET => self.recall(opcode),
            op::BINPUT | op::LONG_BINPUT | op::MEMOIZE => self.memoize(opcode),
            op::GLOBAL | op::STACK_GLOBAL => self.global(opcode),
            op::REDUCE => calls::reduce(self),
            op::BUILD => self.build(),
            op::BINPERSID => calls::persistent(self),
            _ => self.container(opcode),
        }
    }

    fn container(&mut self, opcode: u8) -> Done {
        match opcode {
            op::EMPTY_TUPLE => self.push(Value::Tuple(Vec::new())),
            op::EMPTY_LIST => self.push(Value::List(Vec::new())),
            op::EMPTY_DICT => self.push(Value::Dict(Vec::new())),
            op::TUPLE => {
                let items = self.pop_to_mark()?;
                self.push(Value::Tuple(items))
            }
            op::TUPLE1 => self.tuple(1),
            op::TUPLE2 => self.tuple(2),
            op::TUPLE3 => self.tuple(3),
            op::APPEND => {
                let item = self.pop()?;
                self.append(&[item])
            }
            op::APPENDS | op::ADDITEMS => {
                let items = self.pop_to_mark()?;
                self.append(&items)
            }
            op::SETITEM => {
                let value = self.pop()?;
                let key = self.pop()?;
                self.set_items(&[key, value])
            }
            op::SETITEMS => {
                let items = self.pop_to_mark()?;
                self.set_items(&items)
            }
            op::FROZENSET => {
                self.pop_to_mark()?;
                self.push(Value::Opaque)
            }
            _ => Err(PickleError::Opcode {
                file: self.cursor.file().to_owned(),
                form: self.cursor.form(),
                opcode,
                offset: self.cursor.position() - 1,
            }),
        }
    }

    fn int(&mut self, opcode: u8) -> Done {
        let int = match opcode {
            op::BININT => i32::from_le_bytes(self.cursor.array()?).into(),
            op::BININT1 => self.cursor.byte()?.into(),
            op::BININT2 => u16::from_le_bytes(self.cursor.array()?).into(),
            _ => {
                let num_bytes = self.cursor.byte()?;
                match long(self.cursor.take(num_bytes.into())?) {
                    Some(int) => int,
                    None => return self.push(Value::Opaque),
                }
            }
        };
        self.push(Value::Int(int))
    }

    fn text(&mut self, opcode: u8) -> Done {
        let bytes = self.counted(opcode)?;
        let text = self.cursor.utf8(bytes)?;
        self.push(Value::Text(text))
    }

    /// A string of Python 2: text, or bytes.
    fn old_text(&mut self, opcode: u8) -> Done {
        let bytes = self.counted(opcode)?;
        self.push(std::str::from_utf8(bytes).map_or(Value::Opaque, Value::Text))
    }

    fn counted(&mut self, opcode: u8) -> Result<&'a [u8], PickleError> {
        let num_bytes = match opcode {
            op::SHORT_BINUNICODE | op::SHORT_BINSTRING | op::SHORT_BINBYTES => {
                self.cursor.byte()?.into()
            }
            op::BINUNICODE8 | op::BINBYTES8 | op::BYTEARRAY8 => {
                u64::from_le_bytes(self.cursor.array()?)
            }
            _ => u32::from_le_bytes(self.cursor.array()?).into(),
        };
        self.cursor.take(num_bytes)
    }

    fn tuple(&mut self, num_items: usize) -> Done {
        let mut items = vec![self.top()?; num_items];
        for item in items.iter_mut().rev() {
            *item = self.pop()?;
        }
        self.push(Value::Tuple(items))
    }

    fn append(&mut self, items: &[Id]) -> Done {
        let top = self.top()?;
        match self.values.at_mut(top) {
            Value::List(list) => list.extend_from_slice(items),
            Value::Opaque => {}
            _ => return Err(self.cursor.malformed("a list on the stack")),
        }
        Ok(())
    }

    fn set_items(&mut self, items: &[Id]) -> Done {
        let top = self.top()?;
        let (pairs, []) = items.as_chunks::<2>() else {
            return Err(self.cursor.malformed("a value for each key"));
        };
        let Value::Dict(dict) = self.values.at_mut(top) else {
            return Err(self.cursor.malformed("a dictionary on the stack"));
        };
        dict.extend(pairs.iter().map(|[key, value]| (*key, *value)));
        Ok(())
    }

    fn global(&mut self, opcode: u8) -> Done {
        let (module, name) = if opcode == op::GLOBAL {
            (self.cursor.line()?, self.cursor.line()?)
        } else {
            let (name, module) = (self.pop()?, self.pop()?);
            let texts = self.values.text(module).zip(self.values.text(name));
            texts.ok_or_else(|| self.cursor.malformed("a module and a name on the stack"))?
        };
        match globals::resolve(module, name) {
            Some(global) => self.push(Value::Global(global)),
            None => Err(self.refused(module, name)),
        }
    }

    fn refused(&self, module: &str, name: &str) -> PickleError {
        let file = self.cursor.file().to_owned();
        let global = shorten(&format!("{module}.{name}"));
        if globals::is_other_storage(module, name) {
            return PickleError::StorageType {
                file,
                found: global,
            };
        }
        PickleError::Global {
            file,
            form: self.cursor.form(),
            global,
        }
    }

    /// Attributes of a dictionary, such as `_metadata` of a state dict: no tensor needs them.
    fn build(&mut self) -> Done {
        self.pop()?;
        let top = self.top()?;
        match self.values.at(top) {
            Value::Dict(_) | Value::Opaque => Ok(()),
            _ => Err(self.cursor.malformed("a dictionary on the stack")),
        }
    }
}

/// `None` where it does not fit.
fn long(bytes: &[u8]) -> Option<i64> {
    let is_negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
    let mut extended = [if is_negative { 0xFF } else { 0 }; 8];
    extended.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(i64::from_le_bytes(extended))
}
