//! A log of any size, in pieces: a few megabytes are held at once.

use std::collections::VecDeque;
use std::ops::Range;

use lowtide_log::{TextDecoder, TracebackKind, bar, rank, shows_progress, steps, time, traceback_in_json, tracebacks};
use lowtide_oom::{
    Certainty, Engine, LookAlike, Oom, OomHit, PageLikeness, Place, Source, ended_otherwise, is_reference, look_alike,
    page_likeness, scan, scan_last_resort, scan_post,
};
use memchr::{memchr, memchr_iter, memrchr};

use crate::another_day::is_of_another_day;
use crate::code_line::is_own;
use crate::explain::verdict;
use crate::got_over::{GOT_OVER, is_probe, other_end};
use crate::json_end::{begin_of_end, explain_end, with_end};
use crate::log::{Circumstances, Event, LONGEST_POST, Printout, RankNotes, Sign};
use crate::post::explain_post;
use crate::{Context, Explanation, MemoryReport, NotMemory, Verdict};

/// How much is gathered before it is searched.
const PIECE: usize = 3 << 19;
/// How much stays back for the lines that go on with a message.
const AHEAD: usize = 16 << 10;
/// How much before a message is looked at.
const BEFORE: usize = 64 << 10;
/// How far around the bare end of a process its reason may stand.
const AROUND_END: usize = 2 << 10;
/// How far above a message a manual that it stands in may begin.
const ABOVE: usize = 2 << 10;
/// How much below a message without a stack above it is looked at for one.
const BELOW: usize = 4 << 10;
/// The beginning of a log tells of versions, settings and the model.
const HEAD: u64 = 256 << 10;
/// How many events are kept, the last ones.
const MOST_EVENTS: usize = 200;
/// So many messages in one piece are a flood.
const FLOOD: usize = 1000;
/// How much of a piece in a flood is read, at its end: room for more events than are kept.
const TAIL: usize = 192 << 10;
/// 64 TiB: more than any device has, so a size above it was never meant.
const LARGEST_REQUEST: u64 = 64 << 40;
/// 64 PiB: more than a process can address.
const LARGEST_HEAP: u64 = 64 << 50;
/// What follows a request that was refused and not asked about.
const SEGMENTATION_FAULT: &str = "Segmentation fault";
/// How much of a line is kept.
const LONGEST_MESSAGE: usize = 1200;

/// Explains every out-of-memory event of a log, the last one first.
#[must_use]
pub fn explain(log: &[u8], context: &Context) -> Vec<Verdict> {
    let mut investigation = Investigation::default();
    investigation.feed(log);
    investigation.finish(context).verdicts
}

/// What a page about errors shows is nobody's error.
fn without_examples(explanation: Explanation, likeness: PageLikeness) -> Explanation {
    match explanation.verdicts.first() {
        Some(verdict) if likeness == PageLikeness::Page => {
            let not_memory =
                NotMemory { line: verdict.line, kind: LookAlike::Mentioned, text: verdict.message.clone() };
            Explanation { verdicts: Vec::new(), events: 0, not_memory: Some(not_memory), ..explanation }
        }
        _ => explanation,
    }
}

/// What a text may only quote is less sure than the figures say.
fn doubt(mut explanation: Explanation, likeness: PageLikeness) -> Explanation {
    if likeness == PageLikeness::Perhaps {
        for verdict in explanation.verdicts.iter_mut().filter(|verdict| verdict.certainty > QUOTED) {
            verdict.certainty = QUOTED;
            verdict.evidence.push(MAY_BE_QUOTED.to_owned());
        }
    }
    explanation
}

/// How sure a cause is at most where the text around it may be a page.
const QUOTED: f64 = 0.75;
const MAY_BE_QUOTED: &str =
    "the text around it reads like a page or a change about such errors: it may only quote this one";

