//! A drawing as PNG, for documents that take no SVG.

use std::sync::OnceLock;

use lowtide_core::printable;
use tiny_skia::{Color, FillRule, LineCap, LineJoin, PathBuilder, Pixmap, Rect, Stroke, StrokeDash, Transform};
use ttf_parser::{Face, OutlineBuilder};

use super::drawing::{Anchor, Drawing, Paint, Pen, Place, Shape};

/// The letters of charts, the same on every machine, also on those without fonts.
const FONT: &[u8] = include_bytes!("../../font/DejaVuSans-Latin.ttf");
/// Pixels for each unit of the drawing.
const SHARPNESS: f32 = 2.0;

impl Drawing {
    /// The drawing as a PNG file, at twice its size. A letter that our font has not is a box.
    #[must_use]
    pub fn png(&self) -> Vec<u8> {
        let side = |units: f64| (units as f32 * SHARPNESS) as u32;
        let mut pixels = Pixmap::new(side(self.width), side(self.height)).expect("drawings have a size");
        for shape in &self.shapes {
            paint_shape(&mut pixels, shape);
        }
        pixels.encode_png().expect("pixels in memory can be written to memory")
    }
}

fn paint_shape(pixels: &mut Pixmap, shape: &Shape) {
    match shape {
        Shape::Area { corners, paint } => {
            let mut path = PathBuilder::new();
            add_line(&mut path, corners);
            path.close();
            fill(pixels, path, *paint, scaled());
        }
        Shape::Circle { centre: (x, y), radius, paint } => {
            let mut path = PathBuilder::new();
            path.push_circle(*x as f32, *y as f32, *radius as f32);
            fill(pixels, path, *paint, scaled());
        }
        Shape::Curve { pieces, paint, pen } => {
            let mut path = PathBuilder::new();
            for piece in pieces {
                add_line(&mut path, piece);
            }
            if let Some(path) = path.finish() {
                pixels.stroke_path(&path, &colour(*paint), &stroke(*pen), scaled(), None);
            }
        }
        Shape::Rectangle { corner: (x, y), width, height, paint } => {
            if let Some(rectangle) = Rect::from_xywh(*x as f32, *y as f32, *width as f32, *height as f32) {
                let mut path = PathBuilder::new();
                path.push_rect(rectangle);
                fill(pixels, path, *paint, scaled());
            }
        }
        Shape::Group { title: _, shapes } => shapes.iter().for_each(|shape| paint_shape(pixels, shape)),
        Shape::Text { place, anchor, size, paint, text } => {
            write_text(pixels, *place, *anchor, *size as f32, *paint, &printable(text));
        }
    }
}

fn scaled() -> Transform {
    Transform::from_scale(SHARPNESS, SHARPNESS)
}

fn fill(pixels: &mut Pixmap, path: PathBuilder, paint: Paint, transform: Transform) {
    if let Some(path) = path.finish() {
        pixels.fill_path(&path, &colour(paint), FillRule::Winding, transform, None);
    }
}

fn colour(paint: Paint) -> tiny_skia::Paint<'static> {
    let [_, red, green, blue] = paint.colour.to_be_bytes();
    let mut colour = tiny_skia::Paint { anti_alias: true, ..tiny_skia::Paint::default() };
    colour.set_color(Color::from_rgba8(red, green, blue, (paint.opacity * 255.0).round() as u8));
    colour
}

fn stroke(pen: Pen) -> Stroke {
    Stroke {
        width: pen.width as f32,
        line_join: LineJoin::Round,
        line_cap: LineCap::Butt,
        dash: pen.dash.and_then(|(on, off)| StrokeDash::new(vec![on as f32, off as f32], 0.0)),
        ..Stroke::default()
    }
}

fn add_line(path: &mut PathBuilder, places: &[Place]) {
    for (at, (x, y)) in places.iter().enumerate() {
        let (x, y) = (*x as f32, *y as f32);
        if at == 0 { path.move_to(x, y) } else { path.line_to(x, y) }
    }
}

fn write_text(pixels: &mut Pixmap, place: Place, anchor: Anchor, size: f32, paint: Paint, text: &str) {
    static FACE: OnceLock<Face<'static>> = OnceLock::new();
    let face = FACE.get_or_init(|| Face::parse(FONT, 0).expect("our font is whole"));
    let mut letters = Letters { path: PathBuilder::new(), from: 0.0 };
    let em = f32::from(face.units_per_em());
    for letter in text.chars() {
        match face.glyph_index(letter) {
            Some(glyph) => {
                face.outline_glyph(glyph, &mut letters);
                letters.from += f32::from(face.glyph_hor_advance(glyph).unwrap_or_default());
            }
            None => letters.add_box(em),
        }
    }
    let scale = size / em;
    let width = letters.from * scale;
    let left = match anchor {
        Anchor::Start => 0.0,
        Anchor::Middle => width / 2.0,
        Anchor::End => width,
    };
    // Fonts count upwards from the base line.
    let to_place = Transform::from_row(scale, 0.0, 0.0, -scale, place.0 as f32 - left, place.1 as f32);
    fill(pixels, letters.path, paint, to_place.post_concat(scaled()));
}

