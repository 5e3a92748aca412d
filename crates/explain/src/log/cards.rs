//! What a log says of the cards: tables of them, their size, which are used, and how servers and pools share them out.
//!
//! What else a log says of the cards (`explain/log/cards.rs`, `log/card_table.rs`) fills what a message leaves out:
//! tables of `nvidia-smi` and `gpustat`, the size of a card as servers print it, the pool of TensorFlow and XLA, the
//! share of a server. A table above the error shows others; one below it may show ourselves.

use lowtide_core::Bytes;
use lowtide_log::{CardProcess, CardRow, CardTable};
use lowtide_oom::Sieve;

use super::narrative::is_of;

/// What a log says of the cards.
#[derive(Debug, Clone, Default)]
pub(crate) struct CardFacts {
    table: CardTable,
    /// Cards that the program may use, by the driver's numbers.
    visible: Option<Vec<u32>>,
    /// What a card has, as a program prints it.
    pub(crate) total: Option<Bytes>,
    /// What was free of it when the program found it, as TensorFlow prints it.
    pub(crate) free_at_start: Option<Bytes>,
    /// What was free of it before a server brought its weights, as sglang prints it.
    pub(crate) free_before_weights: Option<Bytes>,
    /// What is left of a server's share for the cache of keys and values.
    pub(crate) cache: Option<Bytes>,
    /// The pool of TensorFlow or XLA.
    pub(crate) pool: Option<Pool>,
    /// What a server planned to put onto a card.
    pub(crate) plan: Option<Plan>,
    open_limit: Option<u64>,
    /// Whether a table has no process.
    lists_nobody: bool,
    /// Cards that were full in a table before the last message: of others, for the program had not failed yet.
    full_before: Vec<u32>,
}

/// A pool with a limit of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pool {
    pub(crate) limit: Bytes,
    pub(crate) in_use: Bytes,
}

/// What ollama reckons before it loads a model: the whole of it, the part that is to be on the card, and what the card has to give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) whole: Bytes,
    pub(crate) part: Bytes,
    pub(crate) available: Bytes,
}

impl Plan {
    /// `memory.available="[7.4 GiB]" memory.required.full="22.9 GiB" memory.required.partial="7.3 GiB"`
    fn read(line: &str) -> Option<Self> {
        let named = |name: &str| after(line, name).and_then(size);
        Some(Self {
            whole: named("memory.required.full=\"")?,
            part: named("memory.required.partial=\"")?,
            available: named("memory.available=\"[")?,
        })
    }
}

impl Pool {
    /// Whether somebody set the limit: what a pool finds free by itself is no whole number of MiB.
    pub(crate) const fn is_set(self) -> bool {
        self.limit.get().is_multiple_of(1 << 20)
    }
}

/// What a server has for its cache.
const CACHES: [&str; 3] = ["kv_cache_size=", "reserved for KV Cache is ", "Available KV cache memory: "];
/// Whatever else a line has that says something of the cards.
const OTHERS: [&str; 19] = [
    "No running processes found",
    "VISIBLE_DEVICES",
    "G total, ",
    " VRAM available",
    "MiB /",
    "VRAM Total",
    " bytes total.",
    "total_gpu_memory",
    ", VRAM: ",
    "memory.available=",
    " MB memory)",
    "GPU ",
    "Load weight begin",
    "freeMemory: ",
    "Free memory: ",
    "totalMemory: ",
    "Total memory: ",
    "Limit:",
    "InUse:",
];
/// All of these.
static WORDS: Sieve = Sieve::new(|| [&CACHES[..], &OTHERS].concat());

/// A card with no more in use than a driver and a desktop take is free.
const UNUSED_MIB: u64 = 600;

impl CardFacts {
    /// Looks at a line of the log.
    pub(crate) fn note(&mut self, line: &str) {
        self.table.note(line);
        if WORDS.passes(line) {
            self.note_words(line);
        } else {
            self.open_limit = None;
        }
    }

