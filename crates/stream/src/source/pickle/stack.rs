//! The stack, the marks and the memo of a pickle's machine.

use super::{
    PickleError,
    machine::Machine,
    opcodes as op,
    values::{Done, Id, MAX_VALUES, Value},
};

/// Python writes containers in batches of 1000; tuples are short.
const MAX_STACK: usize = 1 << 18;

/// Twice as many as any listed name takes.
const MAX_ARGUMENTS: usize = 16;

impl<'a> Machine<'a, '_> {
    pub(super) fn push(&mut self, value: Value<'a>) -> Done {
        let id = self.values.insert(value);
        let id = id.ok_or_else(|| self.cursor.limit("values", MAX_VALUES))?;
        self.push_id(id)
    }

    pub(super) fn pop(&mut self) -> Result<Id, PickleError> {
        // What lies under the last mark belongs to it.
        let floor = self.marks.last().copied().unwrap_or_default();
        let top = (self.stack.len() > floor)
            .then(|| self.stack.pop())
            .flatten();
        top.ok_or_else(|| self.cursor.malformed("a value on the stack"))
    }

    pub(super) fn pop_sequence(&mut self) -> Result<Vec<Id>, PickleError> {
        let id = self.pop()?;
        let items = self.values.sequence(id);
        // A copy, so that a long tuple must not be taken again and again.
        let items = items.filter(|items| items.len() <= MAX_ARGUMENTS);
        let items = items.map(<[Id]>::to_vec);
        items.ok_or_else(|| self.cursor.malformed("a short tuple on the stack"))
    }

    pub(super) fn push_id(&mut self, id: Id) -> Done {
        if self.stack.len() == MAX_STACK {
            return Err(self.cursor.limit("values on its stack", MAX_STACK));
        }
        self.stack.push(id);
        Ok(())
    }

    pub(super) fn top(&mut self) -> Result<Id, PickleError> {
        let id = self.pop()?;
        self.stack.push(id);
        Ok(id)
    }

    pub(super) fn pop_to_mark(&mut self) -> Result<Vec<Id>, PickleError> {
        let mark = self.marks.pop().filter(|mark| *mark <= self.stack.len());
        let mark = mark.ok_or_else(|| self.cursor.malformed("a mark on the stack"))?;
        Ok(self.stack.split_off(mark))
    }

    pub(super) fn mark(&mut self) -> Done {
        if self.marks.len() == MAX_STACK {
            return Err(self.cursor.limit("marks on its stack", MAX_STACK));
        }
        self.marks.push(self.stack.len());
        Ok(())
    }

    pub(super) fn recall(&mut self, opcode: u8) -> Done {
        let index = match opcode {
            op::BINGET => self.cursor.byte()?.into(),
            _ => u32::from_le_bytes(self.cursor.array()?),
        };
        let id = self.memo.get(&index).copied();
        let id = id.ok_or_else(|| self.cursor.malformed("a value that was put into the memo"))?;
        self.push_id(id)
    }

    pub(super) fn memoize(&mut self, opcode: u8) -> Done {
        let index = match opcode {
            op::BINPUT => self.cursor.byte()?.into(),
            op::LONG_BINPUT => u32::from_le_bytes(self.cursor.array()?),
            _ => u32::try_from(self.memo.len())
                .map_err(|_| self.cursor.limit("values in its memo", MAX_VALUES))?,
        };
        let top = self.top()?;
        self.memo.insert(index, top);
        if self.memo.len() > MAX_VALUES {
            return Err(self.cursor.limit("values in its memo", MAX_VALUES));
        }
        Ok(())
    }
}
