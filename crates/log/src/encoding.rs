//! Logs in UTF-16, as a redirection in PowerShell writes them, made UTF-8 on the way in; with the mark at their start or, where
//! it was cut off, by letters that each have a zero beside them.

use std::borrow::Cow;

/// Makes the bytes of a log UTF-8 as they come; what is not UTF-16 stays as it is.
#[derive(Debug)]
pub struct TextDecoder(State);

#[derive(Debug)]
enum State {
    /// The first bytes tell the encoding: those that have come.
    Start(Vec<u8>),
    /// UTF-8, or whatever else.
    Plain,
    /// Two bytes a unit: what was left over of the piece before.
    Wide { is_big_endian: bool, half: Option<u8>, high: Option<u16> },
}

/// So many bytes without a mark tell the encoding.
const TELLING: usize = 8;

impl Default for TextDecoder {
    fn default() -> Self {
        Self(State::Start(Vec::new()))
    }
}

impl TextDecoder {
    /// The next bytes, cut anywhere; a unit without its partner becomes the replacement character.
    pub fn decode<'a>(&mut self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        match &mut self.0 {
            State::Plain => Cow::Borrowed(bytes),
            State::Wide { is_big_endian, half, high } => Cow::Owned(wide(*is_big_endian, half, high, bytes)),
            State::Start(begun) => {
                begun.extend_from_slice(bytes);
                let Some(state) = state(begun) else { return Cow::Borrowed(&[]) };
                let begun = std::mem::take(begun);
                self.0 = state;
                Cow::Owned(self.decode(&begun).into_owned())
            }
        }
    }

    /// The bytes that wait for more to tell the encoding, where none come.
    pub fn finish(&mut self) -> Vec<u8> {
        match &mut self.0 {
            State::Start(begun) => std::mem::take(begun),
            State::Plain | State::Wide { .. } => Vec::new(),
        }
    }
}

/// What a text is by its first bytes; `None` where they are too few to tell.
fn state(begun: &[u8]) -> Option<State> {
    let wide = |is_big_endian| Some(State::Wide { is_big_endian, half: None, high: None });
    match begun {
        [0xff, 0xfe, ..] => wide(false),
        [0xfe, 0xff, ..] => wide(true),
        [] | [0xff | 0xfe] => None,
        [one, other, ..] if (*one == 0) == (*other == 0) => Some(State::Plain),
        _ if begun.len() >= TELLING => match (is_ascii_in_pairs(begun, 0), is_ascii_in_pairs(begun, 1)) {
            (true, _) => wide(false),
            (_, true) => wide(true),
            _ => Some(State::Plain),
        },
        _ => None,
    }
}

/// Whether each of the first pairs is a letter, at this place of the pair, and a zero.
fn is_ascii_in_pairs(begun: &[u8], place: usize) -> bool {
    let is_text = |byte: u8| (b' '..0x7f).contains(&byte) || matches!(byte, b'\t' | b'\n' | b'\r' | 0x1b);
    begun[..TELLING].chunks_exact(2).all(|pair| is_text(pair[place]) && pair[1 - place] == 0)
}

fn wide(is_big_endian: bool, half: &mut Option<u8>, high: &mut Option<u16>, bytes: &[u8]) -> Vec<u8> {
    let mut units = Vec::with_capacity(bytes.len() / 2 + 2);
    units.extend(high.take());
    for &byte in bytes {
        match half.take() {
            None => *half = Some(byte),
            Some(first) if is_big_endian => units.push(u16::from_be_bytes([first, byte])),
            Some(first) => units.push(u16::from_le_bytes([first, byte])),
        }
    }
    // The first half of a pair waits for the second.
    *high = units.pop_if(|last| (0xd800..0xdc00).contains(last));
    String::from_utf16_lossy(&units).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(bytes: &[u8], cut: usize) -> Vec<u8> {
        let mut decoder = TextDecoder::default();
        let mut found = decoder.decode(&bytes[..cut]).into_owned();
        found.extend_from_slice(&decoder.decode(&bytes[cut..]));
        found.extend(decoder.finish());
        found
    }

    #[test]
    fn any_cut_gives_the_same_text() {
        for text in ["\u{feff}CUDA out of memory: 验证 \u{1f980}\r\n", "CUDA out of memory: 验证 \u{1f980}\r\n"] {
            let little: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
            let big = text.encode_utf16().flat_map(u16::to_be_bytes).collect();
            for bytes in [little, big, text.as_bytes().to_vec()] {
                for cut in 0..=bytes.len() {
                    assert_eq!(String::from_utf8(decoded(&bytes, cut)).unwrap(), text, "{cut}");
                }
            }
        }
    }

    #[test]
    fn few_bytes_are_not_lost() {
        for bytes in [&b"x"[..], b"x\0", b"x\0y\0", b"x\0y\0z\0\x07\0", b"\0\0\0\0", b"\xff", b"\x89PNG\0\x1a"] {
            for cut in 0..=bytes.len() {
                assert_eq!(decoded(bytes, cut), bytes, "{cut}");
            }
        }
    }
}
