//! A chart as PNG, for documents that take no SVG.

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree};

/// The letters of charts, the same on every machine, also on those without fonts.
const FONT: &[u8] = include_bytes!("../../font/DejaVuSans-Latin.ttf");
const FAMILY: &str = "DejaVu Sans";
/// Pixels for each unit of the drawing.
const SHARPNESS: f32 = 2.0;

/// A drawing of [`chart`](crate::chart) as PNG, at twice its size.
#[must_use]
pub fn png(svg: &str) -> Vec<u8> {
    let mut options = Options { font_family: FAMILY.to_owned(), ..Options::default() };
    let fonts = options.fontdb_mut();
    // For names in other scripts, where the system can write them.
    fonts.load_system_fonts();
    fonts.load_font_data(FONT.to_vec());
    fonts.set_sans_serif_family(FAMILY);
    let tree = Tree::from_str(svg, &options).expect("charts are valid SVG");
    let size = tree.size().to_int_size().scale_by(SHARPNESS).expect("charts have a size");
    let mut pixels = Pixmap::new(size.width(), size.height()).expect("charts have a size");
    resvg::render(&tree, Transform::from_scale(SHARPNESS, SHARPNESS), &mut pixels.as_mut());
    pixels.encode_png().expect("pixels in memory can be written to memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The darkness of a drawing of one word.
    fn ink(word: &str) -> usize {
        let svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 200 40\" font-family=\"sans-serif\">\
             <rect width=\"200\" height=\"40\" fill=\"#fff\"/><text x=\"5\" y=\"30\">{word}</text></svg>"
        );
        let drawn = Pixmap::decode_png(&png(&svg)).unwrap();
        assert_eq!((drawn.width(), drawn.height()), (400, 80));
        drawn.pixels().iter().filter(|pixel| pixel.red() < 128).count()
    }

    #[test]
    fn words_are_drawn() {
        assert_eq!(ink(""), 0);
        assert!(ink("memory 39.37 MiB") > 2 * ink("39"), "{}", ink("39"));
        assert!(ink("39") > 20);
    }
}
