//! What the events of a run came to.

use std::mem;

use lowtide_core::{Bytes, CardMemory, CommandOutcome, Event, Line, Phase, Record, SCHEMA, Seal, Step};

use super::command::CommandHeader;
use super::figures::{Figures, RunHeader};
use super::forecasts::Forecasts;
use super::marks::{Mark, Marks};
use super::pace::Pace;
use super::timeline::{Point, Timeline};
use crate::machine::{CHILDREN, DEVICE_USED, FreeMemory, HOST_USED, History, ON_CARDS, RESERVE, RESIDENT, card_used};

/// The longest text that is kept of what an engine said.
const MESSAGE: usize = 800;

/// What the events of a run came to.
#[derive(Debug, Default)]
pub(crate) struct RunDigest {
    pub(crate) header: Option<RunHeader>,
    /// The command, where it is one that is kept alive.
    pub(crate) command: Option<CommandHeader>,
    pub(crate) figures: Figures,
    pub(crate) timeline: Timeline,
    pub(crate) history: History,
    pub(crate) marks: Marks,
    pub(crate) forecasts: Forecasts,
    pub(crate) ended: Option<&'static str>,
    /// Seconds of the starts before the present one.
    before: f64,
    unanswered: u64,
    /// A step of which a try failed and was not measured by itself, as in older runs.
    unmeasured: Option<Step>,
    /// The most memory of the host and of a card in the starts of a command that did not run out, and in the present one.
    earlier_starts: CommandPeaks,
    this_start: CommandPeaks,
    /// What was free when memory was last noted.
    pub(crate) free: Option<FreeMemory>,
    pub(crate) pace: Pace,
    pub(crate) step_seconds: f64,
    pub(crate) unread: u64,
    /// Grows when the file was read anew.
    pub(crate) readings: u32,
}

/// The most memory of the host, and of the fullest card, that was noted.
#[derive(Debug, Clone, Copy, Default)]
struct CommandPeaks {
    resident: Option<Bytes>,
    card: Option<Bytes>,
}

impl CommandPeaks {
    fn and(self, other: CommandPeaks) -> CommandPeaks {
        CommandPeaks { resident: self.resident.max(other.resident), card: self.card.max(other.card) }
    }
}

impl RunDigest {
    /// Forgets everything: the events are those of another file.
    pub(crate) fn restart(&mut self) {
        *self = RunDigest { readings: self.readings + 1, ..RunDigest::default() };
    }

    /// Takes one line of `events.jsonl` in, unless it is damaged.
    pub(crate) fn read(&mut self, line: &[u8]) {
        match serde_json::from_slice::<Record>(line) {
            _ if Seal::of(line) == Seal::Broken => self.unread += 1,
            Ok(record) if record.schema <= SCHEMA && record.time.is_finite() => self.add(&record),
            _ => self.unread += 1,
        }
    }

    fn add(&mut self, record: &Record) {
        if let Event::RunStarted { .. } = record.event {
            // The clock of a resumed run starts at zero again.
            self.before = self.figures.time;
            self.ended = None;
        }
        let time = (self.before + record.time.max(0.0)).max(self.figures.time);
        self.figures.time = time;
        if let Some(rank) = record.rank {
            self.count_of_rank(rank, &record.event);
        }
        if record.is_others_memory() {
            return;
        }
        self.mark(time, record);
        self.count(time, &record.event);
    }

    /// What one of several ranks tells of itself.
    fn count_of_rank(&mut self, rank: u32, event: &Event) {
        let is_of_interest = matches!(event, Event::Memory { .. } | Event::OutOfMemory { .. });
        let Some(figures) = is_of_interest.then(|| self.figures.rank(rank)).flatten() else { return };
        match event {
            Event::Memory { allocated, reserved, resident, worked, waited, .. } => {
                figures.allocated = *allocated;
                figures.reserved = *reserved;
                figures.highest_reserved = figures.highest_reserved.max(*reserved);
                figures.resident = *resident;
                figures.worked = worked.or(figures.worked);
                figures.waited = waited.or(figures.waited);
            }
            _ => figures.out_of_memory += 1,
        }
    }

