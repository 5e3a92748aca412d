//! A drawing of a few kinds of shapes, before it is written as SVG or painted as PNG.

/// Shapes in the order they are drawn; the origin is at the top left.
#[derive(Clone, Debug, PartialEq)]
pub struct Drawing {
    pub(super) width: f64,
    pub(super) height: f64,
    pub(super) shapes: Vec<Shape>,
}

/// A place in a drawing.
pub(super) type Place = (f64, f64);

/// A colour, and how much of it covers what is below.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Paint {
    /// Red, green, blue.
    pub(super) colour: u32,
    pub(super) opacity: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Shape {
    /// A filled polygon.
    Area {
        corners: Vec<Place>,
        paint: Paint,
    },
    Circle {
        centre: Place,
        radius: f64,
        paint: Paint,
    },
    /// Lines through places.
    Curve {
        pieces: Vec<Vec<Place>>,
        paint: Paint,
        pen: Pen,
    },
    Rectangle {
        corner: Place,
        width: f64,
        height: f64,
        paint: Paint,
    },
    /// Shapes that belong together; the title is shown where a pointer rests on them.
    Group {
        title: String,
        shapes: Vec<Shape>,
    },
    Text {
        place: Place,
        anchor: Anchor,
        size: f64,
        paint: Paint,
        text: String,
    },
}

/// How a line is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pen {
    pub(super) width: f64,
    pub(super) dash: Option<(f64, f64)>,
}

/// Which part of a text stands at its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Paint {
    pub(super) const fn solid(colour: u32) -> Self {
        Self { colour, opacity: 1.0 }
    }
}

impl Pen {
    pub(super) const fn solid(width: f64) -> Self {
        Self { width, dash: None }
    }
}

impl Drawing {
    pub(super) fn new(width: f64, height: f64) -> Self {
        let paper = Shape::Rectangle { corner: (0.0, 0.0), width, height, paint: Paint::solid(0xffffff) };
        Self { width, height, shapes: vec![paper] }
    }

    pub(super) fn add(&mut self, shape: Shape) {
        self.shapes.push(shape);
    }
}