    fn note_words(&mut self, line: &str) {
        self.lists_nobody |= line.contains("No running processes found");
        if let Some(rest) = after(line, "VISIBLE_DEVICES") {
            self.visible = devices(rest).or_else(|| self.visible.take());
        }
        for name in CACHES {
            self.cache = after(line, name).and_then(size).or(self.cache);
        }
        self.total = total(line).or(self.total);
        let begins = || after(line, "Load weight begin. avail mem=").and_then(size);
        self.free_before_weights = self.free_before_weights.or_else(begins);
        let named = |name: &str| after(line, name).and_then(size);
        // Older versions have a line for each, and no blank before the unit as those have who print the machine's.
        let own = |name: &str| {
            let value = line.trim_start().strip_prefix(name)?;
            size(value).filter(|_| value.trim_end().ends_with("iB") && !value.trim_end().contains(' '))
        };
        self.free_at_start = named("freeMemory: ").or_else(|| own("Free memory: ")).or(self.free_at_start);
        self.total = named("totalMemory: ").or_else(|| own("Total memory: ")).or(self.total);
        self.plan = Plan::read(line).or(self.plan);
        self.note_pool(line);
    }

    /// Takes what the tables show so far for what was before the last message.
    pub(crate) fn end_before(&mut self) {
        let full = self.table.cards.iter().filter(|card| card.least_used_mib >= card.total_mib / 20 * 17);
        self.full_before = full.map(|card| card.index).collect();
    }

    /// Whether a table before the last message shows a device full.
    pub(crate) fn was_full(&self, device: Option<u32>) -> bool {
        self.full_before.contains(&self.physical(device.unwrap_or_default()))
    }

    /// `Limit: 1073741824` and, in the next line, `InUse: 1051624448`.
    fn note_pool(&mut self, line: &str) {
        let whole = |name: &str| after(line, name)?.trim().parse::<u64>().ok();
        if let Some(limit) = whole("Limit:") {
            self.open_limit = Some(limit);
        } else if let (Some(in_use), Some(limit)) = (whole("InUse:"), self.open_limit.take()) {
            self.pool = Some(Pool { limit: Bytes(limit), in_use: Bytes(in_use) });
        }
    }

    /// The driver's number of a device that the program counts among those it may use.
    fn physical(&self, device: u32) -> u32 {
        self.visible.as_ref().and_then(|visible| visible.get(device as usize)).copied().unwrap_or(device)
    }

    /// The row of a device in a table; the first device where none is named, for that is the one used then.
    pub(crate) fn card(&self, device: Option<u32>) -> Option<CardRow> {
        let index = self.physical(device.unwrap_or_default());
        match &*self.table.cards {
            [card] if device.is_none() => Some(*card),
            cards => cards.iter().find(|card| card.index == index).copied(),
        }
    }

    /// The processes on a device in a table.
    pub(crate) fn processes(&self, device: Option<u32>) -> impl Iterator<Item = &CardProcess> {
        let index = self.physical(device.unwrap_or_default());
        self.table.processes.iter().filter(move |process| process.card == index)
    }

    /// Cards that a table shows unused, other than the device, and no smaller.
    pub(crate) fn free_cards(&self, device: Option<u32>) -> Vec<u32> {
        let own = self.card(device);
        let is_free = |card: &&CardRow| {
            card.used_mib <= UNUSED_MIB.max(card.total_mib / 20)
                && own.is_none_or(|own| own.index != card.index && card.total_mib >= own.total_mib / 10 * 9)
        };
        self.table.cards.iter().filter(is_free).map(|card| card.index).collect()
    }

    /// Whether a table says that no process is on any card.
    pub(crate) fn lists_nobody(&self) -> bool {
        self.lists_nobody && self.table.processes.is_empty()
    }

    /// Whether so many processes, as a launcher starts on this machine, are more than there are cards, by the log.
    pub(crate) fn has_too_few_cards(&self, launched: Option<u64>) -> bool {
        let cards =
            self.visible.as_ref().map(Vec::len).or_else(|| Some(self.table.cards.len()).filter(|count| *count > 0));
        launched.zip(cards).is_some_and(|(processes, cards)| processes > cards as u64)
    }
}

fn after<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.find(name).map(|at| &line[at + name.len()..])
}

/// `=3,4`, `: [0,1]`, `"] = "0"`: numbers of cards behind a name.
fn devices(rest: &str) -> Option<Vec<u32>> {
    let rest = rest.trim_start_matches(['=', ':', ' ', '"', '\'', '[', ']']);
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != ',' && c != ' ').unwrap_or(rest.len());
    // A blank ends the list where it stands before a command.
    let list = rest[..end].split(' ').next().filter(|list| !list.ends_with(',')).unwrap_or(&rest[..end]);
    let cards: Option<Vec<u32>> = list.split(',').map(|card| card.trim().parse().ok()).collect();
    cards.filter(|cards| cards.len() <= 64)
}

