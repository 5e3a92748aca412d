//! A drawing as SVG, for reports and papers.

use std::fmt::{self, Write};

use lowtide_core::printable;

use super::drawing::{Anchor, Drawing, Paint, Place, Shape};

impl Drawing {
    /// The drawing as an SVG file.
    #[must_use]
    pub fn svg(&self) -> String {
        let mut svg = String::new();
        self.write_svg(&mut svg).expect("a string takes all text");
        svg
    }

    fn write_svg(&self, svg: &mut String) -> fmt::Result {
        let (width, height) = (self.width, self.height);
        writeln!(
            svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\">"
        )?;
        for shape in &self.shapes {
            write_shape(svg, shape)?;
            svg.push('\n');
        }
        writeln!(svg, "</svg>")
    }
}

fn write_shape(svg: &mut String, shape: &Shape) -> fmt::Result {
    match shape {
        Shape::Area { corners, paint } => {
            svg.push_str("<path d=\"");
            write_line(svg, corners)?;
            svg.push_str("Z\"");
            write_paint(svg, "fill", *paint)?;
        }
        Shape::Circle { centre: (x, y), radius, paint } => {
            write!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\"")?;
            write_paint(svg, "fill", *paint)?;
        }
        Shape::Curve { pieces, paint, pen } => {
            svg.push_str("<path d=\"");
            for piece in pieces {
                write_line(svg, piece)?;
            }
            write!(svg, "\" fill=\"none\" stroke-width=\"{}\" stroke-linejoin=\"round\"", pen.width)?;
            if let Some((on, off)) = pen.dash {
                write!(svg, " stroke-dasharray=\"{on} {off}\"")?;
            }
            write_paint(svg, "stroke", *paint)?;
        }
        Shape::Rectangle { corner: (x, y), width, height, paint } => {
            write!(svg, "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"")?;
            write_paint(svg, "fill", *paint)?;
        }
        Shape::Group { title, shapes } => {
            write!(svg, "<g><title>{}</title>", escaped(title))?;
            for shape in shapes {
                write_shape(svg, shape)?;
            }
            svg.push_str("</g>");
            return Ok(());
        }
        Shape::Text { place: (x, y), anchor, size, paint, text } => {
            write!(
                svg,
                "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" text-anchor=\"{}\"",
                anchor_name(*anchor)
            )?;
            write_paint(svg, "fill", *paint)?;
            return write!(svg, ">{}</text>", escaped(text));
        }
    }
    svg.push_str("/>");
    Ok(())
}

fn write_line(svg: &mut String, places: &[Place]) -> fmt::Result {
    for (at, (x, y)) in places.iter().enumerate() {
        write!(svg, "{}{x:.1} {y:.1}", if at == 0 { 'M' } else { 'L' })?;
    }
    Ok(())
}

fn write_paint(svg: &mut String, part: &str, paint: Paint) -> fmt::Result {
    write!(svg, " {part}=\"#{:06x}\"", paint.colour)?;
    if paint.opacity < 1.0 {
        write!(svg, " {part}-opacity=\"{}\"", paint.opacity)?;
    }
    Ok(())
}

fn anchor_name(anchor: Anchor) -> &'static str {
    match anchor {
        Anchor::Start => "start",
        Anchor::Middle => "middle",
        Anchor::End => "end",
    }
}

/// A text as XML has it; characters that XML has not are written out.
fn escaped(text: &str) -> String {
    printable(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
