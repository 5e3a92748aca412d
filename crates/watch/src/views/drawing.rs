//! A drawing of a few kinds of shapes, before it is written as SVG or painted as PNG.

/// Shapes in the order they are drawn; the origin is at the top left.
#[derive(Clone, Debug, PartialEq)]
pub struct Drawing {
    pub(super) width: f64,
    pub(super) height: f64,
    pub(super) shapes: Vec<Shape>,
}

/// A place in a drawing.
pub type Place = (f64, f64);

/// A colour, and how much of it covers what is below.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Paint {
    /// Red, green, blue.
    pub colour: u32,
    /// From 0 to 1.
    pub opacity: f64,
}

/// What a drawing is made of.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// A filled polygon.
    Area {
        /// Its corners, in turn.
        corners: Vec<Place>,
        /// What it is filled with.
        paint: Paint,
    },
    /// A filled circle.
    Circle {
        /// Its centre.
        centre: Place,
        /// Its radius.
        radius: f64,
        /// What it is filled with.
        paint: Paint,
    },
    /// Lines through places.
    Curve {
        /// Each a line of its own.
        pieces: Vec<Vec<Place>>,
        /// Their colour.
        paint: Paint,
        /// How they are drawn.
        pen: Pen,
    },
    /// A filled rectangle.
    Rectangle {
        /// Its top left corner.
        corner: Place,
        /// Its width.
        width: f64,
        /// Its height.
        height: f64,
        /// What it is filled with.
        paint: Paint,
    },
    /// Shapes that belong together; the title is shown where a pointer rests on them.
    Group {
        /// What is shown there.
        title: String,
        /// The shapes.
        shapes: Vec<Shape>,
    },
    /// A line of text.
    Text {
        /// Where it stands.
        place: Place,
        /// Which part of it stands there.
        anchor: Anchor,
        /// The size of its letters.
        size: f64,
        /// Their colour.
        paint: Paint,
        /// What it says.
        text: String,
    },
}

/// How a line is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pen {
    /// Its width.
    pub width: f64,
    /// How long dashes and the gaps between them are, where it is dashed.
    pub dash: Option<(f64, f64)>,
}

/// Which part of a text stands at its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// Its start.
    Start,
    /// Its middle.
    Middle,
    /// Its end.
    End,
}

impl Paint {
    /// A colour that covers all.
    #[must_use]
    pub const fn solid(colour: u32) -> Self {
        Self { colour, opacity: 1.0 }
    }
}

impl Pen {
    /// A line without gaps.
    #[must_use]
    pub const fn solid(width: f64) -> Self {
        Self { width, dash: None }
    }
}

impl Drawing {
    /// An empty white sheet.
    #[must_use]
    pub fn new(width: f64, height: f64) -> Self {
        let paper = Shape::Rectangle { corner: (0.0, 0.0), width, height, paint: Paint::solid(0xffffff) };
        Self { width, height, shapes: vec![paper] }
    }

    /// Draws a shape over those that are there.
    pub fn add(&mut self, shape: Shape) {
        self.shapes.push(shape);
    }
}