/// The number behind a name: `=0.33`, ` 8`, `': 0.9`, ` (0.90)`.
fn number(rest: &str) -> Option<f64> {
    let rest = rest.trim_start_matches(['=', ':', ' ', '"', '\'', '(']);
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    rest[..end].trim_end_matches('.').parse().ok()
}

/// The size at the start of a text, in steps of 1024 whatever it is called.
pub(super) fn size(rest: &str) -> Option<Bytes> {
    let rest = rest.trim_start_matches([' ', '(', '*', ':']);
    let number = number(rest)?;
    let unit = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').trim_start();
    let power = match unit.chars().next() {
        Some('K' | 'k') => 10,
        Some('M') => 20,
        Some('G') => 30,
        _ => 0,
    };
    let bytes = number * (1_u64 << power) as f64;
    (bytes >= 1.0 && bytes < (1_u64 << 46) as f64).then_some(Bytes(bytes as u64))
}

/// What a card has: `6144 MiB VRAM available`, `VRAM Total: 12884443136`, `23.99G total, `, `total_gpu_memory=23.58GiB`.
fn total(line: &str) -> Option<Bytes> {
    let card = line.split_once("G total, ").map(|(head, _)| &line[..head.len() + 1]);
    if let Some(head) = line.split_once(" VRAM available").map(|(head, _)| head).or(card) {
        let (rest, unit) = head.rsplit_once(' ')?;
        let number = rest.rsplit(' ').next().unwrap_or_default();
        return size(unit).or_else(|| size(&format!("{number} {unit}")));
    }
    let named = |name: &str| after(line, name).and_then(size);
    if let Some((used, all)) = line.split_once("MiB /").filter(|_| line.trim_end().ends_with("MiB")) {
        // A cell of nvidia-smi's table by itself.
        return used.trim().bytes().all(|byte| byte.is_ascii_digit()).then(|| size(all)).flatten();
    }
    if line.contains("VRAM Total") {
        return named("VRAM Total").filter(|_| !line.contains("Torch VRAM"));
    }
    // What GPUtil's users print in notebooks.
    if line.contains("GPU RAM Free: ") {
        return named("| Total ");
    }
    if let Some((head, _)) = line.split_once(" bytes total.") {
        return size(head.rsplit(' ').next()?);
    }
    let server =
        ["total_gpu_memory=", "total_gpu_memory (", ", VRAM: ", "memory.available=\"["].into_iter().find_map(named);
    let tensorflow = || named(" with ").filter(|_| line.contains(" MB memory)"));
    let listed = || {
        let rest = line.split_once("GPU ")?.1.trim_start_matches(|c: char| c.is_ascii_digit()).strip_prefix(": ")?;
        size(rest).filter(|_| !is_of_use(rest))
    };
    server.or_else(tensorflow).or_else(|| listed().filter(|size| *size >= Bytes::from_gib(1)))
}

/// `5.31 GB allocated`, `3.1 GiB / 24 GiB used`: a size that says how much of a card is in use or free.
fn is_of_use(size: &str) -> bool {
    let mut words = size.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| word.len() > 3).take(2);
    words.any(|word| is_of(USE, &word.to_ascii_lowercase()))
}