/// A log that is taken piece by piece and explained at the end.
///
/// Memory is bounded, whatever the log is: the pieces, the last 200 events, and what the log says of its settings.
#[derive(Debug, Default)]
pub struct Investigation {
    decoder: TextDecoder,
    buffer: Vec<u8>,
    /// Where the buffer begins in the log.
    base: u64,
    /// Where in the buffer the search goes on.
    from: usize,
    /// Lines that end before that place.
    lines: u64,
    events: VecDeque<Event>,
    found: u64,
    /// Whether the piece before was full of messages.
    is_flooded: bool,
    /// Whether messages were left out because there are too many.
    is_cut: bool,
    printout: Printout,
    /// How far of the log was looked at for facts.
    noted: u64,
    /// Where the last message ends.
    last_end: u64,
    step: Option<u64>,
    time: Option<String>,
    not_memory: Option<NotMemory>,
    /// Whether an event has named its rank.
    is_of_ranks: bool,
    ranks: RankNotes,
}

impl Investigation {
    /// Takes the next bytes of the log, cut anywhere.
    pub fn feed(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(PIECE) {
            self.buffer.extend_from_slice(&self.decoder.decode(piece));
            let waiting = &self.buffer[self.from..];
            if waiting.len() >= PIECE {
                // Up to a line's end that has enough text behind it.
                let latest = waiting.len() - AHEAD;
                self.search(memrchr(b'\n', &waiting[..latest]).map_or(latest, |newline| newline + 1));
            }
        }
    }

    /// Ends the log and explains what was found, the last event first.
    #[must_use]
    pub fn finish(mut self, context: &Context) -> Explanation {
        self.buffer.extend(self.decoder.finish());
        let is_post = self.base == 0 && self.from == 0 && self.buffer.len() <= LONGEST_POST;
        let explain = |text: &str| Self { buffer: text.as_bytes().to_vec(), ..Self::default() }.conclude(context);
        if !is_post {
            let end = self.last_objects(&explain);
            let whole = self.conclude(context);
            return match end {
                Some(end) => with_end(whole, end),
                None => whole,
            };
        }
        let post = String::from_utf8_lossy(&self.buffer);
        let explain = |text: &str| without_examples(explain(text), page_likeness(text));
        let likeness = page_likeness(&post);
        doubt(without_examples(explain_post(&post, &explain), likeness), likeness)
    }

    /// What the end of a long log says, where it is of JSON objects.
    fn last_objects(&self, explain: &dyn Fn(&str) -> Explanation) -> Option<Explanation> {
        let start = begin_of_end(&self.buffer)?;
        let lines = |range: &[u8]| memchr_iter(b'\n', range).count() as u64;
        let above = match start.checked_sub(self.from) {
            Some(_) => self.lines + lines(&self.buffer[self.from..start]),
            None => self.lines - lines(&self.buffer[start..self.from]),
        };
        explain_end(&String::from_utf8_lossy(&self.buffer[start..]), above, explain)
    }

    fn conclude(mut self, context: &Context) -> Explanation {
        self.search(self.buffer.len() - self.from);
        if self.events.is_empty() {
            self.take_last_resort();
        }
        let end = self.buffer.len().saturating_sub(BEFORE).max(self.last_end.saturating_sub(self.base) as usize);
        let sequel = String::from_utf8_lossy(&self.buffer[end.min(self.buffer.len())..]).into_owned();
        self.drop_what_is_of_another_run(&sequel);
        if self.events.is_empty() {
            self.not_memory = self.not_memory.take().or_else(|| self.resembles());
        }
        self.printout.note_end(&sequel);
        self.printout.note_configs(&context.configs);
        self.events.iter_mut().for_each(|event| event.settle(&self.printout.cards));
        take_reports(&mut self.events, &context.reports);
        let ranks = self.ranks.errors(&self.events);
        // Of ranks that failed together the first is the one to look at.
        if let Some((index, _)) = &ranks
            && let Some(first) = self.events.remove(*index)
        {
            self.events.push_back(first);
        }
        let mut verdicts: Vec<Verdict> =
            self.events.iter().rev().map(|event| verdict(event, &self.printout, context)).collect();
        if let Some(last) = verdicts.first_mut().filter(|_| ranks.is_none()) {
            last.ended_by = other_end(&sequel, goes_on);
            if let Some(error) = &last.ended_by {
                last.certainty = last.certainty.min(GOT_OVER);
                last.evidence.insert(0, format!("the run got over it and went on; another error ended it: {error}"));
            }
        }
        if let (Some(last), Some((_, ranks))) = (verdicts.first_mut(), ranks) {
            last.ranks = Some(ranks);
        }
        Explanation { verdicts, events: self.found, has_more: self.is_cut, not_memory: self.not_memory }
    }

