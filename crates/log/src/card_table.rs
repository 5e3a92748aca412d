//! Tables of cards, as `nvidia-smi` and `gpustat` draw them: what each card has, and who holds it.

use crate::line::without_margin;

/// The cards of a machine and the processes on them, by the last table that shows each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CardTable {
    /// The cards, in the order of the table.
    pub cards: Vec<CardRow>,
    /// The processes on them.
    pub processes: Vec<CardProcess>,
    /// The card whose figures stand in the next line.
    open: Option<u32>,
    /// The list with commas whose rows come next.
    list: Option<CardList>,
}

/// A list with commas, as `nvidia-smi --query-gpu` prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct CardList {
    /// What whoever collected the lines put before each.
    margin: String,
    /// The column of the card's number; without one, cards stand in its order.
    index: Option<usize>,
    used: usize,
    total: usize,
    /// How many rows were read.
    rows: u32,
}

/// A card and what is in use of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CardRow {
    /// Number of the card, as the driver counts them.
    pub index: u32,
    /// In use, in MiB.
    pub used_mib: u64,
    /// In all, in MiB.
    pub total_mib: u64,
    /// The least in use of all tables that show it, in MiB.
    pub least_used_mib: u64,
}

/// A process on a card.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CardProcess {
    /// Number of the card.
    pub card: u32,
    /// Process id.
    pub pid: u32,
    /// Whether it only draws: a desktop, a browser.
    pub is_graphics: bool,
    /// Name of the program.
    pub name: String,
    /// What it holds, in MiB.
    pub used_mib: Option<u64>,
}

impl CardRow {
    const fn new(index: u32, used_mib: u64, total_mib: u64) -> Self {
        Self { index, used_mib, total_mib, least_used_mib: used_mib }
    }
}

/// More than any machine has.
const MOST_ROWS: usize = 64;

impl CardTable {
    /// Takes the next line of a log; lines that are of no table change nothing.
    pub fn note(&mut self, line: &str) {
        let line = line.trim_start_matches(['>', ' ', '\t']).trim_end();
        if let Some(list) = &mut self.list {
            match list.row(line) {
                Some(row) => return self.put(row),
                None => self.list = None,
            }
        }
        // Whoever collects lines puts something before each.
        let row = line.find('|').filter(|_| line.ends_with('|'));
        if let Some(card) =
            line.contains(" MB |").then(|| line.match_indices('[').find_map(|(at, _)| gpustat(&line[at..]))).flatten()
        {
            self.put(card);
        } else if let Some(at) = row {
            self.note_row(&line[at..]);
        } else if line.contains("memory.used") && line.contains("memory.total") {
            self.list = CardList::open(line);
        }
    }

    fn note_row(&mut self, line: &str) {
        let mut cells = line.trim_matches(['|', ' ']).split('|');
        let (Some(first), second) = (cells.next(), cells.next()) else { return };
        if let Some(second) = second {
            if let Some((used_mib, total_mib)) = used_of_total(second) {
                if let Some(index) = self.open.take() {
                    self.put(CardRow::new(index, used_mib, total_mib));
                }
            } else if second.contains(':') {
                self.open = first.split_whitespace().next().and_then(|word| word.parse().ok());
            }
        } else if let Some(mut process) = process(first)
            && self.processes.len() < MOST_ROWS
        {
            // One that computes and draws may have a row for each.
            let is_same = |known: &&CardProcess| {
                (known.card, known.pid, &known.name) == (process.card, process.pid, &process.name)
            };
            process.is_graphics &= self.processes.iter().find(is_same).is_none_or(|known| known.is_graphics);
            self.processes.retain(|known| (known.card, known.pid) != (process.card, process.pid));
            self.processes.push(process);
        }
    }

    fn put(&mut self, row: CardRow) {
        match self.cards.iter().position(|known| known.index == row.index) {
            Some(known) => {
                let least_used_mib = self.cards[known].least_used_mib.min(row.used_mib);
                self.cards[known] = CardRow { least_used_mib, ..row };
            }
            None if self.cards.len() < MOST_ROWS => self.cards.push(row),
            None => {}
        }
    }
}

/// `   7940MiB /  8112MiB `
fn used_of_total(cell: &str) -> Option<(u64, u64)> {
    let (used, total) = cell.split_once('/')?;
    Some((mib(used)?, mib(total)?))
}

fn mib(text: &str) -> Option<u64> {
    text.trim().strip_suffix("MiB").or_else(|| text.trim().strip_suffix("MB"))?.trim().parse().ok()
}

/// `    0   N/A  N/A      1047      G   /usr/lib/xorg/Xorg                168MiB `
fn process(cell: &str) -> Option<CardProcess> {
    let words: Vec<&str> = cell.split_whitespace().collect();
    let at = words.iter().position(|word| matches!(*word, "C" | "G" | "C+G")).filter(|at| *at >= 2)?;
    let (last, name) = words.get(at + 1..)?.split_last()?;
    Some(CardProcess {
        card: words[0].parse().ok()?,
        pid: words[at - 1].parse().ok()?,
        is_graphics: words[at] == "G",
        name: name.join(" "),
        used_mib: mib(last),
    })
}

/// `[0] NVIDIA GeForce RTX 3090 | 45°C,   0 % |  1234 / 24576 MB | someone(1000M)`
fn gpustat(line: &str) -> Option<CardRow> {
    let (index, rest) = line.strip_prefix('[')?.split_once(']')?;
    let (used, total) = rest.split('|').find_map(|cell| cell.split_once('/'))?;
    Some(CardRow::new(index.parse().ok()?, used.trim().parse().ok()?, mib(total)?))
}

