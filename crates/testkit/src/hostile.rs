//! Names and texts that would steer a terminal, and a look at what was printed of them.

use crate::Printout;

/// What a line begins with that a name with a line end in it has forged.
const FORGED: &str = "forged";

/// Texts that can be names of files, each of another kind.
pub const HOSTILE: [&str; 9] = [
    "a\u{1b}]0;title\u{7}b",
    "a\u{1b}[2J\u{1b}[31mb",
    "a\u{9b}31mb\u{85}c",
    "a\u{202e}b\u{2066}c\u{200f}d\u{61c}e",
    "a\rb",
    "a\nforged: b",
    "a\u{7f}\u{8}\u{8}b",
    "a\u{200b}\u{feff}\u{2028}forged\u{2029}b",
    "a\u{e0041}\u{e0042}\u{3164}b",
];

/// Checks that nothing which was printed steers a terminal, and that no name made a line of its own.
#[track_caller]
pub fn check_plain(what: &str, printout: &Printout) {
    for text in [&printout.stdout, &printout.stderr] {
        let bad = |(_, character): &(usize, char)| {
            character.is_control() && *character != '\n'
                || matches!(u32::from(*character), 0x61c | 0x3164 | 0xfeff | 0xe0000..=0xe0fff)
                || matches!(u32::from(*character), 0x200b | 0x200e | 0x200f | 0x2028..=0x202e | 0x2060..=0x206f)
        };
        if let Some((place, character)) = text.char_indices().find(bad) {
            panic!("{what:?}: {} at {place} of {text:?}", character.escape_default());
        }
        assert!(!text.lines().any(|line| line.starts_with(FORGED)), "{what:?}: {text}");
    }
}