/// What is said of a part of a card.
const USE: &[&str] = &["allocated", "reserved", "cached", "used", "usage", "free", "available", "active", "peak"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::lines_of_threads;

    fn facts(text: &str) -> CardFacts {
        let mut facts = CardFacts::default();
        text.lines().for_each(|line| facts.note(line));
        facts
    }

    #[test]
    fn a_line_without_the_words_says_nothing() {
        for line in lines_of_threads() {
            let mut facts = CardFacts::default();
            facts.note_words(&line);
            let says_something = format!("{facts:?}") != format!("{:?}", CardFacts::default());
            assert!(WORDS.is_match(&line) || !says_something, "{line}");
        }
    }

    #[test]
    fn sizes_of_cards() {
        for (line, mib) in [
            ("llama.go:239: 6144 MiB VRAM available, loading up to 35 GPU layers", 6144),
            ("llama.go:292: 39320 MB VRAM available, loading up to 101 GPU layers", 39320),
            ("  - **VRAM Total:** 12884443136", 12287),
            ("AutoBatch: CUDA:0 (NVIDIA GeForce RTX 4090) 23.99G total, 0.22G reserved", 24565),
            ("Memory profiling results: total_gpu_memory=23.58GiB initial_memory_usage=15.34GiB", 24145),
            ("cuda_dnn.cc:443] Memory usage: 52690944 bytes free, 8361017344 bytes total.", 7973),
            ("msg=\"offload to cuda\" memory.available=\"[15.4 GiB]\" memory.gpu_overhead=\"0 B\"", 15769),
            ("Created TensorFlow device (/device:GPU:0 with 7208 MB memory) -> physical GPU (device: 0)", 7208),
            ("[INFO] GPU 0: 24 GB, gpu_memory_utilization=0.33, model=Qwen-7B", 24576),
            ("2389MiB /  4042MiB", 4042),
            ("GPU RAM Free: 7611MB | Used: 0MB | Util   0% | Total 7611MB", 7611),
            ("  Device 0: NVIDIA GeForce RTX 3090, compute capability 8.6, VMM: yes, VRAM: 24151 MiB", 24151),
        ] {
            assert_eq!(facts(line).total.map(|total| total.get() >> 20), Some(mib), "{line}");
        }
        assert_eq!(facts("  - **Torch VRAM Total:** 1174405120").total, None);
        for line in [
            "GPU 0: NVIDIA A100-SXM4-80GB",
            "GPU 0: 5.31 GB allocated, 5.9 GB reserved",
            "GPU 1: 20.1 GiB of memory used",
            "GPU 0: 12.00 GiB free",
        ] {
            assert_eq!(facts(line).total, None, "{line}");
        }
        for line in ["Total memory: 64.0 GB", "Free memory: 12.5 GiB", "Total memory: 65536 MB"] {
            let facts = facts(line);
            assert_eq!((facts.total, facts.free_at_start), (None, None), "{line}");
        }
        for text in ["Total memory: 8.00GiB\nFree memory: 512.00MiB\n", "totalMemory: 8.00GiB freeMemory: 512.00MiB\n"]
        {
            let facts = facts(text);
            assert_eq!((facts.total, facts.free_at_start), (Some(Bytes::from_gib(8)), Some(Bytes::from_mib(512))));
        }
    }

    #[test]
    fn cards_that_are_used_and_free() {
        let table = "index, memory.used [MiB], memory.total [MiB]\n0, 40000 MiB, 40960 MiB\n3, 39000 MiB, 40960 MiB\n\
                     4, 7 MiB, 40960 MiB\n5, 3 MiB, 8192 MiB\n";
        let facts = facts(&format!("$ CUDA_VISIBLE_DEVICES=3,4 torchrun --nproc_per_node=4 t.py\n{table}"));
        assert_eq!(facts.card(Some(0)).map(|card| card.used_mib), Some(39000));
        assert_eq!(facts.free_cards(Some(0)), [4]);
        assert!(facts.has_too_few_cards(Some(4)) && !facts.has_too_few_cards(Some(2)));
        assert_eq!(devices(": [0,1,2]"), Some(vec![0, 1, 2]));
        assert_eq!(devices("\"] = \"1\""), Some(vec![1]));
        assert_eq!(devices("= ''"), None);
    }

    #[test]
    fn plans_of_servers() {
        let line = "msg=\"offload to cuda\" memory.available=\"[7.5 GiB]\" memory.required.full=\"22.0 GiB\" \
                    memory.required.partial=\"7.0 GiB\"";
        let plan = facts(line).plan.unwrap();
        assert_eq!((plan.whole, plan.part), (Bytes::from_gib(22), Bytes::from_gib(7)));
        assert_eq!(plan.available, Bytes::from_mib(7680));
    }

    #[test]
    fn pools_and_caches() {
        let facts = facts(
            "I Stats: \nLimit:                      1073741824\nInUse:                      1051624448\n\
                           kv_cache_size=2.89GiB\n",
        );
        let pool = facts.pool.unwrap();
        assert_eq!((pool.limit, pool.in_use, pool.is_set()), (Bytes(1 << 30), Bytes(1_051_624_448), true));
        assert_eq!(facts.cache.map(|cache| cache.get() >> 20), Some(2959));
    }
}
