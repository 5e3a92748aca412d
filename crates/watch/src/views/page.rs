//! The page: one HTML file with its style and its code inside, which asks for nothing from elsewhere.

use serde_json::Value;

use super::page_data;
use crate::runs::Board;

const HTML: &str = include_str!("../../page/page.html");
const STYLE: &str = concat!(include_str!("../../page/colours.css"), include_str!("../../page/page.css"));
/// In the order in which they are read: what runs at once, and does not only declare, comes last.
const CODE: &str = concat!(
    include_str!("../../page/view.js"),
    include_str!("../../page/words.js"),
    include_str!("../../page/elements.js"),
    include_str!("../../page/shown.js"),
    include_str!("../../page/figures.js"),
    include_str!("../../page/panels.js"),
    include_str!("../../page/story.js"),
    include_str!("../../page/legend.js"),
    include_str!("../../page/machine.js"),
    include_str!("../../page/axis.js"),
    include_str!("../../page/chart.js"),
    include_str!("../../page/marks.js"),
    include_str!("../../page/curves.js"),
    include_str!("../../page/pointer.js"),
    include_str!("../../page/data.js"),
);

/// The colours and the type of every page of Lowtide, light and dark, as a style.
pub const COLOURS: &str = include_str!("../../page/colours.css");

/// The page that asks for its data while a run grows.
pub(crate) fn live() -> String {
    filled(Value::Null)
}

/// A page with all data inside, which opens from disk and asks for nothing.
#[must_use]
pub fn report(board: &Board) -> String {
    filled(page_data::whole(board))
}

fn filled(data: Value) -> String {
    // Within a script element only `<` could end it; in JSON it stands nowhere but in texts.
    let data = page_data::text(data).replace('<', "\\u003c");
    // The data goes in last: what it says is not looked through for places to fill.
    HTML.replace("/*STYLE*/", STYLE).replace("/*CODE*/", CODE).replace("/*DATA*/", &data)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_page_is_whole_and_asks_nobody_else() {
        let page = live();
        for place in ["/*STYLE*/", "/*CODE*/", "/*DATA*/", "http://", "https://", "src="] {
            let allowed = page.replace("http://www.w3.org/2000/svg", "");
            assert!(!allowed.contains(place), "{place}");
        }
    }

    #[test]
    fn no_text_ends_the_script() {
        let page = filled(json!({"runs": [{"name": "</script><script>alert(1)</script>/*CODE*/"}]}));
        assert_eq!(page.matches("</script>").count(), live().matches("</script>").count());
        assert_eq!(page.matches("/*CODE*/").count(), 1);
    }

    #[test]
    fn no_text_turns_the_page_around() {
        let page = filled(json!({"runs": [{"name\u{2066}": "a\u{202e}b\u{9b}c\nd é"}]}));
        assert!(page.contains(r#""name\\u{2066}":"a\\u{202e}b\\u{9b}c\nd é""#), "{page}");
    }
}
