//! Pieces of a step that are recorded as CUDA graphs and replayed.
//!
//! A step whose pieces are those of the step before is recorded: piece by piece, each just before it is first replayed. Between
//! replays nothing moves: inputs are copied to where they were when the piece was recorded, gradients and the sum of the losses
//! are added to in place. Other pieces, or other measures, let go of all graphs, and so does memory that runs out.
//!
//! The bits are those of the loop without graphs: the same kernels in the same order on the same numbers.

use std::time::Instant;

use lowtide_core::{Bytes, Line};
use lowtide_settings::Graphs as Choice;
use lowtide_torch::rng::{self, RngState};
use lowtide_torch::tch::{Device, Kind, Tensor};
use lowtide_torch::{Graph, GraphPool, TorchError, attempt, cuda, gradients, use_own_stream};

use super::model::{Pass, bytes_of};
use crate::memory::GraphMemory;
use crate::workload::Batch;

/// What decides what a piece asks of the device.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Shape {
    tensors: Vec<(Vec<i64>, Kind)>,
    pass: Pass,
    /// What the loss is divided by, and then multiplied by.
    targets: f64,
    scale: Option<f64>,
}

impl Shape {
    pub(super) fn of(piece: &Batch, pass: Pass, targets: f64, scale: Option<f64>) -> Shape {
        let tensors = piece.tensors().map(|tensor| (tensor.size(), tensor.kind())).collect();
        Shape { tensors, pass, targets, scale }
    }
}

/// The graphs of a run.
pub(crate) struct Graphs {
    choice: Choice,
    /// The CUDA device they are for; none where there is nothing to be recorded.
    device: Option<usize>,
    recorded: Option<Recorded>,
    /// What allocator and driver may take together.
    roof: Option<Bytes>,
    /// Whether this thread has a stream of its own.
    has_stream: bool,
    /// The last step that was computed to its end.
    last: Option<LastStep>,
    /// Pieces that do not fit as graphs.
    unfit: Option<Vec<Shape>>,
    /// What is to be told.
    notes: Vec<String>,
    /// Why nothing is recorded any more.
    refused: Option<String>,
}

/// What a step must be like to be recorded.
struct LastStep {
    shapes: Vec<Shape>,
    /// The parameters that have a gradient.
    parameters: Vec<Tensor>,
}

struct Recorded {
    pool: GraphPool,
    parameters: Vec<Tensor>,
    /// The memory of their gradients.
    gradients: Vec<Tensor>,
    /// The sum of the losses.
    total: Tensor,
    pieces: Vec<Piece>,
    held: GraphMemory,
    seconds: f64,
}

struct Piece {
    shape: Shape,
    batch: Batch,
    graph: Graph,
}

/// What a step without graphs noted, so that the next one may have some.
pub(super) struct Watch {
    shapes: Vec<Shape>,
    before: Option<RngState>,
}

impl Graphs {
    pub(crate) fn new(choice: Choice, device: Device) -> Graphs {
        let device = match device {
            Device::Cuda(index) if choice != Choice::Off => Some(index),
            _ => None,
        };
        Graphs {
            choice,
            device,
            recorded: None,
            roof: None,
            has_stream: false,
            last: None,
            unfit: None,
            notes: Vec::new(),
            refused: None,
        }
    }

    /// What allocator and driver may take together.
    pub(super) fn stay_under(&mut self, roof: Line) {
        self.roof = roof.limit();
    }

    /// Records nothing from now on.
    pub(crate) fn refuse(&mut self, reason: impl Into<String>) {
        if self.device.is_some() && self.refused.is_none() {
            let reason = reason.into();
            self.notes.push(format!("steps are computed without CUDA graphs: {reason}"));
            self.refused = Some(reason);
        }
        self.give_back();
    }

    /// Lets go of all graphs. Their memory is the allocator's until its cache is released.
    pub(crate) fn give_back(&mut self) {
        (self.recorded, self.last) = (None, None);
    }

    /// What the graphs hold now.
    pub(crate) fn held(&self) -> GraphMemory {
        self.recorded.as_ref().map_or_else(GraphMemory::default, |recorded| recorded.held)
    }

    /// What happened since the last time.
    pub(crate) fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Begins a step of these pieces: with graphs, or with what the next one needs to have some. A step begins without gradients.
    pub(super) fn begin(&mut self, shapes: Vec<Shape>) -> Result<Watch, TorchError> {
        self.may_do_without()?;
        let Some(device) = self.device.filter(|_| self.refused.is_none()) else {
            return Ok(Watch { shapes: Vec::new(), before: None });
        };
        if !self.has_stream {
            use_own_stream(device)?;
            self.has_stream = true;
        }
        let Some(last) = self.last.take_if(|last| last.shapes == shapes) else {
            self.last = None;
            if self.recorded.take().is_some() {
                cuda::empty_cache()?;
            }
            return Ok(Watch { shapes, before: Some(rng::state(Device::Cuda(device))?) });
        };
        if self.recorded.is_none() {
            match Recorded::begin(device, last.parameters) {
                Ok(recorded) => self.recorded = Some(recorded),
                Err(error) => self.failed(error, &shapes)?,
            }
        }
        if let Some(recorded) = &self.recorded {
            gradients::begin_in(&recorded.parameters, &recorded.gradients)?;
            let _ = attempt(|| recorded.total.shallow_clone().zero_())?;
        }
        Ok(Watch { shapes, before: None })
    }

