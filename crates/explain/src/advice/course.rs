//! The course that advice takes: which levers, by who runs, the memory that ran out, the cause and the phase, then sorted
//! by what fits.
//!
//! Advice is a course of levers (`explain/advice/`): who runs (a server, an inference, a training) and the memory that
//! ran out choose the course, cause and phase what comes first in it, the stack what comes second; what the model's
//! arithmetic says is not enough goes behind what may be. A script that only uses a model is known by the names in its
//! stack (`forward.rs`), an installation or a build by its words (`install.rs`). Where a run failed after many good
//! steps, what is kept or one long sample comes second; where others may hold the card but need not, what makes the
//! need smaller does. The first two are two different ways: kindred levers (no graph and half precision) share a
//! sentence, unless a figure belongs to one of them (`List::join`). Smaller samples share that of a smaller batch where
//! the log asks for something else in second place, and are second themselves where nothing does. The order is held
//! to what helped in public threads (`explain/tests/remedies`, `explain/tests/threads`). Programs are known by their
//! own words (`explain/log/sign.rs`), so that nobody is told the switches of another framework. Without a figure for
//! the machine's memory a micro-batch is chosen that fits into the fixed part and one more tensor like the one that was
//! refused, which was there to be had.

use lowtide_core::Bytes;
use lowtide_oom::{DeviceKind, Engine, Place};

use super::arrays::Arrays;
use super::case::Case;
use super::framework::Framework;
use super::inference::Inference;
use super::list::{ALL, Gain, List, NOT_MODEL, NOT_NUMBERS};
use super::server::Server;
use crate::cause::private_pools;
use crate::culprit::FOREACH;
use crate::facts::Key;
use crate::log::Sign;
use crate::model::Model;
use crate::patch::{Patch, single};
use crate::{Activity, Advice, Cause, Lever, Work};

/// What is advised, and for whom.
pub(crate) struct Counsel {
    pub(crate) work: Work,
    /// What to do, best first.
    pub(crate) advice: Vec<Advice>,
    /// The patch that is shown.
    pub(crate) patch: Option<Patch>,
    /// What is to be said of the configuration.
    pub(crate) notes: Vec<String>,
}

pub(crate) fn advise(case: &Case<'_>) -> Counsel {
    let mut list = List::new(*case);
    let work = match (Server::of(case), case.oom.place, Inference::of(case)) {
        (Some(server), ..) => {
            list.serving(server);
            Work::Serving
        }
        (None, Place::Host, kind) => {
            list.host();
            if kind.is_some() { Work::Inference } else { Work::Training }
        }
        (None, Place::Device, _) if case.boosts_trees() => {
            list.what_stands_in_the_way();
            list.boosting();
            Work::Training
        }
        (None, Place::Device, _) if Arrays::of(case).is_some() => {
            Arrays::of(case).into_iter().for_each(|arrays| list.arrays(arrays));
            Work::Training
        }
        (None, Place::Device, None) if case.oom.engine == Engine::Mlx => {
            list.metal_training();
            Work::Training
        }
        (None, Place::Device, Some(kind)) => {
            list.inference(kind);
            Work::Inference
        }
        (None, Place::Device, None) => {
            list.device();
            list.what_fits_first();
            Work::Training
        }
    };
    list.limit_of_metal_second();
    let patch = list.best_patch();
    Counsel { work, advice: list.advice, patch, notes: list.notes }
}

/// Half precision, beside a model that goes to the host.
const HALF_PRECISION: &str = "; or half precision (torch.autocast, model.half(), torch_dtype=torch.bfloat16)";