/// The outlines of letters, one after another.
struct Letters {
    path: PathBuilder,
    /// Where the next one begins.
    from: f32,
}

impl Letters {
    /// An empty frame in the place of a letter.
    fn add_box(&mut self, em: f32) {
        let (left, right, top, pen) = (self.from + 0.06 * em, self.from + 0.54 * em, 0.7 * em, 0.07 * em);
        // The inner corners go round the other way, which leaves a hole.
        let outer = [(left, 0.0), (right, 0.0), (right, top), (left, top)];
        let inner = [(left + pen, pen), (left + pen, top - pen), (right - pen, top - pen), (right - pen, pen)];
        for corners in [outer, inner] {
            add_line(&mut self.path, &corners.map(|(x, y)| (f64::from(x), f64::from(y))));
            self.path.close();
        }
        self.from += 0.6 * em;
    }
}

impl OutlineBuilder for Letters {
    fn move_to(&mut self, x: f32, y: f32) {
        self.path.move_to(self.from + x, y);
    }

    fn line_to(&mut self, x: f32, y: f32) {
        self.path.line_to(self.from + x, y);
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        self.path.quad_to(self.from + x1, y1, self.from + x, y);
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        self.path.cubic_to(self.from + x1, y1, self.from + x2, y2, self.from + x, y);
    }

    fn close(&mut self) {
        self.path.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where a drawing of one word has ink: the first and last column, and how many pixels.
    fn ink(word: &str, anchor: Anchor) -> (u32, u32, usize) {
        let mut drawing = Drawing::new(200.0, 40.0);
        let text = word.to_owned();
        drawing.add(Shape::Text { place: (100.0, 30.0), anchor, size: 12.0, paint: Paint::solid(0), text });
        let drawn = Pixmap::decode_png(&drawing.png()).unwrap();
        assert_eq!((drawn.width(), drawn.height()), (400, 80));
        let dark = (0..).zip(drawn.pixels()).filter(|(_, pixel)| pixel.red() < 128);
        let columns: Vec<u32> = dark.map(|(at, _)| at % 400).collect();
        let edge = |edge: Option<&u32>| edge.copied().unwrap_or(200);
        (edge(columns.iter().min()), edge(columns.iter().max()), columns.len())
    }

    #[test]
    fn words_are_drawn_from_their_place() {
        assert_eq!(ink("", Anchor::Start), (200, 200, 0));
        let (first, last, dots) = ink("memory 39.37 MiB", Anchor::Start);
        assert!((200..206).contains(&first) && last > 350 && dots > 600, "{first} {last} {dots}");
        let (first, last, _) = ink("memory 39.37 MiB", Anchor::End);
        assert!(first < 50 && (194..200).contains(&last), "{first} {last}");
        let (first, last, _) = ink("MiB", Anchor::Middle);
        assert!((first + last).abs_diff(400) < 6, "{first} {last}");
    }

    #[test]
    fn a_letter_that_the_font_has_not_is_a_box() {
        let (first, last, dots) = ink("潮", Anchor::Start);
        assert!(first >= 200 && last > first && dots > 20, "{first} {last} {dots}");
    }

    #[test]
    fn shapes_lie_where_they_are_put() {
        let mut drawing = Drawing::new(20.0, 20.0);
        let half = Paint { colour: 0xff0000, opacity: 0.5 };
        drawing.add(Shape::Rectangle { corner: (0.0, 0.0), width: 10.0, height: 20.0, paint: half });
        let pen = Pen { width: 2.0, dash: Some((4.0, 4.0)) };
        drawing.add(Shape::Curve { pieces: vec![vec![(0.0, 10.0), (20.0, 10.0)]], paint: Paint::solid(0), pen });
        let drawn = Pixmap::decode_png(&drawing.png()).unwrap();
        let at = |x, y| drawn.pixel(x, y).map(|pixel| (pixel.red(), pixel.green(), pixel.blue())).unwrap();
        let (red, green, _) = at(4, 4);
        assert!(red == 255 && (126..=129).contains(&green), "{red} {green}");
        assert_eq!((at(30, 4), at(4, 20), at(36, 20)), ((255, 255, 255), (0, 0, 0), (0, 0, 0)));
        // Between the dashes.
        assert_eq!(at(28, 20), (255, 255, 255));
    }
}
