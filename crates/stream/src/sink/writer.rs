//! Writing a safetensors file of a known layout.

use std::io::Write;

use crate::StreamError;

use super::{SafetensorsLayout, queue::TensorQueue};

/// A safetensors file that is being written: the header is out, the tensors follow.
#[derive(Debug)]
pub struct SafetensorsWriter<W> {
    layout: SafetensorsLayout,
    queue: TensorQueue<W>,
}

impl<W: Write> SafetensorsWriter<W> {
    /// Writes the header of `layout` to `sink`.
    ///
    /// # Errors
    /// [`HeaderTooLong`](crate::SinkError::HeaderTooLong) or [`Write`](crate::SinkError::Write).
    ///
    /// # Examples
    /// ```
    /// use overglaze_stream::{SafetensorsLayout, SafetensorsWriter, TensorEntry};
    ///
    /// let entry = TensorEntry { tag: "U8".into(), shape: vec![3], num_bytes: 3, file: None };
    /// let layout = SafetensorsLayout::new("memory", [("a".into(), entry)], Default::default())?;
    /// let mut writer = SafetensorsWriter::begin(layout, Vec::new())?;
    /// writer.tensor("a", &[1, 2, 3])?;
    /// let file = writer.finish()?;
    /// assert!(file.ends_with(&[1, 2, 3]));
    /// # Ok::<(), overglaze_stream::StreamError>(())
    /// ```
    pub fn begin(layout: SafetensorsLayout, sink: W) -> Result<Self, StreamError> {
        let header = layout.header()?;
        let tensors = layout.tensors().iter();
        let due = tensors.map(|(name, entry)| (name.clone(), entry.num_bytes));
        let queue = TensorQueue::begin(layout.label(), &header, due.collect(), sink)?;
        Ok(Self { layout, queue })
    }

    /// What is written, and in which order.
    #[must_use]
    pub fn layout(&self) -> &SafetensorsLayout {
        &self.layout
    }

    /// Writes the next tensor of the layout, which must be `name`.
    ///
    /// # Errors
    /// [`TensorOrder`](crate::SinkError::TensorOrder), [`StreamError::BufferSize`] or
    /// [`Write`](crate::SinkError::Write); the file cannot be finished after the last.
    pub fn tensor(&mut self, name: &str, bytes: &[u8]) -> Result<(), StreamError> {
        self.queue.tensor(name, bytes, &[])
    }

    /// Flushes the file, when every tensor is written, and hands it back.
    ///
    /// # Errors
    /// [`Unfinished`](crate::SinkError::Unfinished) or [`Write`](crate::SinkError::Write).
    pub fn finish(self) -> Result<W, StreamError> {
        self.queue.finish()
    }
}
