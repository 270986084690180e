//! Writing a GGUF file of a known layout.

use std::io::Write;

use crate::StreamError;

use super::{GgufLayout, queue::TensorQueue};

/// A GGUF file that is being written: the header is out, the tensors follow.
#[derive(Debug)]
pub struct GgufWriter<W> {
    layout: GgufLayout,
    queue: TensorQueue<W>,
}

impl<W: Write> GgufWriter<W> {
    /// Writes the header of `layout` to `sink`.
    ///
    /// # Errors
    /// [`HeaderTooLong`](crate::SinkError::HeaderTooLong) or [`Write`](crate::SinkError::Write).
    ///
    /// # Examples
    /// ```
    /// use overglaze_stream::{GgufLayout, GgufTensor, GgufWriter};
    ///
    /// // Two 32-bit numbers: type 0.
    /// let tensor = GgufTensor { name: "a".into(), shape: vec![2], type_id: 0, num_bytes: 8 };
    /// let values = [("general.architecture".into(), "flux".into())];
    /// let layout = GgufLayout::new("memory", [tensor], values)?;
    /// let mut writer = GgufWriter::begin(layout, Vec::new())?;
    /// writer.tensor("a", &[7; 8])?;
    /// let file = writer.finish()?;
    /// assert!(file.starts_with(b"GGUF"));
    /// # Ok::<(), overglaze_stream::StreamError>(())
    /// ```
    pub fn begin(layout: GgufLayout, sink: W) -> Result<Self, StreamError> {
        let header = layout.header()?;
        let tensors = layout.tensors().iter();
        let due = tensors.map(|tensor| (tensor.name.clone(), tensor.num_bytes));
        let queue = TensorQueue::begin(layout.label(), &header, due.collect(), sink)?;
        Ok(Self { layout, queue })
    }

    /// What is written, and in which order.
    #[must_use]
    pub fn layout(&self) -> &GgufLayout {
        &self.layout
    }

    /// Writes the next tensor of the layout, which must be `name`, and what aligns the one after it.
    ///
    /// # Errors
    /// [`TensorOrder`](crate::SinkError::TensorOrder), [`StreamError::BufferSize`] or
    /// [`Write`](crate::SinkError::Write); the file cannot be finished after the last.
    pub fn tensor(&mut self, name: &str, bytes: &[u8]) -> Result<(), StreamError> {
        let padding = self.layout.padding(bytes.len() as u64);
        self.queue.tensor(name, bytes, &padding)
    }

    /// Flushes the file, when every tensor is written, and hands it back.
    ///
    /// # Errors
    /// [`Unfinished`](crate::SinkError::Unfinished) or [`Write`](crate::SinkError::Write).
    pub fn finish(self) -> Result<W, StreamError> {
        self.queue.finish()
    }
}
