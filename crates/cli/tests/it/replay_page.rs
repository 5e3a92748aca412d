//! `lowtide replay --html` in a real browser.

use lowtide_testkit::Sandbox;

use crate::kit::sandbox;
use crate::watching::Browser;

const STACKS: &[u8] = include_bytes!("../../../sim/tests/traces/gpt_stacks.pickle.gz");
const CAPPED: &[u8] = include_bytes!("../../../sim/tests/traces/gpt__default__cap977.pickle.gz");

/// A page of a replay, opened from disk.
fn opened(words: &str) -> Option<(Browser, Sandbox)> {
    let browser = Browser::open(1300, 1000, "light")?;
    let place = sandbox();
    place.write("stacks.pickle.gz", STACKS);
    place.write("capped.pickle.gz", CAPPED);
    place.says(&format!("replay {words} --html page.html"));
    browser.go(&format!("file://{}", place.path("page.html").display()));
    browser.wait_for("document.body.dataset.to !== undefined");
    Some((browser, place))
}

/// Presses and lets go at an event and at a height of the blocks.
fn click(canvas: &str, event: &str, offset: &str) -> String {
    format!(
        "(() => {{ const it = byId('{canvas}'); const box = it.getBoundingClientRect(); const area = scale(box.width, box.height); \
         const at = {{ clientX: box.left + xOf(area, {event}), clientY: box.top + yOf(area, {offset}, view.low, view.high), pointerId: 1 }}; \
         it.dispatchEvent(new PointerEvent('pointerdown', at)); it.dispatchEvent(new PointerEvent('pointerup', at)); return true; }})()"
    )
}

fn text(browser: &Browser, id: &str) -> String {
    browser.value(&format!("byId('{id}').innerText")).as_str().unwrap().to_owned()
}

#[test]
fn a_click_on_a_block_shows_its_size_life_and_stack() {
    let Some((browser, _place)) = opened("stacks.pickle.gz") else { return };
    assert_eq!(browser.value("document.title"), "stacks.pickle.gz · Lowtide");
    // It begins with what is held at the peak.
    assert!(text(&browser, "detail").contains("Held at event"), "{}", text(&browser, "detail"));
    // The largest block with a stack.
    browser.value(
        "(window.wanted = [...data.blocks.size.keys()].filter((i) => data.blocks.stack[i] >= 0)\
         .sort((a, b) => data.blocks.size[b] - data.blocks.size[a])[0], true)",
    );
    browser.value(&click(
        "blocks",
        "(blocks.begin[wanted] + blocks.end[wanted]) / 2",
        "blocks.low[wanted] + blocks.size[wanted] / 2",
    ));
    assert_eq!(browser.value("view.chosen === wanted"), true);
    let detail = text(&browser, "detail");
    for words in ["64.00 MiB", "asked for", "lived", "events", "address", "0x", "functional.py, line"] {
        assert!(detail.contains(words), "{words}: {detail}");
    }
    // A click beside all blocks shows what is held then.
    browser.value(&click("timeline", "1000", "0"));
    let detail = text(&browser, "detail");
    assert!(detail.contains("Held at event 1000") || detail.contains("Held at event 999"), "{detail}");
    browser.value("document.querySelector('#detail li button').click()");
    assert!(text(&browser, "detail").contains("asked for"));
}

#[test]
fn it_is_zoomed_moved_and_searched() {
    let Some((browser, _place)) = opened("stacks.pickle.gz") else { return };
    let range = || (browser.value("view.from").as_f64().unwrap(), browser.value("view.to").as_f64().unwrap());
    assert_eq!(range(), (0.0, 2435.0));
    let wheel = |turn: i32| {
        format!(
            "(() => {{ const box = byId('blocks').getBoundingClientRect(); byId('blocks').dispatchEvent(new WheelEvent('wheel', \
             {{ deltaY: {turn}, clientX: box.left + box.width / 2, clientY: box.top + 50, cancelable: true }})); return true; }})()"
        )
    };
    browser.value(&wheel(-200));
    browser.value(&wheel(-200));
    let (from, to) = range();
    assert!(from > 500.0 && to < 1900.0 && to > from, "{from} to {to}");
    browser.wait_for("Number(document.body.dataset.from) > 500");
    let few = browser.value("byId('blocks').getAttribute('aria-label')");
    browser.value("(byId('whole').click(), true)");
    assert_eq!(range(), (0.0, 2435.0));
    browser.wait_for("document.body.dataset.from === '0.00'");
    assert_ne!(few, browser.value("byId('blocks').getAttribute('aria-label')"));
    let search = |words: &str| {
        browser.value(&format!(
            "(byId('search').value = '{words}', byId('search').dispatchEvent(new Event('input')), true)"
        ));
        text(&browser, "found")
    };
    assert!(search("cross_entropy").starts_with("8 blocks, the largest 64.00 MiB"), "{}", text(&browser, "found"));
    assert_eq!(search("no such function"), "no block");
    assert_eq!(search(""), "");
}

#[test]
fn an_error_and_the_limit_are_marked() {
    let Some((browser, _place)) = opened("capped.pickle.gz") else { return };
    let label = browser.value("byId('timeline').getAttribute('aria-label')");
    assert_eq!(label, "Memory over 2958 events: peak reserved 894.00 MiB, out of memory 1 times");
    assert!(text(&browser, "legend").contains("limit 894.00 MiB"));
    assert!(text(&browser, "detail").contains("Held at event 2199"), "{}", text(&browser, "detail"));
    // What is drawn adds up to what the allocator counted.
    let most = browser.value("Math.max(...columns(2958).map((column) => column.sum))").as_f64().unwrap();
    let peak = browser.value("data.peak_live").as_f64().unwrap();
    assert_eq!(most, peak);
}
