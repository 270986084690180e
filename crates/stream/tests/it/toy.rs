//! A toy model: byte tensors as weights, and hooks for what a load does besides.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
    mpsc::{Receiver, Sender, channel},
};

use bytes::Bytes;
use overglaze_stream::{
    MemorySource, Slot, StreamError, Streamable, Streamer, StreamerConfig, WeightSource,
};

/// What a load does besides reading.
#[derive(Clone, Debug, Default)]
pub(crate) enum Hook {
    #[default]
    Nothing,
    /// Fails once.
    Fail(Arc<AtomicBool>),
    /// Panics once.
    Panic(Arc<AtomicBool>),
    /// Says that it began, and waits for leave.
    Gate(Arc<Gate>),
}

#[derive(Debug)]
pub(crate) struct Gate {
    begun: Sender<()>,
    leave: Mutex<Receiver<()>>,
}

impl Gate {
    pub(crate) fn new() -> (Arc<Self>, Receiver<()>, Sender<()>) {
        let ((begun, has_begun), (give_leave, leave)) = (channel(), channel());
        let leave = Mutex::new(leave);
        (Arc::new(Self { begun, leave }), has_begun, give_leave)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct ToyWeight {
    pub(crate) name: String,
    pub(crate) num_bytes: u64,
    pub(crate) hook: Hook,
}

impl Streamable for ToyWeight {
    type Resident = Bytes;

    fn name(&self) -> &str {
        &self.name
    }

    fn num_bytes(&self) -> u64 {
        self.num_bytes
    }

    fn load(&self, source: &dyn WeightSource, mut slot: Slot) -> Result<Bytes, StreamError> {
        match &self.hook {
            Hook::Nothing => {}
            Hook::Fail(once) if once.swap(false, Ordering::SeqCst) => {
                return source.read("no such tensor");
            }
            Hook::Panic(once) if once.swap(false, Ordering::SeqCst) => panic!("a toy breaks"),
            Hook::Fail(_) | Hook::Panic(_) => {}
            Hook::Gate(gate) => {
                gate.begun.send(()).unwrap();
                gate.leave.lock().unwrap().recv().unwrap();
            }
        }
        source.read_into(&self.name, slot.as_mut_slice())?;
        Ok(slot.freeze())
    }
}

pub(crate) fn content(index: usize, num_bytes: usize) -> Vec<u8> {
    (0..num_bytes)
        .map(|position| u8::try_from((index * 31 + position * 7) % 251 + 1).unwrap())
        .collect()
}

/// Weights `w0`, `w1`, … of these sizes, and a source that holds them.
pub(crate) fn model(sizes: &[usize]) -> (Arc<dyn WeightSource>, Vec<ToyWeight>) {
    let mut source = MemorySource::new("memory");
    let mut weights = Vec::new();
    for (index, size) in sizes.iter().enumerate() {
        let name = format!("w{index}");
        let bytes = Bytes::from(content(index, *size));
        source.insert(name.clone(), "U8", [*size], bytes).unwrap();
        weights.push(ToyWeight {
            name,
            num_bytes: *size as u64,
            hook: Hook::Nothing,
        });
    }
    (Arc::new(source), weights)
}

/// Poisons what it releases, always.
pub(crate) fn config(budget_bytes: u64, lookahead: usize) -> StreamerConfig {
    StreamerConfig {
        budget_bytes,
        lookahead,
        poison_released: true,
    }
}

pub(crate) fn streamer(
    sizes: &[usize],
    budget_bytes: u64,
    lookahead: usize,
) -> Arc<Streamer<ToyWeight>> {
    let (source, weights) = model(sizes);
    Streamer::new(source, weights, config(budget_bytes, lookahead)).unwrap()
}

/// Acquires one weight and checks every byte of it.
pub(crate) fn visit(streamer: &Arc<Streamer<ToyWeight>>, index: usize) {
    let lease = streamer.acquire(streamer.slot_id(index)).unwrap();
    assert_eq!(lease[..], content(index, lease.len()), "weight {index}");
    assert!(!lease.is_empty());
}

/// Passes over the model, layer after layer.
pub(crate) fn run_cycles(streamer: &Arc<Streamer<ToyWeight>>, num_cycles: usize) {
    for _ in 0..num_cycles {
        (0..streamer.num_weights()).for_each(|index| visit(streamer, index));
    }
}
