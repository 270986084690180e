//! Tensors written whole, each once, in the order that was announced.

use std::io::Write;

use crate::{SinkError, StreamError, source::header::shorten};

/// A sink behind a header, and the tensors it waits for.
#[derive(Debug)]
pub(super) struct TensorQueue<W> {
    label: String,
    /// Name and size.
    due: Vec<(String, u64)>,
    sink: W,
    num_written: usize,
    /// A write failed in the middle of a tensor: whatever followed would be out of place.
    is_broken: bool,
}

impl<W: Write> TensorQueue<W> {
    /// Writes `header`, after which the tensors `due` are expected.
    pub(super) fn begin(
        label: &str,
        header: &[u8],
        due: Vec<(String, u64)>,
        sink: W,
    ) -> Result<Self, StreamError> {
        let mut queue = Self {
            label: label.to_owned(),
            due,
            sink,
            num_written: 0,
            is_broken: false,
        };
        queue.write(header)?;
        Ok(queue)
    }

    /// Writes the next tensor, which must be `name`, and `padding` after it.
    pub(super) fn tensor(
        &mut self,
        name: &str,
        bytes: &[u8],
        padding: &[u8],
    ) -> Result<(), StreamError> {
        let expected_bytes = self.check_turn(name)?;
        if bytes.len() as u64 != expected_bytes {
            return Err(StreamError::BufferSize {
                file: self.label.clone(),
                tensor: shorten(name),
                found_bytes: bytes.len() as u64,
                expected_bytes,
            });
        }
        self.is_broken = true;
        self.write(bytes)?;
        self.write(padding)?;
        self.is_broken = false;
        self.num_written += 1;
        Ok(())
    }

    /// Flushes the sink, when every tensor is written, and hands it back.
    pub(super) fn finish(mut self) -> Result<W, StreamError> {
        if let Some([(first, _), rest @ ..]) = self.due.get(self.num_written..) {
            return Err(SinkError::Unfinished {
                file: self.label.clone(),
                first: shorten(first),
                count: rest.len() + 1,
            }
            .into());
        }
        let flushed = self.sink.flush();
        flushed.map_err(|source| self.write_error(source))?;
        Ok(self.sink)
    }

    /// The size of the tensor `name`, if it is its turn.
    fn check_turn(&self, name: &str) -> Result<u64, StreamError> {
        let next = self.due.get(self.num_written);
        let expected = match next {
            _ if self.is_broken => "an earlier write failed, so that nothing can follow".to_owned(),
            Some((expected, num_bytes)) if expected == name => return Ok(*num_bytes),
            Some((expected, _)) => format!("`{}` comes next", shorten(expected)),
            None => "nothing is left to write".to_owned(),
        };
        Err(SinkError::TensorOrder {
            file: self.label.clone(),
            found: shorten(name),
            expected,
        }
        .into())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), StreamError> {
        let written = self.sink.write_all(bytes);
        written.map_err(|source| self.write_error(source))
    }

    fn write_error(&self, source: std::io::Error) -> StreamError {
        let file = self.label.clone();
        SinkError::Write { file, source }.into()
    }
}
