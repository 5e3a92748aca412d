//! Arrays and tables on a card: CuPy, and cuDF with what else takes its memory from RMM. Nothing is trained there, and no call of
//! PyTorch is theirs.

use lowtide_oom::Engine;

use super::case::Case;
use super::list::{ALL, List, NOT_NUMBERS};
use crate::log::Sign;
use crate::{Cause, Lever};

/// Whose arrays they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrays {
    Cupy,
    /// cuDF, cuML, cuGraph, over RMM.
    Rapids,
}

impl Arrays {
    pub(super) fn of(case: &Case<'_>) -> Option<Self> {
        // Libraries of networks compute on CuPy too; their users have a batch.
        let names_network = case.passes(&["chainer", "thinc", "spacy"]) || case.trains();
        // So its first versions said it, which were the part of Chainer that computes.
        let is_of_networks = names_network || case.message.contains("out of memory to allocate");
        let of_rapids = ["cudf", "cuml", "cugraph", "rmm"];
        match case.oom.engine {
            Engine::Cupy if !is_of_networks => Some(Self::Cupy),
            Engine::Rmm if case.passes(&["torch"]) || case.shows(Sign::Torch) => None,
            Engine::Rmm if of_rapids.iter().any(|name| case.message.contains(name)) || case.passes(&of_rapids) => {
                Some(Self::Rapids)
            }
            _ => None,
        }
    }
}

impl List<'_> {
    pub(super) fn arrays(&mut self, arrays: Arrays) {
        if self.case.judgement.cause == Cause::OtherProcess {
            self.other_process();
            self.other_card();
        }
        match arrays {
            Arrays::Cupy => self.cupy(),
            Arrays::Rapids => self.rapids(),
        }
        if self.case.has(Cause::OtherProcess) {
            self.other_process();
        }
        self.restart_kernel();
    }

    fn cupy(&mut self) {
        let case = self.case;
        if let Some(limit) = case.oom.limit {
            let text = format!(
                "Raise the limit of the pool (it is {limit}), where the card has more: \
                 cupy.get_default_memory_pool().set_limit(fraction=0.95), or CUPY_GPU_MEMORY_LIMIT=95%"
            );
            self.add(Lever::RaiseLimit, text, ALL);
        }
        let size = case.oom.requested.map_or(String::new(), |asked| format!(" of {asked}"));
        self.add(
            Lever::LoadInPieces,
            format!(
                "Compute the array{size} in pieces (slices of rows, streams of chunks), or of a narrower type (float32 in place of \
                 float64 halves it)"
            ),
            NOT_NUMBERS,
        );
        self.join(Lever::LoadInPieces, &[Lever::SmallerInput, Lever::FewerRequests, Lever::SmallerType], "");
        self.add(
            Lever::EmptyCache,
            "Free what is not used any more: del the arrays (temporaries of long expressions too; out= keeps them few), then \
             cupy.get_default_memory_pool().free_all_blocks()",
            ALL,
        );
        self.add(
            Lever::Offload,
            "Use managed memory, so that arrays spill to the machine's memory: \
             cupy.cuda.set_allocator(cupy.cuda.MemoryPool(cupy.cuda.malloc_managed).malloc) before the first array; slower",
            ALL,
        );
        self.join(Lever::Offload, &[Lever::MoreMemory], "; or a card with more memory");
    }

    fn rapids(&mut self) {
        let case = self.case;
        let is_pool = case.judgement.cause == Cause::Limit || case.message.contains("pool size");
        if is_pool {
            let text = "Raise the limit of the pool: maximum_pool_size of rmm.mr.PoolMemoryResource (or initial_pool_size of \
                        rmm.reinitialize, rmm_pool_size of LocalCUDACluster), up to what the card has free";
            self.add(Lever::RaiseLimit, text, ALL);
        }
        self.add(
            Lever::Offload,
            "Let tables spill to the machine's memory: cudf.set_option(\"spill\", True) (CUDF_SPILL=on), or managed memory, \
             rmm.reinitialize(managed_memory=True), before the first table; slower",
            ALL,
        );
        self.add(
            Lever::LoadInPieces,
            "Read and compute in pieces: only the columns that are used, smaller partitions of dask-cudf (blocksize, \
             repartition(partition_size=\"256MB\")), row groups one after the other",
            ALL,
        );
        self.join(Lever::LoadInPieces, &[Lever::SmallerInput, Lever::FewerRequests], "");
        self.add(
            Lever::MoreCards,
            "Spread tables over several cards: dask-cuda's LocalCUDACluster with device_memory_limit, which spills too; or a card \
             with more memory",
            ALL,
        );
        self.join(Lever::MoreCards, &[Lever::MoreMemory], "");
    }
}