    /// Drops events that the rest of the log shows to be something else: those that a run got over and ended well after, quoted ones
    /// above a newer log, the kernel's notes above an error that has nothing to do with them, and a library that found its device
    /// stopped by an assertion.
    fn drop_what_is_of_another_run(&mut self, sequel: &str) {
        let is_log = |line: &&str| !line.trim_start().starts_with('>') && time(line).is_some();
        let has_steps = goes_on(sequel.as_bytes());
        let goes_on = sequel.lines().filter(is_log).nth(1).is_some();
        let ended_well = ends_well(sequel);
        let ends_otherwise = || tracebacks(sequel.as_bytes()).any(|traceback| traceback.kind == TracebackKind::Error);
        let mut signs = self.printout.signs.clone();
        signs.note(sequel);
        let is_asserted = || signs.has(Sign::DeviceAssertion);
        while let Some(last) = self.events.back() {
            let is_of_kernel =
                matches!(last.oom.source, Source::Kernel | Source::Cgroup) && !last.oom.processes.is_empty();
            let kind = match () {
                () if ended_well || is_first_try(&last.oom) && has_steps => LookAlike::Attempt,
                () if goes_on && last.message.starts_with('>') => LookAlike::Mentioned,
                () if is_of_kernel && (ends_otherwise() || self.is_of_another_day(last)) => LookAlike::OtherProgram,
                () if is_vague(&last.oom) && is_asserted() => LookAlike::IllegalAccess,
                () => return,
            };
            self.not_memory = Some(NotMemory { line: last.line, kind, text: last.message.clone() });
            self.found -= 1;
            self.events.pop_back();
        }
    }

    /// Whether what the log says around a note of the kernel shows it to be of another day or another program.
    fn is_of_another_day(&self, event: &Event) -> bool {
        let victim = event.oom.processes.first().and_then(|process| process.name.as_deref());
        let end = event.end.saturating_sub(self.base) as usize;
        let (before, after) = self.buffer.split_at(end.min(self.buffer.len()));
        is_of_another_day(&event.message, victim, &String::from_utf8_lossy(before), &String::from_utf8_lossy(after))
    }

    /// Searches so much of what is gathered.
    fn search(&mut self, limit: usize) {
        let waiting = &self.buffer[self.from..];
        let mut found = Vec::new();
        let mut consumed = limit;
        let tail = tail_of(waiting, limit);
        let mut is_flood = self.is_flooded && tail > 0;
        if !is_flood {
            let is_post = self.base == 0 && self.buffer.len() <= LONGEST_POST;
            let messages = if is_post { scan_post(waiting) } else { scan(waiting) };
            for message in messages {
                if message.range.start >= limit {
                    break;
                }
                consumed = consumed.max(message.range.end);
                found.push(message);
                is_flood = found.len() == FLOOD && found[FLOOD - 1].range.end < tail;
                if is_flood {
                    break;
                }
            }
        }
        // Of a flood only the last messages are kept, so only they are read.
        if is_flood {
            let lines = memchr_iter(b'\n', &waiting[..tail]).count();
            let messages = scan(&waiting[tail..]).map(|message| OomHit {
                line: message.line + lines,
                range: message.range.start + tail..message.range.end + tail,
                ..message
            });
            let before = found.len();
            found.extend(messages.take_while(|message| message.range.start < limit));
            consumed = found.last().map_or(limit, |last| limit.max(last.range.end));
            self.is_flooded = found.len() - before >= MOST_EVENTS;
            self.is_cut = true;
        }
        let head_end = HEAD.min(self.base + (self.from + consumed) as u64);
        if self.noted < head_end {
            let start = self.noted.saturating_sub(self.base) as usize;
            let text = String::from_utf8_lossy(&self.buffer[start..(head_end - self.base) as usize]);
            self.printout.note(&text);
            self.noted = head_end;
        }
        for message in found {
            self.take(message);
        }
        // Errors of others are told of beside an error whose rank is known.
        if self.events.iter().any(|event| !event.ranks.is_empty()) {
            let is_first = !std::mem::replace(&mut self.is_of_ranks, true);
            // Streams of ranks are not in order: what another says of the first error may stand before it.
            let start = if is_first { self.from.saturating_sub(BEFORE) } else { self.from };
            let above = memchr_iter(b'\n', &self.buffer[start..self.from]).count() as u64;
            self.ranks.note(&self.buffer[start..self.from + consumed], self.lines + 1 - above);
        }
        self.lines += memchr_iter(b'\n', &self.buffer[self.from..self.from + consumed]).count() as u64;
        self.from += consumed;
        if self.from > BEFORE {
            let gone = self.from - BEFORE;
            self.buffer.drain(..gone);
            self.base += gone as u64;
            self.from = BEFORE;
        }
    }

