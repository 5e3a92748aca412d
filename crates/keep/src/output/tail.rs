//! The end of a command's output, and which stream each part of it came from.

use std::collections::VecDeque;
use std::ops::Range;

/// What a pipe from the command holds: as much as ordinary users may have, so that neither side waits often.
pub(crate) const PIPE: usize = 1 << 20;
/// What is kept at least, for a look at the last words: an error is in it even if a whole pipe of another stream's
/// words is read after it.
const KEPT: usize = PIPE + (512 << 10);

/// The end of a command's output, all streams in the order in which they came.
///
/// That is not always the order in which they were written: what one stream wrote may have waited while another was
/// read. Only where a stream was found empty is it certain that what it says next was written later.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tail {
    /// All that is kept, at least the last 1.5 MiB.
    pub(crate) bytes: Vec<u8>,
    /// How much came before these.
    forgotten: usize,
    /// What the bytes are made of.
    pieces: VecDeque<Piece>,
    /// For each stream, a place before which everything was written earlier than what the stream says next.
    later: Vec<(Stream, usize)>,
}

#[derive(Debug, Clone, Copy)]
struct Piece {
    stream: Stream,
    size: usize,
    /// What came before this place was written earlier than the piece.
    later: usize,
}

/// Where a command says something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    Output,
    Errors,
    /// A terminal that shows both.
    Screen,
}

/// What one stream wrote from a place on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StreamPart {
    pub(crate) stream: Stream,
    /// Whether the place itself is of this stream.
    pub(crate) is_own: bool,
    /// All that was read later than the place.
    pub(crate) bytes: Vec<u8>,
    /// What of it was certainly written later too.
    pub(crate) certain: Vec<u8>,
}

impl Tail {
    /// Takes some bytes of a stream.
    pub(crate) fn take(&mut self, stream: Stream, bytes: &[u8]) {
        let last = &bytes[bytes.len().saturating_sub(KEPT)..];
        if self.bytes.len() + last.len() > 2 * KEPT {
            let keep = KEPT - last.len();
            self.forget(self.bytes.len().saturating_sub(keep));
        }
        self.bytes.extend_from_slice(last);
        let later = self.later.iter().find(|(it, _)| *it == stream).map_or(0, |(_, later)| *later);
        match self.pieces.back_mut() {
            Some(piece) if piece.stream == stream && piece.later == later => piece.size += last.len(),
            _ => self.pieces.push_back(Piece { stream, size: last.len(), later }),
        }
    }

    /// Notes that nothing of a stream waits to be read.
    pub(crate) fn found_empty(&mut self, stream: Stream) {
        // The stream's own words are in order anyway.
        let own = self.pieces.iter().rev().take_while(|piece| piece.stream == stream);
        let place = self.forgotten + self.bytes.len() - own.map(|piece| piece.size).sum::<usize>();
        match self.later.iter_mut().find(|(it, _)| *it == stream) {
            Some((_, later)) => *later = place.max(*later),
            None => self.later.push((stream, place)),
        }
    }

    /// What each stream wrote from the start of a place on; what is certain comes after the place's end.
    pub(crate) fn since(&self, place: &Range<usize>) -> Vec<StreamPart> {
        let mut all: Vec<StreamPart> = Vec::new();
        let mut owner = None;
        let mut begin = 0;
        for piece in &self.pieces {
            let end = begin + piece.size;
            if end > place.start {
                let is_own = *owner.get_or_insert(piece.stream) == piece.stream;
                let bytes = &self.bytes[begin.max(place.start)..end];
                let is_certain = is_own || piece.later >= self.forgotten + place.end;
                let certain = if is_certain { bytes } else { &[] };
                match all.iter_mut().find(|part| part.stream == piece.stream) {
                    Some(part) => {
                        part.bytes.extend_from_slice(bytes);
                        part.certain.extend_from_slice(certain);
                    }
                    None => {
                        let (bytes, certain) = (bytes.to_vec(), certain.to_vec());
                        all.push(StreamPart { stream: piece.stream, is_own, bytes, certain });
                    }
                }
            }
            begin = end;
        }
        all
    }

    fn forget(&mut self, size: usize) {
        self.bytes.drain(..size);
        self.forgotten += size;
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

#[cfg(test)]
impl From<&str> for Tail {
    fn from(text: &str) -> Self {
        let mut tail = Self::default();
        tail.take(Stream::Errors, text.as_bytes());
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
            tail.take(if size % 2 == 0 { Stream::Output } else { Stream::Errors }, &piece);
            all.extend(piece);
            assert!(tail.bytes.len() <= 2 * KEPT);
            assert!(tail.bytes.len() >= KEPT.min(all.len()), "{} of {}", tail.bytes.len(), all.len());
            assert!(all.ends_with(&tail.bytes));
            let pieces: usize = tail.pieces.iter().map(|piece| piece.size).sum();
            assert_eq!(pieces, tail.bytes.len());
        }
    }

    #[test]
    fn what_may_have_waited_is_not_certain() {
        let certain = |tail: &Tail, place: Range<usize>| {
            let part = tail.since(&place).into_iter().find(|part| !part.is_own).unwrap();
            String::from_utf8(part.certain).unwrap()
        };
        let mut tail = Tail::default();
        tail.found_empty(Stream::Output);
        tail.take(Stream::Errors, b"error");
        tail.take(Stream::Output, b"waited ");
        assert_eq!(certain(&tail, 0..5), "");
        tail.found_empty(Stream::Output);
        tail.take(Stream::Output, b"later");
        assert_eq!(certain(&tail, 0..5), "later");
        tail.take(Stream::Errors, b"error");
        tail.take(Stream::Output, b" waited");
        assert_eq!(certain(&tail, 17..22), "");
    }

    proptest! {
        #[test]
        fn each_stream_is_found_again(
            words in proptest::collection::vec((0_usize..3, "[a-z]{1,5}", any::<bool>()), 1..20),
        ) {
            const STREAMS: [Stream; 3] = [Stream::Output, Stream::Errors, Stream::Screen];
            let mut tail = Tail::default();
            for (stream, word, empty) in &words {
                if *empty {
                    tail.found_empty(STREAMS[*stream]);
                }
                tail.take(STREAMS[*stream], word.as_bytes());
            }
            let of = |stream| words.iter().filter(move |(it, ..)| STREAMS[*it] == stream);
            let whole = |stream| of(stream).map(|(_, word, _)| word.as_str()).collect::<String>().into_bytes();
            let all = tail.since(&(0..0));
            prop_assert_eq!(all.iter().filter(|part| part.is_own).count(), 1);
            prop_assert_eq!(all[0].stream, STREAMS[words[0].0]);
            for part in &all {
                prop_assert_eq!(&part.bytes, &whole(part.stream));
            }
        }
    }
}