impl CardList {
    /// `index, memory.used [MiB], memory.total [MiB]`, or the command that asks for it without a heading:
    /// `nvidia-smi --query-gpu=index,memory.used,memory.total --format=csv,noheader`.
    fn open(line: &str) -> Option<Self> {
        let (head, names) = match line.split_once("--query-gpu=") {
            Some((head, rest)) => (head, rest.split(' ').next().unwrap_or(rest)),
            // Names have no blank in them, but for a unit behind.
            None => {
                let first = line.split(',').next().unwrap_or_default();
                let name = first.split(" [").next().unwrap_or(first);
                line.split_at(name.rfind(' ').map_or(0, |blank| blank + 1))
            }
        };
        let place = |name: &str| names.split(',').position(|column| column.trim().starts_with(name));
        // Of a command, its prompt and its name are no margin.
        let margin = if names.contains(", ") { head } else { "" };
        Some(Self {
            margin: margin.to_owned(),
            index: place("index"),
            used: place("memory.used")?,
            total: place("memory.total")?,
            rows: 0,
        })
    }

    fn row(&mut self, line: &str) -> Option<CardRow> {
        let line = if self.margin.is_empty() { line } else { without_margin(line, &self.margin)? };
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        let size = |at: usize| cells.get(at).and_then(|cell| mib(cell).or_else(|| cell.parse().ok()));
        let index = match self.index {
            Some(index) => cells.get(index)?.parse().ok()?,
            None => self.rows,
        };
        let row = CardRow::new(index, size(self.used)?, size(self.total)?);
        self.rows += 1;
        Some(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> CardTable {
        let mut table = CardTable::default();
        text.lines().for_each(|line| table.note(line));
        table
    }

    #[test]
    fn nvidia_smi() {
        let table = table(
            "> |   0  GeForce GTX 107...  Off  | 00000000:01:00.0  On |                  N/A |\n\
             > |  0%   61C    P0    58W / 180W |   7940MiB /  8112MiB |      3%      Default |\n\
             > |   1  NVIDIA A100-SXM4-40GB          On  | 00000000:07:00.0 Off |                    0 |\n\
             > | N/A   30C    P0              52W / 400W |      4MiB / 40960MiB |      0%      Default |\n\
             |    0   N/A  N/A      1047      G   /usr/lib/xorg/Xorg                168MiB |\n\
             |    0      2211      C   python train.py      6001MiB |\n\
             |  No running processes found                                                 |\n",
        );
        let cards: Vec<_> = table.cards.iter().map(|card| (card.index, card.used_mib, card.total_mib)).collect();
        assert_eq!(cards, [(0, 7940, 8112), (1, 4, 40960)]);
        let processes: Vec<_> =
            table.processes.iter().map(|process| (process.pid, process.is_graphics, &*process.name)).collect();
        assert_eq!(processes, [(1047, true, "/usr/lib/xorg/Xorg"), (2211, false, "python train.py")]);
        assert_eq!(table.processes[1].used_mib, Some(6001));
    }

    #[test]
    fn one_that_computes_and_draws_is_one_process_that_computes() {
        let row = |kind: &str| format!("|    0   N/A  N/A      2211      {kind}   python                 6001MiB |\n");
        for rows in [[row("C"), row("G")], [row("G"), row("C")]] {
            let table = table(&rows.concat());
            assert_eq!(table.processes.iter().map(|process| process.is_graphics).collect::<Vec<_>>(), [false]);
        }
    }

    #[test]
    fn lists_with_commas_and_gpustat() {
        let table = table(
            "index, memory.used [MiB], memory.total [MiB]\n0, 7 MiB, 40960 MiB\n1, 39000 MiB, 40960 MiB\ndone\n2, 1, 2\n\
             [3] NVIDIA GeForce RTX 3090 | 45°C,   0 % |  1234 / 24576 MB | someone(1000M)\n",
        );
        let cards: Vec<_> = table.cards.iter().map(|card| (card.index, card.used_mib)).collect();
        assert_eq!(cards, [(0, 7), (1, 39000), (3, 1234)]);
    }

    #[test]
    fn lists_behind_a_margin_and_without_a_heading() {
        let rows = |text: &str| {
            let cards = table(text).cards;
            cards.iter().map(|card| (card.index, card.used_mib, card.total_mib)).collect::<Vec<_>>()
        };
        for margin in ["> ", "trainer-1  | ", "[rank3]: ", "3: ", "2026-01-02T03:04:05.123456Z stderr F "] {
            let list = "index, memory.used [MiB], memory.total [MiB]\n0, 7 MiB, 40960 MiB\n1, 39000 MiB, 40960 MiB\n";
            let list: String = list.lines().map(|line| format!("{margin}{line}\n")).collect();
            assert_eq!(rows(&list), [(0, 7, 40960), (1, 39000, 40960)], "{margin}");
        }
        let command = "$ nvidia-smi --query-gpu=index,memory.total,memory.used --format=csv,noheader,nounits\n";
        assert_eq!(rows(&format!("{command}0, 24576, 23011\n1, 24576, 4\n")), [(0, 23011, 24576), (1, 4, 24576)]);
        let names =
            "name, memory.used [MiB], memory.total [MiB]\nTesla T4, 14900 MiB, 15360 MiB\nTesla T4, 3 MiB, 15360 MiB\n";
        assert_eq!(rows(names), [(0, 14900, 15360), (1, 3, 15360)]);
    }
}