    fn take(&mut self, message: OomHit) {
        let line = self.lines + message.line as u64;
        let range = self.from + message.range.start..self.from + message.range.end;
        let (start, end) = (self.base + range.start as u64, self.base + range.end as u64);
        let text = cut(&String::from_utf8_lossy(&self.buffer[range.clone()]));
        let above = &self.buffer[range.start.saturating_sub(ABOVE)..range.start];
        if is_reference(&self.buffer[range.clone()], above) {
            self.not_memory = Some(NotMemory { line, kind: LookAlike::Mentioned, text });
            return;
        }
        if is_corrupted(&message.oom) {
            self.not_memory = Some(NotMemory { line, kind: LookAlike::CorruptedSize, text });
            self.last_end = end;
            return;
        }
        if let Some(kind) = is_bare_end(&message.oom).then(|| self.ended_otherwise(&range)).flatten() {
            self.not_memory = Some(NotMemory { line, kind, text });
            return;
        }
        let below = &self.buffer[range.end..(range.end + AROUND_END).min(self.buffer.len())];
        if is_probe(&String::from_utf8_lossy(below)) {
            self.not_memory = Some(NotMemory { line, kind: LookAlike::Attempt, text });
            self.last_end = end;
            return;
        }
        let rank = self.rank_of(&range);
        if self.events.back().is_some_and(|event| event.takes(&message.oom, start)) {
            let between = self.before(range.start);
            self.printout.note_between(&between);
            let event = self.events.back_mut().expect("there is one that takes it");
            event.take_rank(rank);
            // What is raised from an error of a library's own goes through the program.
            let lacks_program = !event.circumstances.frames.iter().any(is_own);
            if (event.take(message.oom, line, text, end) || lacks_program) && !between.trim().is_empty() {
                event.circumstances.deepen(&between);
            }
            self.last_end = end;
            return;
        }
        let mut before = self.before(range.start);
        before.push_str(&besides_error(&text));
        if self.noted < start {
            self.printout.note(&before);
            self.noted = start;
        }
        // Of messages in a row, as ranks write them, only the first has something before it.
        let mut circumstances = match (before.trim().is_empty(), self.events.back()) {
            (true, Some(event)) => event.circumstances.clone(),
            (true, None) => Circumstances::default(),
            (false, _) => Circumstances::read(&before),
        };
        if circumstances.frames.is_empty() {
            let below = &self.buffer[range.end..(range.end + BELOW).min(self.buffer.len())];
            circumstances.take_stack_below(&String::from_utf8_lossy(below));
        }
        // A message far behind the last step has it all the same.
        self.step = circumstances.step.or(self.step);
        self.time = time(&text).map(str::to_owned).or_else(|| circumstances.time.take()).or_else(|| self.time.take());
        circumstances.step = self.step;
        circumstances.time.clone_from(&self.time);
        self.found += 1;
        if self.events.len() == MOST_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(Event {
            line,
            message: text,
            oom: message.oom,
            circumstances,
            also: Vec::new(),
            end,
            report: None,
            ranks: rank.into_iter().collect(),
        });
        self.last_end = end;
    }

