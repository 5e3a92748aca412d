//! Where frames are cut into tiles, and which part of a tile counts.

use std::ops::Range;

use lowtide_settings::TileChoice;
use lowtide_torch::tch::Tensor;

/// How the frames of a workload can be computed in tiles with the same outputs.
///
/// The workload promises: inputs and outputs have the rows and columns of a frame as their last two dimensions; an output
/// sees no input that is further than `receptive_field` pixels away; and the model treats the border of what it is given
/// as it treats the border of a frame, as long as tiles begin and end at multiples of `alignment` or where the frame does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiling {
    /// Pixels that an output sees to each side, at most.
    pub receptive_field: u32,
    /// What tiles begin and end at multiples of, in pixels; 1 where it does not matter.
    pub alignment: u32,
    /// Rows and columns of the frames that are evaluated.
    pub frame: [u32; 2],
    /// What looks at the whole frame, where something does: the promise about outputs does not hold then, and tiles are for
    /// those who allow approximate figures.
    pub global: Option<&'static str>,
}

impl Tiling {
    /// Pixels at a border of a tile that the border may have reached.
    pub(crate) fn overlap(&self) -> u32 {
        self.receptive_field.next_multiple_of(self.alignment)
    }

    /// The smallest tile of which something is kept.
    pub(crate) fn least(&self) -> u32 {
        2 * self.overlap() + self.alignment
    }

    /// A tile that holds all of the frame.
    fn most(&self) -> u32 {
        let [rows, columns] = self.frame;
        rows.max(columns).next_multiple_of(self.alignment).max(self.least())
    }

    /// The next smaller tile to try where one of this size does not fit.
    pub(crate) fn smaller(&self, tile: u32) -> Option<u32> {
        let tile = tile.min(self.most());
        let half = tile / 2 / self.alignment * self.alignment;
        (tile > self.least()).then(|| half.max(self.least()))
    }

    /// The first tile to try, where an earlier start found one that fits.
    pub(crate) fn first(&self, choice: TileChoice, found: Option<u32>) -> Option<u32> {
        match choice {
            TileChoice::None => None,
            TileChoice::Pixels(side) => Some(side),
            TileChoice::Auto => Some(found.map_or(self.most(), |found| found.clamp(self.least(), self.most()))),
        }
    }

    /// Whether tiles of this size change what the model sees.
    pub(crate) fn is_approximate(&self, tile: u32) -> bool {
        self.global.is_some() && tile < self.most()
    }

    /// Tiles of `side` pixels, which is at least [`Tiling::least`], over a frame.
    pub(crate) fn tiles(&self, rows: u32, columns: u32, side: u32) -> Vec<Tile> {
        let across = self.spans(columns, side);
        let down = self.spans(rows, side);
        down.iter().flat_map(|rows| across.iter().map(|columns| Tile::new(rows, columns))).collect()
    }

    fn spans(&self, length: u32, side: u32) -> Vec<Span> {
        let (side, overlap) = (side / self.alignment * self.alignment, self.overlap());
        let mut spans = Vec::new();
        let (mut start, mut kept) = (0, 0);
        while start + side < length {
            let end = start + side;
            spans.push(Span { taken: start..end, kept: kept..end - overlap });
            kept = end - overlap;
            start = kept - overlap;
        }
        spans.push(Span { taken: start..length, kept: kept..length });
        spans
    }
}

/// A stretch of rows or columns, and the part of it that no border of a tile reaches.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Span {
    taken: Range<u32>,
    kept: Range<u32>,
}

/// A part of a frame that is computed at once.
#[derive(Debug)]
pub(crate) struct Tile {
    rows: Span,
    columns: Span,
}

impl Tile {
    fn new(rows: &Span, columns: &Span) -> Tile {
        Tile { rows: rows.clone(), columns: columns.clone() }
    }

    /// What is taken from a frame's tensor.
    pub(crate) fn taken(&self, frame: &Tensor) -> Tensor {
        part(frame, &self.rows.taken, &self.columns.taken)
    }

    /// What is kept of the tile's output goes to its place in the frame.
    pub(crate) fn put(&self, output: &Tensor, frame: &Tensor) {
        let inside = |span: &Span| span.kept.start - span.taken.start..span.kept.end - span.taken.start;
        let kept = part(output, &inside(&self.rows), &inside(&self.columns));
        part(frame, &self.rows.kept, &self.columns.kept).copy_(&kept);
    }
}

fn part(tensor: &Tensor, rows: &Range<u32>, columns: &Range<u32>) -> Tensor {
    let narrow = |tensor: &Tensor, dimension, range: &Range<u32>| {
        tensor.narrow(dimension, range.start.into(), (range.end - range.start).into())
    };
    narrow(&narrow(tensor, -2, rows), -1, columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TILING: Tiling = Tiling { receptive_field: 13, alignment: 8, frame: [100, 300], global: None };

    #[test]
    fn tiles_cover_every_pixel_once_and_keep_what_no_border_reaches() {
        assert_eq!((TILING.overlap(), TILING.least()), (16, 40));
        for length in 1..400 {
            for side in [40, 47, 64, 200, 1000] {
                let spans = TILING.spans(length, side);
                let (first, last) = (spans.first().unwrap(), spans.last().unwrap());
                assert_eq!((first.taken.start, last.taken.end), (0, length));
                assert_eq!((first.kept.start, last.kept.end), (0, length));
                assert!(spans.windows(2).all(|pair| pair[0].kept.end == pair[1].kept.start));
                for Span { taken, kept } in &spans {
                    assert!(taken.end - taken.start <= side && kept.start < kept.end, "{length} in {side}: {spans:?}");
                    assert!(taken.start % 8 == 0 && (taken.end % 8 == 0 || taken.end == length));
                    assert!(taken.start == 0 || kept.start - taken.start >= 13);
                    assert!(taken.end == length || taken.end - kept.end >= 13);
                }
            }
        }
    }

    #[test]
    fn smaller_tiles_end_at_the_least() {
        let mut sides = vec![TILING.first(TileChoice::Auto, None).unwrap()];
        while let Some(side) = TILING.smaller(*sides.last().unwrap()) {
            sides.push(side);
        }
        assert_eq!(sides, [304, 152, 72, 40]);
        assert_eq!(TILING.smaller(100_000), Some(152), "what is larger than the frame is the frame");
        assert_eq!(TILING.first(TileChoice::Auto, Some(72)), Some(72), "what was found is not looked for again");
        assert_eq!(TILING.first(TileChoice::Pixels(64), Some(72)), Some(64));
    }
}
