//! Logs in UTF-16, as a redirection in PowerShell writes them, made UTF-8 on the way in.

/// How the bytes of a log are to be read.
#[derive(Debug, Default)]
pub(crate) enum Encoding {
    /// Too little was seen.
    #[default]
    Unknown,
    /// UTF-8, or whatever else: the bytes as they are.
    Plain,
    /// Two bytes a unit.
    Wide(Wide),
}

/// UTF-16 on its way: what was left over of the piece before.
#[derive(Debug)]
pub(crate) struct Wide {
    is_big_endian: bool,
    half: Option<u8>,
    high: Option<u16>,
}

impl Encoding {
    /// What a log that begins with these bytes is written in; two bytes are enough.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let wide = |is_big_endian| Self::Wide(Wide { is_big_endian, half: None, high: None });
        match bytes {
            [0xff, 0xfe, ..] => wide(false),
            [0xfe, 0xff, ..] => wide(true),
            _ => Self::Plain,
        }
    }
}

impl Wide {
    /// The next bytes as UTF-8; a unit without its partner becomes the replacement character.
    pub(crate) fn decode(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut units = Vec::with_capacity(bytes.len() / 2 + 2);
        units.extend(self.high.take());
        for &byte in bytes {
            match self.half.take() {
                None => self.half = Some(byte),
                Some(first) if self.is_big_endian => units.push(u16::from_be_bytes([first, byte])),
                Some(first) => units.push(u16::from_le_bytes([first, byte])),
            }
        }
        // The first half of a pair waits for the second.
        self.high = units.pop_if(|last| (0xd800..0xdc00).contains(last));
        String::from_utf16_lossy(&units).into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_cut_gives_the_same_text() {
        let text = "CUDA out of memory: 验证 \u{1f980}\r\n";
        for is_big_endian in [false, true] {
            let bytes: Vec<u8> = text
                .encode_utf16()
                .flat_map(|unit| if is_big_endian { unit.to_be_bytes() } else { unit.to_le_bytes() })
                .collect();
            for cut in 0..bytes.len() {
                let mut wide = Wide { is_big_endian, half: None, high: None };
                let mut found = wide.decode(&bytes[..cut]);
                found.extend(wide.decode(&bytes[cut..]));
                assert_eq!(String::from_utf8(found).unwrap(), text, "{cut}");
            }
        }
    }
}