    /// The rank that wrote a message, by the line it begins in.
    fn rank_of(&self, range: &Range<usize>) -> Option<u64> {
        let start = memrchr(b'\n', &self.buffer[..range.start]).map_or(0, |newline| newline + 1);
        let line = self.buffer[start..range.end].split(|byte| *byte == b'\n').next()?;
        rank(&cut(&String::from_utf8_lossy(line)))
    }

    /// Takes what the end of a log says in words that no family knows, unless it shows something else that went wrong, or goes on.
    fn take_last_resort(&mut self) {
        let tail = self.buffer.len().saturating_sub(BEFORE);
        let start = memchr(b'\n', &self.buffer[tail..]).filter(|_| tail > 0).map_or(tail, |newline| tail + newline + 1);
        let end = &self.buffer[start..];
        let Some(message) = scan_post(end).last().or_else(|| scan_last_resort(end)) else { return };
        let is_other =
            |found: &NotMemory| found.kind != LookAlike::Mentioned && !found.text.contains(SEGMENTATION_FAULT);
        if self.not_memory.as_ref().is_some_and(is_other) || self.resembles().as_ref().is_some_and(is_other) {
            return;
        }
        if goes_on(&self.buffer[start + message.range.end..]) {
            return;
        }
        // As if the search had come to that text only now.
        let end = (self.from, self.lines);
        self.lines -= memchr_iter(b'\n', &self.buffer[start..self.from]).count() as u64;
        self.from = start;
        self.take(message);
        (self.from, self.lines) = end;
    }

    /// The text before a place, no further back than the last message, so that all together is read once.
    fn before(&self, at: usize) -> String {
        let last = self.last_end.saturating_sub(self.base) as usize;
        let start = at.saturating_sub(BEFORE).max(last.min(at));
        String::from_utf8_lossy(&self.buffer[start..at]).into_owned()
    }

    /// What the lines around a bare end of a process tell of why it ended, where that is not its memory.
    fn ended_otherwise(&self, range: &Range<usize>) -> Option<LookAlike> {
        let start = range.start.saturating_sub(AROUND_END).max(self.last_end.saturating_sub(self.base) as usize);
        let end = (range.end + AROUND_END).min(self.buffer.len());
        ended_otherwise(&String::from_utf8_lossy(self.buffer.get(start..end)?))
    }

    /// What the end of a log without any event looks like.
    fn resembles(&self) -> Option<NotMemory> {
        let start = self.buffer.len().saturating_sub(BEFORE);
        let text = String::from_utf8_lossy(&self.buffer[start..]);
        let last_line = self.lines + u64::from(!self.buffer.is_empty() && !self.buffer.ends_with(b"\n"));
        let mut mentioned = None;
        for (index, line) in text.lines().rev().enumerate() {
            let number = last_line.saturating_sub(index as u64).max(1);
            let found = |kind| Some(NotMemory { line: number, kind, text: cut(line) });
            match look_alike(&cut(line)) {
                Some(LookAlike::Mentioned) if mentioned.is_none() => mentioned = found(LookAlike::Mentioned),
                Some(LookAlike::Mentioned) | None => {}
                Some(kind) => return found(kind),
            }
        }
        mentioned
    }
}

/// Gives each event what its process wrote down of it, the last event first; a report is of one event alone.
fn take_reports(events: &mut VecDeque<Event>, reports: &[MemoryReport]) {
    let mut left: Vec<usize> = (0..reports.len()).collect();
    // Of ranks that asked for the same, the one that ended by it.
    left.sort_by_key(|index| !reports[*index].is_fatal);
    for event in events.iter_mut().rev() {
        let Some(place) = left.iter().position(|index| reports[*index].is_of(&event.oom)) else { continue };
        let index = left.remove(place);
        event.take_report(index, &reports[index].frames);
    }
}