    /// Gets a piece ready to be replayed: records what `compute` makes of it where that was not done yet, and copies the samples to
    /// where they are read. `compute` adds the loss to the sum that it is given. False where it could not be recorded, and is to be
    /// computed without.
    pub(super) fn ready(
        &mut self,
        watch: &Watch,
        shape: &Shape,
        piece: &Batch,
        compute: impl FnOnce(&Batch, &Tensor),
    ) -> Result<bool, TorchError> {
        let Some(recorded) = &mut self.recorded else { return Ok(false) };
        if let Some(known) = recorded.pieces.iter().find(|known| known.shape == *shape) {
            attempt(|| {
                for (to, from) in known.batch.tensors().zip(piece.tensors()) {
                    to.shallow_clone().copy_(from);
                }
            })?;
            return Ok(true);
        }
        match recorded.record(self.roof, shape, piece, compute) {
            Ok(()) => Ok(true),
            Err(error) => self.failed(error, &watch.shapes).map(|()| false),
        }
    }

    /// Computes a piece that is ready.
    pub(super) fn replay(&self, shape: &Shape) -> Result<(), TorchError> {
        let mut pieces = self.recorded.iter().flat_map(|recorded| &recorded.pieces);
        pieces.find(|piece| piece.shape == *shape).expect("a piece that is ready was recorded").graph.replay()
    }

    /// The sum of the losses of all pieces, where they were replayed.
    pub(super) fn total(&self) -> Option<Tensor> {
        self.recorded.as_ref().map(|recorded| recorded.total.shallow_clone())
    }

    /// A step's pieces were computed to the last one.
    pub(super) fn done(&mut self, watch: Watch, parameters: &[Tensor]) -> Result<(), TorchError> {
        let Some(device) = self.device.filter(|_| self.refused.is_none()) else { return Ok(()) };
        let recomputes = watch.shapes.iter().any(|shape| shape.pass.recomputes());
        if watch.shapes.iter().any(|shape| shape.pass.spills()) || self.unfit.as_ref() == Some(&watch.shapes) {
            return Ok(());
        }
        if let Some(before) = &watch.before {
            let after = rng::state(Device::Cuda(device))?;
            if before.cpu != after.cpu {
                self.refuse("the model draws random numbers on the host");
                return Ok(());
            }
            if recomputes && before.cuda != after.cuda {
                // Only as long as it recomputes.
                return Ok(());
            }
        }
        if let Some(recorded) = &mut self.recorded
            && let seconds @ 0.001.. = std::mem::take(&mut recorded.seconds)
        {
            let (count, GraphMemory { pool, gradients, driver }) = (recorded.pieces.len(), recorded.held);
            let graphs = if count == 1 { "one CUDA graph".to_owned() } else { format!("{count} CUDA graphs") };
            self.notes.push(format!(
                "steps are replayed from {graphs}, recorded in {seconds:.2} s: they hold {pool}, gradients {gradients}, the driver {driver}"
            ));
        }
        let with_gradient = parameters.iter().filter(|tensor| tensor.grad().defined());
        let parameters = with_gradient.map(Tensor::shallow_clone).collect();
        self.last = Some(LastStep { shapes: watch.shapes, parameters });
        Ok(())
    }

    /// A piece of these could not be recorded. Where memory is the reason, others may be.
    fn failed(&mut self, error: TorchError, shapes: &[Shape]) -> Result<(), TorchError> {
        self.give_back();
        cuda::empty_cache()?;
        match error {
            TorchError::Oom { message, .. } => {
                self.unfit = Some(shapes.to_vec());
                self.notes.push(format!("these steps are computed without CUDA graphs, which do not fit: {message}"));
                Ok(())
            }
            error if self.choice == Choice::On => Err(error),
            error => {
                self.refuse(format!("this model cannot be recorded ({error})"));
                Ok(())
            }
        }
    }

    /// Fails where nothing can be recorded and that was insisted on.
    fn may_do_without(&self) -> Result<(), TorchError> {
        match (&self.refused, self.choice) {
            (Some(reason), Choice::On) => Err(TorchError::Engine(format!("train.graphs is on, and {reason}"))),
            _ => Ok(()),
        }
    }
}

impl Recorded {
    /// Room for graphs. What the cache holds for pieces without them would be there twice.
    fn begin(device: usize, parameters: Vec<Tensor>) -> Result<Recorded, TorchError> {
        cuda::empty_cache()?;
        let pool = GraphPool::new(device)?;
        let (gradients, total) = attempt(|| {
            let gradients: Vec<Tensor> = parameters.iter().map(|tensor| tensor.detach().zeros_like()).collect();
            (gradients, Tensor::zeros([], (Kind::Float, Device::Cuda(device))))
        })?;
        let held = GraphMemory { gradients: bytes_of(&gradients), ..GraphMemory::default() };
        Ok(Recorded { pool, parameters, gradients, total, pieces: Vec::new(), held, seconds: 0.0 })
    }

    fn record(
        &mut self,
        roof: Option<Bytes>,
        shape: &Shape,
        piece: &Batch,
        compute: impl FnOnce(&Batch, &Tensor),
    ) -> Result<(), TorchError> {
        let begun = Instant::now();
        let device = self.pool.device();
        let batch = attempt(|| piece.copy())?;
        let (before, free) = (cuda::stats(device)?, cuda::memory(device)?.free);
        let graph = self.pool.record(roof, || compute(&batch, &self.total))?;
        let (after, left) = (cuda::stats(device)?, cuda::memory(device)?.free);
        let taken = after.reserved.saturating_sub(before.reserved);
        self.held.pool = self.held.pool.saturating_add(taken);
        self.held.driver = self.held.driver.saturating_add(free.saturating_sub(left).saturating_sub(taken));
        self.pieces.push(Piece { shape: shape.clone(), batch, graph });
        // What was allocated to record it is what a replay uses, and is counted as held from now on.
        cuda::reset_peaks(device)?;
        self.seconds += begun.elapsed().as_secs_f64();
        Ok(())
    }
}
