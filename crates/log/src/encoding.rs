//! Logs in UTF-16, as a redirection in PowerShell writes them, made UTF-8 on the way in.

use std::borrow::Cow;

/// Makes the bytes of a log UTF-8 as they come; what is not UTF-16 stays as it is.
#[derive(Debug)]
pub struct TextDecoder(State);

#[derive(Debug)]
enum State {
    /// Two bytes tell the encoding; the first, where it has come.
    Start(Option<u8>),
    /// UTF-8, or whatever else.
    Plain,
    /// Two bytes a unit: what was left over of the piece before.
    Wide { is_big_endian: bool, half: Option<u8>, high: Option<u16> },
}

impl Default for TextDecoder {
    fn default() -> Self {
        Self(State::Start(None))
    }
}

impl TextDecoder {
    /// The next bytes, cut anywhere; a unit without its partner becomes the replacement character.
    pub fn decode<'a>(&mut self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        match &mut self.0 {
            State::Plain => Cow::Borrowed(bytes),
            State::Wide { is_big_endian, half, high } => Cow::Owned(wide(*is_big_endian, half, high, bytes)),
            State::Start(first) => {
                let begun: Vec<u8> = first.take().into_iter().chain(bytes.iter().copied()).collect();
                let wide = |is_big_endian| State::Wide { is_big_endian, half: None, high: None };
                self.0 = match *begun {
                    [] => State::Start(None),
                    [only] => State::Start(Some(only)),
                    [0xff, 0xfe, ..] => wide(false),
                    [0xfe, 0xff, ..] => wide(true),
                    _ => State::Plain,
                };
                match self.0 {
                    State::Start(_) => Cow::Borrowed(&[]),
                    State::Plain => Cow::Owned(begun),
                    State::Wide { .. } => Cow::Owned(self.decode(&begun).into_owned()),
                }
            }
        }
    }

    /// The byte that waits for the next one to tell the encoding, where none comes.
    pub fn finish(&mut self) -> Option<u8> {
        match &mut self.0 {
            State::Start(first) => first.take(),
            State::Plain | State::Wide { .. } => None,
        }
    }
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

    #[test]
    fn any_cut_gives_the_same_text() {
        let text = "\u{feff}CUDA out of memory: 验证 \u{1f980}\r\n";
        let little = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let big = text.encode_utf16().flat_map(u16::to_be_bytes).collect();
        for bytes in [little, big, text.as_bytes().to_vec()] {
            for cut in 0..=bytes.len() {
                let mut decoder = TextDecoder::default();
                let mut found = decoder.decode(&bytes[..cut]).into_owned();
                found.extend_from_slice(&decoder.decode(&bytes[cut..]));
                found.extend(decoder.finish());
                assert_eq!(String::from_utf8(found).unwrap(), text, "{cut}");
            }
        }
    }

    #[test]
    fn a_single_byte_is_not_lost() {
        let mut decoder = TextDecoder::default();
        assert!(decoder.decode(b"x").is_empty());
        assert_eq!(decoder.finish(), Some(b'x'));
    }
}