/// What programs say when a training is over that was to be.
const TRAINED: [&str; 2] = ["'train_runtime'", "`trainer.fit` stopped"];
/// The same in words that a shell says of any end.
const ENDED: [&str; 7] = [
    "training finished",
    "training complete",
    "training done",
    "finished training",
    "done training",
    "completed training",
    "end of training",
];
/// What programs say when they have built or loaded what they were to, or got over an error.
const BUILT: [&str; 9] = [
    "retrying with tiling",
    "engine generation completed",
    "engine built in",
    "saved engine",
    "application startup complete",
    "server is listening on",
    "the server is fired up",
    "llama runner started in",
    "] model loaded",
];

/// Whether a text shows a run that went on and came to its end.
fn ends_well(sequel: &str) -> bool {
    let lower = sequel.to_lowercase();
    let has = |phrases: &[&str]| phrases.iter().any(|phrase| lower.contains(phrase));
    let goes_on = || goes_on(sequel.as_bytes());
    let is_over = || has(&TRAINED) || has(&ENDED) && !stops_midway(sequel);
    let fails = || lower.contains("traceback (most recent") || lower.contains("with error");
    (has(&BUILT) || is_over() && goes_on()) && !fails()
}

/// Whether the last bar of a training that a text shows has not come to its end.
fn stops_midway(sequel: &str) -> bool {
    let count = |line: &str| bar(line.as_bytes())?.steps();
    sequel.split(['\n', '\r']).rev().find_map(count).is_some_and(|(done, all)| done < all)
}

/// Whether a text shows steps of a run.
fn goes_on(sequel: &[u8]) -> bool {
    steps(sequel).next().is_some() || sequel.split(|byte| *byte == b'\n').any(shows_progress)
}

/// What a line says besides its error: the traceback that a logger put into a JSON string with it, or the progress bar
/// that it broke into.
fn besides_error(line: &str) -> String {
    let bar = || bar(line.as_bytes()).map(|bar| String::from_utf8_lossy(bar.text).into_owned());
    traceback_in_json(line).or_else(bar).unwrap_or_default()
}

/// Where the last part of a piece begins that is read however many messages there are: at the start of a line.
fn tail_of(waiting: &[u8], limit: usize) -> usize {
    let latest = limit.saturating_sub(TAIL);
    memrchr(b'\n', &waiting[..latest]).map_or(0, |newline| newline + 1)
}

/// Whether only the end of a process is told, and not why.
fn is_bare_end(oom: &Oom) -> bool {
    oom.source == Source::ExitStatus || oom.source == Source::DataWorker && oom.certainty == Certainty::Slight
}

/// Whether TensorFlow asked the driver for nearly all of a device: refused, it asks for less.
fn is_first_try(oom: &Oom) -> bool {
    oom.engine == Engine::Tensorflow && oom.source == Source::Runtime && oom.certainty <= Certainty::Possible
}

/// Whether a library says no more than that it could not begin, or somebody only tells in words of his own.
fn is_vague(oom: &Oom) -> bool {
    let is_told = oom.engine == Engine::Unknown && oom.source == Source::Heap && oom.requested.is_none();
    (matches!(oom.source, Source::Blas | Source::Dnn) || is_told) && oom.certainty <= Certainty::Possible
}

fn is_corrupted(oom: &Oom) -> bool {
    let largest = if oom.place == Place::Device { LARGEST_REQUEST } else { LARGEST_HEAP };
    oom.requested.is_some_and(|bytes| bytes.get() > largest)
}

fn cut(text: &str) -> String {
    text.trim().chars().take(LONGEST_MESSAGE).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_that_stopped_midway_is_no_end() {
        let half = "  5%|▌         | 500/10000 [02:24<45:46,  3.46it/s]\nDone training the model in: results\n";
        assert!(!ends_well(half));
        assert!(ends_well(
            "100%|██████████| 10000/10000 [48:24<00:00,  3.46it/s]\nDone training the model in: results\n"
        ));
        assert!(ends_well(&half.replace("Done training", "`Trainer.fit` stopped: max_steps reached;")));
    }
}
