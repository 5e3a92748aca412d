//! The end of a command's output, and which stream each part of it came from.

use std::collections::VecDeque;

/// What is kept at least, for a look at the last words.
const KEPT: usize = 256 << 10;

/// The end of a command's output, all streams in the order in which they came.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tail {
    bytes: Vec<u8>,
    /// What the bytes are made of.
    pieces: VecDeque<Piece>,
}

#[derive(Debug, Clone, Copy)]
struct Piece {
    stream: usize,
    size: usize,
}

impl Tail {
    /// Takes some bytes of a stream.
    pub(crate) fn take(&mut self, stream: usize, bytes: &[u8]) {
        let last = &bytes[bytes.len().saturating_sub(KEPT)..];
        if self.bytes.len() + last.len() > 2 * KEPT {
            let keep = KEPT - last.len();
            self.forget(self.bytes.len().saturating_sub(keep));
        }
        self.bytes.extend_from_slice(last);
        match self.pieces.back_mut() {
            Some(piece) if piece.stream == stream => piece.size += last.len(),
            _ => self.pieces.push_back(Piece { stream, size: last.len() }),
        }
    }

    /// All that is kept, at least the last 256 KiB.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What each stream said from a place on, and whether that place is the stream's own.
    pub(crate) fn since(&self, place: usize) -> Vec<(Vec<u8>, Whose)> {
        let mut said: Vec<(usize, Vec<u8>)> = Vec::new();
        let mut owner = None;
        let mut begin = 0;
        for piece in &self.pieces {
            let end = begin + piece.size;
            if end > place {
                owner = owner.or(Some(piece.stream));
                let bytes = &self.bytes[begin.max(place)..end];
                match said.iter_mut().find(|(stream, _)| *stream == piece.stream) {
                    Some((_, all)) => all.extend_from_slice(bytes),
                    None => said.push((piece.stream, bytes.to_vec())),
                }
            }
            begin = end;
        }
        let whose = |stream| if Some(stream) == owner { Whose::Own } else { Whose::Other };
        said.into_iter().map(|(stream, bytes)| (bytes, whose(stream))).collect()
    }

    fn forget(&mut self, size: usize) {
        self.bytes.drain(..size);
        let mut left = size;
        while let Some(piece) = self.pieces.front_mut() {
            if piece.size > left {
                piece.size -= left;
                return;
            }
            left -= piece.size;
            self.pieces.pop_front();
        }
    }
}

/// Whether a place in the output is of the same stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    Own,
    Other,
}

#[cfg(test)]
impl From<&str> for Tail {
    fn from(text: &str) -> Self {
        let mut tail = Self::default();
        tail.take(0, text.as_bytes());
        tail
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn it_is_bounded_and_ends_as_the_output_does() {
        let mut tail = Tail::default();
        let mut all = Vec::new();
        for size in [10, KEPT, 3, 2 * KEPT + 7, KEPT - 1, 1, KEPT / 2, KEPT / 2, KEPT] {
            let piece: Vec<u8> = (0..size).map(|index| (index * 7 + size) as u8).collect();
            tail.take(size % 2, &piece);
            all.extend(piece);
            assert!(tail.bytes().len() <= 2 * KEPT);
            assert!(tail.bytes().len() >= KEPT.min(all.len()), "{} of {}", tail.bytes().len(), all.len());
            assert!(all.ends_with(tail.bytes()));
            let pieces: usize = tail.pieces.iter().map(|piece| piece.size).sum();
            assert_eq!(pieces, tail.bytes().len());
        }
    }

    proptest! {
        #[test]
        fn each_stream_is_found_again(words in proptest::collection::vec((0_usize..3, "[a-z]{1,5}"), 1..20)) {
            let mut tail = Tail::default();
            for (stream, word) in &words {
                tail.take(*stream, word.as_bytes());
            }
            let of = |stream| words.iter().filter(move |(it, _)| *it == stream);
            let whole = |stream| of(stream).map(|(_, word)| word.as_str()).collect::<String>();
            let said = tail.since(0);
            prop_assert_eq!(said.iter().filter(|(_, whose)| *whose == Whose::Own).count(), 1);
            prop_assert_eq!(&said[0], &(whole(words[0].0).into_bytes(), Whose::Own));
            for (bytes, _) in &said {
                prop_assert!((0..3).any(|stream| whole(stream).as_bytes() == bytes.as_slice()));
            }
        }
    }
}