    fn count(&mut self, time: f64, event: &Event) {
        let figures = &mut self.figures;
        match event {
            Event::RunStarted { workload, device, batch, line, host_line, parameters, resumed_at, .. } => {
                self.pace.start(resumed_at.unwrap_or(Step::ZERO).get());
                self.header = Some(RunHeader {
                    workload: workload.clone(),
                    device: device.clone(),
                    batch: *batch,
                    parameters: *parameters,
                    line: line.limit(),
                    host_line: Line::limit(*host_line),
                });
            }
            Event::StepDone { .. } => self.step(time, event),
            Event::Probed { micro_batch, peak, .. } => self.forecasts.probed(*micro_batch, *peak),
            Event::Sized { measures } => self.forecasts.sized(measures.micro_batch),
            Event::Memory { retries, device_used, device_total, resident, host_used, host_total, reserve, .. } => {
                figures.retries = Some(*retries);
                figures.resident = Some(*resident);
                let on_card = left(*device_total, *device_used);
                let limit = self.header.as_ref().and_then(|header| header.host_line);
                self.free = on_card
                    .map(|bytes| FreeMemory { bytes, place: "on the card".to_owned() })
                    .or_else(|| FreeMemory::on_host(left(*host_total, *host_used), limit, Some(*resident)));
                figures.host_total = host_total.or(figures.host_total);
                figures.highest_resident = figures.highest_resident.max(Some(*resident));
                let noted = [
                    (RESIDENT, Some(resident.get())),
                    (HOST_USED, host_used.map(Bytes::get)),
                    (DEVICE_USED, device_used.map(Bytes::get)),
                ];
                let reserve = reserve.map(|bytes| (RESERVE, Some(bytes.get())));
                self.history.push(time, &noted.into_iter().chain(reserve).collect::<Vec<_>>());
            }
            Event::OutOfMemory { step, phase, allocated, peak, reserved, .. } => {
                figures.out_of_memory += 1;
                self.unanswered += 1;
                figures.failed_peak = figures.failed_peak.max(peak.or(*allocated));
                figures.failed_reserved = figures.failed_reserved.max(*reserved);
                let is_of_step = matches!(phase, Phase::Forward | Phase::Backward | Phase::Optimizer);
                self.unmeasured = Some(*step).filter(|_| is_of_step && reserved.is_none());
            }
            Event::RungTaken { .. } => figures.rungs += 1,
            Event::Cleaned { freed, .. } => {
                figures.cleanings += 1;
                figures.freed = figures.freed.saturating_add(*freed);
            }
            Event::Evaluated { step, loss, metrics, seconds, .. } => {
                self.pace.evaluation(step.get(), *seconds);
                figures.eval_loss = Some(*loss).filter(|loss| loss.is_finite());
                figures.metrics = metrics.clone();
                figures.recovered += mem::take(&mut self.unanswered);
            }
            // Not recovered: the figure of this evaluation is missing.
            Event::EvaluationFailed { .. } | Event::MetricMissing { .. } => self.unanswered = 0,
            Event::Saved { step, seconds, .. } => {
                self.pace.checkpoint(step.get(), *seconds);
                figures.saved += 1;
            }
            Event::CommandStarted { .. } | Event::CommandMemory { .. } | Event::CommandEnded { .. } => {
                self.command(time, event);
            }
            Event::Stopped { ending, .. } => self.ended = Some(ending.word()),
            _ => {}
        }
    }

    fn step(&mut self, time: f64, event: &Event) {
        let Event::StepDone { step, loss, samples, tokens, seconds, allocated, peak, reserved, micro_batch, .. } =
            *event
        else {
            return;
        };
        let figures = &mut self.figures;
        figures.step = step.get();
        figures.loss = Some(loss).filter(|loss| loss.is_finite());
        (figures.allocated, figures.peak, figures.reserved) = (allocated, peak, reserved);
        if self.unmeasured.take().is_some_and(|failed| failed <= step) {
            // The step's figures hold those of the try that failed, which are the higher ones.
            figures.failed_peak = figures.failed_peak.max(Some(peak));
            figures.failed_reserved = figures.failed_reserved.max(Some(reserved));
        } else {
            figures.highest_peak = figures.highest_peak.max(peak);
            figures.highest_reserved = figures.highest_reserved.max(reserved);
            self.forecasts.trained(micro_batch, peak);
        }
        figures.micro_batch = micro_batch.get();
        self.pace.step(step.get(), seconds, micro_batch.get());
        figures.recovered += mem::take(&mut self.unanswered);
        // Smoothed over some twenty steps.
        let share = if self.step_seconds > 0.0 { 0.05 } else { 1.0 };
        self.step_seconds += share * (seconds.max(0.0) - self.step_seconds);
        figures.samples_per_second = rate(samples, self.step_seconds);
        figures.tokens_per_second = tokens.map(|tokens| rate(tokens, self.step_seconds));
        let finite = u64::from(loss.is_finite());
        let line = self.header.as_ref().and_then(|header| header.line);
        let (step, micro_batch) = (step.get(), micro_batch.get());
        self.timeline.push(Point {
            time,
            step,
            steps: 1,
            allocated,
            peak,
            reserved,
            line,
            loss: if finite == 1 { loss } else { f64::NAN },
            finite,
            micro_batch,
        });
    }

