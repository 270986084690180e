//! Writing a safetensors file of a known layout.

use std::io::Write;

use crate::{SinkError, StreamError, source::header::shorten};

use super::SafetensorsLayout;

/// A safetensors file that is being written: the header is out, the tensors follow.
#[derive(Debug)]
pub struct SafetensorsWriter<W> {
    layout: SafetensorsLayout,
    sink: W,
    num_written: usize,
    /// A write failed in the middle of a tensor: whatever followed would be out of place.
    is_broken: bool,
}

impl<W: Write> SafetensorsWriter<W> {
    /// Writes the header of `layout` to `sink`.
    ///
    /// # Errors
    /// [`SinkError::HeaderTooLong`] or [`SinkError::Write`].
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
    pub fn begin(layout: SafetensorsLayout, mut sink: W) -> Result<Self, StreamError> {
        let header = layout.header()?;
        sink.write_all(&header)
            .map_err(|source| write_error(&layout, source))?;
        Ok(Self {
            layout,
            sink,
            num_written: 0,
            is_broken: false,
        })
    }

    /// What is written, and in which order.
    #[must_use]
    pub fn layout(&self) -> &SafetensorsLayout {
        &self.layout
    }

    /// Writes the next tensor of the layout, which must be `name`.
    ///
    /// # Errors
    /// [`SinkError::TensorOrder`], [`StreamError::BufferSize`] or [`SinkError::Write`]; the file cannot be
    /// finished after the last.
    pub fn tensor(&mut self, name: &str, bytes: &[u8]) -> Result<(), StreamError> {
        if self.is_broken {
            return Err(SinkError::TensorOrder {
                file: self.layout.label().to_owned(),
                found: shorten(name),
                expected: "an earlier write failed, so that nothing can follow".into(),
            }
            .into());
        }
        let next = self.layout.tensors().get(self.num_written);
        let Some((_, entry)) = next.filter(|(expected, _)| expected == name) else {
            return Err(SinkError::TensorOrder {
                file: self.layout.label().to_owned(),
                found: shorten(name),
                expected: next.map_or_else(
                    || "nothing is left to write".to_owned(),
                    |(expected, _)| format!("`{}` comes next", shorten(expected)),
                ),
            }
            .into());
        };
        if bytes.len() as u64 != entry.num_bytes {
            return Err(StreamError::BufferSize {
                file: self.layout.label().to_owned(),
                tensor: shorten(name),
                found_bytes: bytes.len() as u64,
                expected_bytes: entry.num_bytes,
            });
        }
        self.is_broken = true;
        self.sink
            .write_all(bytes)
            .map_err(|source| write_error(&self.layout, source))?;
        self.is_broken = false;
        self.num_written += 1;
        Ok(())
    }

    /// Flushes the file, when every tensor is written, and hands it back.
    ///
    /// # Errors
    /// [`SinkError::Unfinished`] or [`SinkError::Write`].
    pub fn finish(mut self) -> Result<W, StreamError> {
        let left = self.layout.tensors().get(self.num_written..);
        if let Some([(first, _), rest @ ..]) = left {
            return Err(SinkError::Unfinished {
                file: self.layout.label().to_owned(),
                first: shorten(first),
                count: rest.len() + 1,
            }
            .into());
        }
        self.sink
            .flush()
            .map_err(|source| write_error(&self.layout, source))?;
        Ok(self.sink)
    }
}

fn write_error(layout: &SafetensorsLayout, source: std::io::Error) -> StreamError {
    let file = layout.label().to_owned();
    SinkError::Write { file, source }.into()
}