impl List<'_> {
    fn device(&mut self) {
        let case = self.case;
        self.start_afresh();
        self.share_of_jax();
        self.window_outputs();
        // The whole state gathered at once is what fills a card while it saves, whatever the pieces.
        let saves = case.is_saving();
        if saves && !matches!(case.judgement.cause, Cause::OtherProcess | Cause::Limit) {
            self.saving();
        }
        self.what_stands_in_the_way();
        match case.activity {
            _ if saves => self.saving(),
            _ if case.makes_one_tensor() => self.micro_batch(),
            _ if case.makes_weights() => self.new_weights(),
            _ if case.fails_at_what_comes_round() => {
                self.what_comes_round();
                self.training();
            }
            _ if case.updates() => self.optimizer(),
            _ if case.validates_pictures() => self.evaluation(),
            Some(Activity::Evaluation) => self.evaluation(),
            _ if case.is_said_to_evaluate() => self.evaluation(),
            _ if case.loads() && !case.moves_a_small_model() => self.loading(),
            _ if case.trains() && case.evaluates_by_name() => self.evaluation(),
            // Several processes that work together mostly train.
            None | Some(Activity::Loading) if !case.trains() && !case.facts.log.is_group => self.unknown_work(),
            _ => self.training(),
        }
        if case.judgement.cause == Cause::OtherProcess {
            self.other_card();
        }
        self.last_resorts();
    }

    /// Nothing tells whether anything is trained.
    fn unknown_work(&mut self) {
        if self.case.framework() == Framework::Jax {
            // What is more than a card by itself, no share of the card is large enough for.
            if !self.case.is_larger_than_most_cards() {
                self.preallocation();
            }
            self.add(
                Lever::SmallerInput,
                "Smaller inputs (shorter sequences, crops), or a card with more memory",
                NOT_NUMBERS,
            );
            self.join(Lever::SmallerInput, &[Lever::ShorterSequence, Lever::MoreMemory], "");
            if self.case.is_larger_than_most_cards() && self.case.oom.capacity.is_none() {
                self.in_slices();
            }
        }
        if self.case.keeps_something() {
            self.plain_numbers();
            self.clear_session();
        }
        // One tensor that the card hardly holds alone is a matter of what goes in.
        if self.case.is_one_large_request() {
            if self.case.makes_scores() {
                self.attention_kernel();
            }
            if self.case.narrative().names_large_pictures {
                let text = "Cut large pictures into overlapping tiles and put the outputs together (--tile, tile_size), or make them smaller";
                self.add(Lever::Tiles, text, NOT_NUMBERS);
                self.join(Lever::Tiles, &[Lever::SmallerInput], "");
            }
            self.smaller_input();
            if self.case.facts.batch() != Some(1) {
                self.join(Lever::SmallerInput, &[Lever::MicroBatch], "; or fewer of them at once (a smaller batch)");
            }
            self.offload();
        }
        // Who asks for more cards than the one that is full has weights for several.
        if self.case.narrative().has_many_cards && self.case.is_small_request() {
            self.offload();
            self.join(Lever::Offload, &[Lever::Quantize], "; or its weights in 8 or 4 bits");
        }
        self.micro_batch();
        self.smaller_samples();
        self.preallocation();
        if self.case.has_run_a_while() {
            self.plain_numbers();
        }
        self.less_on_the_card();
        self.training();
    }

    /// Fewer bytes of the model on the card, by their type or by their place.
    fn less_on_the_card(&mut self) {
        if self.case.framework() != Framework::Torch {
            return;
        }
        self.offload();
        self.join(Lever::Offload, &[Lever::Precision], HALF_PRECISION);
        // On cards of this size language models are what is mostly run.
        if self.case.oom.capacity.is_some_and(|capacity| capacity >= Bytes::from_gib(14)) {
            let words = "; or, of a language model, LoRA in place of training all weights";
            self.join(Lever::Offload, &[Lever::Adapters], words);
        }
    }

    /// An array that no card has room for is computed slice by slice.
    fn in_slices(&mut self) {
        let size = self.case.oom.requested.map_or(String::new(), |asked| format!(" of {asked}"));
        self.add(
            Lever::LoadInPieces,
            format!(
                "Compute the array{size} in slices instead of at once: jax.lax.map with a batch_size, or jax.lax.scan over slices, in \
                 place of one vmap; check that its shape is what you meant (a product of two that broadcasts)"
            ),
            ALL,
        );
    }

    pub(super) fn preallocation(&mut self) {
        // Of a TPU's memory nobody takes a share.
        if self.case.oom.device_kind == Some(DeviceKind::Tpu) {
            return;
        }
        if self.case.framework() == Framework::Jax {
            self.jax_pool();
        } else if let Some(text) = self.case.framework().preallocation() {
            self.add(Lever::LeaveRoom, text, ALL);
        } else if self.case.oom.engine == Engine::Paddle {
            let text = "Let Paddle's pool grow instead of taking a share of the card at the start: FLAGS_allocator_strategy=auto_growth, \
                        or a smaller gpu_mem (FLAGS_fraction_of_gpu_memory_to_use)";
            self.add(Lever::LeaveRoom, text, ALL);
        }
    }

    pub(super) fn training(&mut self) {
        let case = self.case;
        if case.holds_a_checkpoint() {
            self.free_checkpoint();
        }
        if case.keeps_something() {
            self.plain_numbers();
            self.clear_session();
        }
        if case.takes_long_samples() {
            self.longest_sample();
            self.attention_kernel();
        }
        // No tensor but a matrix of scores is larger than the card, and no batch makes it small enough.
        if case.makes_scores() && case.exceeds_the_card() {
            self.attention_kernel();
        }
        if case.shows(Sign::Rollouts) && case.facts.batch() == Some(1) {
            self.shorter_answers();
        }
        if case.fixed_part_is_too_much() || case.is_one_sample_for_billions() {
            self.lighter_parameters();
        }
        if case.assigns_boxes() {
            self.assign_on_host();
        }
        if private_pools(case.oom).is_some() {
            self.fewer_graphs();
        }
        self.micro_batch();
        self.smaller_samples();
        if case.judgement.cause == Cause::Fragmentation && case.lets_segments_grow() {
            self.idle_in_segments_that_grow();
        }
        self.preallocation();
        if case.narrative().tunes_all_weights && case.has_no_settings() {
            self.adapters();
        }
        let is_single = case.facts.batch() == Some(1) && (case.is_transformer() || case.takes_words());
        let is_shared_out = case.shows(Sign::DeepSpeed) || case.shows(Sign::Fsdp);
        if is_single && case.narrative().has_many_cards && !is_shared_out {
            self.shard();
        }
        // What is shared out already goes to the host next.
        if is_single && case.shows(Sign::DeepSpeed) {
            if case.shows(Sign::ZeroTwo) {
                self.shard();
            }
            self.spill();
        }
        if case.message_or_frames(LOSSES) {
            self.chunked_loss();
        }
        if (case.has_run_a_while() || is_single) && !case.shows(Sign::Diffusion) {
            match case.takes_words() {
                true => self.longest_sample(),
                false if is_single => self.smaller_input(),
                // The loops of libraries keep nothing.
                false if case.shows(Sign::LibraryTrainer) => {}
                false => self.plain_numbers(),
            }
        }
        if case.makes_scores() {
            // Kernels without a matrix of scores came with PyTorch 2.
            if case.is_old_torch() {
                self.longest_sample();
                self.recompute();
            }
            self.attention_kernel();
        }
        if case.is_language_model() {
            self.chunked_loss();
        }
        // One switch turns recomputing on in the libraries of transformers; elsewhere smaller pictures are what helps most often.
        match case.is_transformer() {
            true => {
                let is_one_picture = case.shows(Sign::Diffusion) && case.facts.batch() == Some(1);
                if is_one_picture && case.facts.recomputes() {
                    self.smaller_input();
                }
                self.recompute_or_precision();
                if is_one_picture {
                    self.smaller_input();
                }
            }
            false => {
                self.smaller_input();
                self.precision_or_recompute();
            }
        }
        self.contributors();
        if case.is_transformer() {
            self.lighter_parameters();
        }
        if case.step.is_some_and(|step| step > 1) {
            self.plain_numbers();
        }
        self.samples_before_guesses();
        self.last_resort_beside();
        self.compile_off();
        self.spill();
        if case.shows(Sign::Notebook) {
            self.restart_kernel();
        }
    }

    /// Where nothing in the log asks for what would be second, smaller samples helped far more often than that did.
    fn samples_before_guesses(&mut self) {
        let [first, second, ..] = &*self.advice else { return };
        let guess = second.lever;
        let is_guess = matches!(guess, Lever::Precision | Lever::Offload | Lever::LeaveRoom)
            // Steps that went well had room for what is kept of the usual sample.
            || guess == Lever::Recompute && self.case.has_run_a_while();
        let Some((levers, _)) = self.samples.filter(|_| first.lever == Lever::MicroBatch && is_guess) else { return };
        self.part_samples();
        // A small request on a full card is as likely a matter of what lies on it.
        let is_weights = guess == Lever::Offload && (self.case.is_small_request() || self.case.takes_sound());
        if is_weights {
            // Where samples stand beside it, a larger card helped in one thread of six and half precision in none.
            self.leave_out(Lever::Offload, Lever::Precision, HALF_PRECISION);
        }
        if is_weights || guess == Lever::LeaveRoom {
            self.take_in(guess, levers[0]);
        }
        if is_weights {
            self.join(levers[0], &[Lever::MoreMemory], "; where that is not enough, a card with more memory");
        }
    }

    /// What comes last of all stands beside the second piece, where no settings tell what is worth a change.
    fn last_resort_beside(&mut self) {
        let case = self.case;
        let Some(second) = self.advice.get(1).map(|advice| advice.lever).filter(|_| case.has_no_settings()) else {
            return;
        };
        // What something in the log asks for needs no last resort beside it.
        let is_usual = [
            Lever::MicroBatch,
            Lever::SmallerInput,
            Lever::ShorterSequence,
            Lever::Precision,
            Lever::Offload,
            Lever::LeaveRoom,
            Lever::Recompute,
        ];
        // Weights elsewhere or in fewer bytes are what a smaller model is for.
        // Few models fit on a small card, whatever is elsewhere.
        let is_elsewhere = self.advice[1].also.contains(&Lever::Offload) && !case.is_small_card();
        if !is_usual.contains(&second) || is_elsewhere {
            return;
        }
        if case.facts.batch() == Some(1) && case.is_tiny_card() {
            let text = "A card with more memory, or a smaller variant of the model: one sample at once is the least, and few models \
                        are trained on a card of this size";
            let at = self.advice.len();
            self.add(Lever::MoreMemory, text, ALL);
            self.join(Lever::MoreMemory, &[Lever::SmallerModel], "");
            self.advice[1..=at].rotate_right(1);
        } else if case.facts.batch() == Some(1) {
            let words = "; or a smaller variant of the model, or a card with more memory";
            self.join(second, &[Lever::SmallerModel, Lever::MoreMemory], words);
        } else if case.is_tiny_card() && !case.trains() {
            let words = "; a card of this size may be too small for the model as it is: then one with more memory, or the processor \
                         (device cpu)";
            self.join(second, &[Lever::MoreMemory], words);
        } else if case.is_small_card() {
            let words = "; a card of this size may be too small for the model as it is: then one with more memory";
            self.join(second, &[Lever::MoreMemory], words);
            if !case.trains() {
                self.join(second, &[Lever::SmallerModel], ", or a smaller variant of the model");
            }
        } else if matches!(second, Lever::ShorterSequence | Lever::Precision | Lever::Recompute) {
            self.join(second, &[Lever::MoreMemory], "; where that is not enough, a card with more memory");
        } else {
            let words =
                "; where that is not enough, a smaller model (fewer layers or channels), or a card with more memory";
            self.join(second, &[Lever::SmallerModel, Lever::MoreMemory], words);
        }
    }

    /// What is computed for a graph stays with it.
    fn fewer_graphs(&mut self) {
        self.add(
            Lever::EagerMode,
            "Fewer CUDA graphs, each of which keeps the memory of its step: torch.compile without mode=\"reduce-overhead\", inputs \
             of few different shapes, one pool for all graphs that are captured by hand (torch.cuda.graph(g, pool=...))",
            ALL,
        );
    }

    fn optimizer(&mut self) {
        if self.case.culprit.is_some_and(|culprit| culprit.name == FOREACH) {
            self.no_temporaries();
        }
        let is_too_much = self.case.model.is_some() && self.case.fixed_part_is_too_much();
        if is_too_much {
            self.lighter_parameters();
        }
        self.smaller_optimizer();
        self.join(Lever::SmallerOptimizer, &[Lever::SmallerModel], ". A smaller model of the family has fewer of them");
        let is_shared_out = self.case.shows(Sign::Fsdp) || self.case.shows(Sign::DeepSpeed);
        if self.case.facts.log.is_group && !is_shared_out {
            self.shard();
        }
        self.spill();
        self.contributors();
        self.shard();
        // They are the smaller part where all that is held is too much.
        if !is_too_much {
            self.no_temporaries();
        }
        self.micro_batch();
        self.adapters();
        self.recompute();
        self.precision();
    }

    fn no_temporaries(&mut self) {
        if self.case.framework() != Framework::Torch {
            return;
        }
        self.add(
            Lever::LeaveRoom,
            "fused=True (or foreach=False) for the optimizer, which then updates without temporaries of the whole model",
            ALL,
        );
    }

    /// What contributed is worth a change where it is large.
    pub(super) fn contributors(&mut self) {
        if self.case.has(Cause::Fragmentation) {
            self.expandable();
        }
        if self.case.has(Cause::OtherProcess) {
            self.other_process();
        }
        if self.case.has(Cause::Limit) {
            self.limit();
        }
    }

    /// As many samples go into an update, of fewer tokens each.
    fn shorter_sequences(&mut self) {
        let case = self.case;
        if let Some(sequence) = case.sequence_to_shorten() {
            let half = (sequence / 2).max(1);
            let peak = case.after(|model, batch| Model { sequence: half, ..model }.peak(batch));
            self.offer(case.facts.find(Key::Sequence).and_then(|(config, setting)| single(config, setting, half)));
            let text = format!(
                "Shorter sequences: {half} instead of {sequence}; the model sees less context, and fewer tokens in each update"
            );
            self.push(Lever::ShorterSequence, text, Gain::peak(peak), NOT_NUMBERS);
        } else if case.is_transformer() && !case.shows(Sign::Diffusion) {
            let text = "Shorter sequences (max_length, max_seq_length, block_size); the model sees less context";
            self.add(Lever::ShorterSequence, text, NOT_NUMBERS);
        }
    }

    fn last_resorts(&mut self) {
        let case = self.case;
        self.reserve();
        if case.makes_one_tensor() {
            return;
        }
        self.shorter_sequences();
        let text = match case.facts.number(Key::HiddenChannels) {
            Some(channels) => {
                format!("A smaller model, last of all: {} hidden channels instead of {channels}", (channels / 2).max(1))
            }
            None => "A smaller model or a card with more memory, last of all".to_owned(),
        };
        self.add(Lever::SmallerModel, text, NOT_MODEL);
        self.join(Lever::SmallerModel, &[Lever::MoreMemory], "");
    }
}

/// Where a loss over a vocabulary is computed.
const LOSSES: &[&str] = &[
    "log_softmax",
    "cross_entropy",
    "lm_logits",
    "lm_head(",
    "logits.float(",
    "logits_to_keep",
    "per_token_logps",
    "logprobs_from_logits",
];