    /// What happens to a command that is kept alive.
    fn command(&mut self, time: f64, event: &Event) {
        let figures = &mut self.figures;
        match event {
            Event::CommandStarted { start, command, micro_batch, accumulation, resumed_from } => {
                figures.micro_batch = micro_batch.and_then(|it| u32::try_from(it).ok()).unwrap_or_default();
                figures.rungs += u64::from(*start > 1);
                // A start that does not resume counts its steps anew.
                figures.step = 0;
                self.earlier_starts = self.earlier_starts.and(mem::take(&mut self.this_start));
                self.command = Some(CommandHeader {
                    command: shortened(command),
                    start: *start,
                    micro_batch: *micro_batch,
                    accumulation: *accumulation,
                    resumed_from: resumed_from.clone(),
                });
            }
            Event::CommandMemory { step, resident, host_used, host_total, cards } => {
                // The end of the output may be something else than steps for a while.
                figures.step = step.get().max(figures.step);
                figures.host_total = host_total.or(figures.host_total);
                figures.resident = Some(*resident);
                figures.card = cards.iter().map(|card| card.used).max();
                self.this_start = self.this_start.and(CommandPeaks { resident: figures.resident, card: figures.card });
                let peaks = self.earlier_starts.and(self.this_start);
                (figures.highest_resident, figures.highest_card) = (peaks.resident, peaks.card);
                self.free = fullest(cards)
                    .or_else(|| FreeMemory::on_host(left(*host_total, *host_used), None, Some(*resident)));
                let names: Vec<String> = cards.iter().map(|card| card_used(card.index)).collect();
                // The process that keeps the command alive takes next to nothing for itself.
                let mut noted = vec![
                    (RESIDENT, Some(0)),
                    (CHILDREN, Some(resident.get())),
                    (ON_CARDS, None),
                    (HOST_USED, host_used.map(Bytes::get)),
                ];
                noted.extend(names.iter().zip(cards).map(|(name, card)| (name.as_str(), Some(card.used.get()))));
                self.history.push(time, &noted);
                self.history.note_step(figures.step);
            }
            Event::CommandEnded { step, outcome, .. } => {
                figures.step = step.get().max(figures.step);
                match outcome {
                    CommandOutcome::OutOfMemory => {
                        figures.out_of_memory += 1;
                        self.unanswered += 1;
                        let failed = mem::take(&mut self.this_start);
                        figures.failed_resident = figures.failed_resident.max(failed.resident);
                        figures.failed_card = figures.failed_card.max(failed.card);
                        let CommandPeaks { resident, card } = self.earlier_starts;
                        (figures.highest_resident, figures.highest_card) = (resident, card);
                    }
                    CommandOutcome::Finished => figures.recovered += mem::take(&mut self.unanswered),
                    CommandOutcome::Interrupted | CommandOutcome::Failed => {}
                }
            }
            _ => {}
        }
    }

    fn mark(&mut self, time: f64, record: &Record) {
        let event = &record.event;
        let (Some(kind), Some(text)) = (event.kind(), event.sentence()) else { return };
        let (step, seconds) = (event.step().unwrap_or(Step(self.figures.step)), event.seconds());
        let loss = match event {
            Event::Evaluated { loss, .. } if loss.is_finite() => Some(*loss),
            _ => None,
        };
        let (detail, reserved) = match event {
            Event::OutOfMemory { message, reserved, .. } => (Some(shortened(message)), *reserved),
            _ => (None, None),
        };
        let text = match record.rank {
            Some(rank) => shortened(&format!("Rank {rank}: {text}")),
            None => shortened(&text),
        };
        self.marks.push(Mark { kind, time, seconds, step, first_step: step, count: 1, loss, reserved, text, detail });
    }
}

fn left(total: Option<Bytes>, used: Option<Bytes>) -> Option<Bytes> {
    total.zip(used).map(|(total, used)| total.saturating_sub(used))
}

/// What is free on the card that has the least of it.
fn fullest(cards: &[CardMemory]) -> Option<FreeMemory> {
    let free = |card: &CardMemory| card.total.saturating_sub(card.used);
    let card = cards.iter().min_by_key(|card| free(card))?;
    Some(FreeMemory { bytes: free(card), place: format!("on GPU {}", card.index) })
}

fn rate(number: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { number as f64 / seconds } else { 0.0 }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(MESSAGE) {
        None => text.to_owned(),
        Some((end, _)) => format!("{} ...", &text[..end]),
    }
}
