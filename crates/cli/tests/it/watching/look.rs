//! What the page shows of runs, and how: along steps, in figures, piled up, on a phone.

use lowtide_core::{Bytes, Event, MicroBatch};
use lowtide_testkit::alone;

use super::browser::Browser;
use super::kit::{Watching, Written};
use crate::kit::sandbox;

fn text(browser: &Browser, id: &str) -> String {
    browser.value(&format!("document.getElementById('{id}').innerText")).as_str().unwrap().to_owned()
}

fn point_at(browser: &Browser, x: u32) -> String {
    let event = format!("new PointerEvent('pointermove', {{clientX: {x}, clientY: 400}})");
    browser.value(&format!("document.getElementById('memory').dispatchEvent({event})"));
    text(browser, "tip")
}

#[test]
fn runs_are_compared_along_their_steps() {
    let Some(browser) = Browser::open(1300, 1000, "light") else { return };
    let place = sandbox();
    Written::begin(&place.path("runs/a")).steps(30);
    let mut slow = Written::begin(&place.path("runs/b"));
    slow.steps(5);
    // Ten seconds in which nothing is done.
    slow.wait(10.0);
    slow.steps(7);
    let watching = Watching::start(&place, "runs/a runs/b");
    browser.go(watching.url());
    browser.wait_for("view.data.length === 2 && document.body.dataset.axis === 'time'");
    browser.value("choose(1)");
    assert_eq!(browser.value("axisRange(view.data[1])"), serde_json::json!([0, 16]));
    browser.value("document.querySelector('[data-axis=step]').click()");
    browser.wait_for("document.body.dataset.axis === 'step'");
    assert_eq!(browser.value("axisRange(view.data[1])"), serde_json::json!([0, 30]));
    // The twelfth step of both is at the same place, whenever it was done.
    assert_eq!(
        browser.value("[pointPlaces(view.data[0])[11], pointPlaces(view.data[1])[11]]"),
        serde_json::json!([12, 12])
    );
    let label = browser.value("document.getElementById('loss').getAttribute('aria-label')");
    assert_eq!(label, "Loss over steps: 12 points, 0 evaluations");
    let tip = point_at(&browser, 200);
    assert!(tip.contains("a: loss"), "{tip}");
    // It stays as it was chosen for as long as the window is open.
    browser.go(watching.url());
    browser.wait_for("document.body.dataset.axis === 'step'");
    browser.value("document.querySelector('[data-axis=time]').click()");
    browser.wait_for("document.body.dataset.axis === 'time'");
}

#[test]
fn a_run_that_went_back_to_an_earlier_step_is_drawn_in_two_parts() {
    let Some(browser) = Browser::open(1300, 1000, "light") else { return };
    let place = sandbox();
    let mut run = Written::begin(&place.path("mine"));
    run.steps(10);
    run.resume_at(4);
    run.steps(3);
    let watching = Watching::start(&place, "mine");
    browser.go(watching.url());
    browser.wait_for("document.body.dataset.drawn === '13'");
    browser.value("document.querySelector('[data-axis=step]').click()");
    browser.wait_for("document.body.dataset.axis === 'step'");
    let moves = "(() => { let moves = 0; const pen = { beginPath() {}, lineTo() {}, moveTo() { moves += 1; } }; \
        const same = (value) => value; const { points } = view.data[0]; \
        trace(pen, pointPlaces(view.data[0]), points.loss, { x: same, y: same }); return moves; })()";
    assert_eq!(browser.value(moves), 2);
    // The newest of the steps with a number is the one that is meant.
    assert_eq!(browser.value("nearest(view.data[0].points.step, 5)"), 10);
    assert_eq!(browser.value("place(view.data[0], view.data[0].points.time[10])"), 5);
}

#[test]
fn a_run_under_way_says_what_is_left_of_time_and_memory() {
    let _alone = alone();
    let Some(browser) = Browser::open(1300, 1000, "light") else { return };
    let place = sandbox();
    let mut run = Written::begin(&place.path("mine"));
    run.lock();
    run.steps(2);
    let watching = Watching::start(&place, "mine");
    browser.go(watching.url());
    browser.wait_for("document.body.dataset.drawn === '2'");
    let figures = text(&browser, "figures");
    assert!(!figures.contains("Time left"), "two steps say nothing yet: {figures}");
    run.steps(8);
    browser.wait_for("document.body.dataset.drawn === '10'");
    // Thirty steps of half a second. Figures come with the list of runs, which may be a poll behind the curves.
    browser.wait_for("document.getElementById('figures').innerText.includes('Time left\\n15 s\\nabout')");
    let figures = text(&browser, "figures");
    assert!(figures.contains("Memory now\n50.00 MiB\nlimit 64.00 MiB"), "{figures}");
    browser.wait_for("/Free memory\\n[0-9.]+ .iB\\non the host/.test(document.getElementById('figures').innerText)");
    run.finish();
    browser.wait_for("document.getElementById('state').textContent === 'finished'");
    let figures = text(&browser, "figures");
    assert!(!figures.contains("Time left") && figures.contains("Memory at the end"), "{figures}");
}

#[test]
fn the_peak_of_a_failed_try_is_told_apart_and_marks_that_pile_up_are_one() {
    let Some(browser) = Browser::open(1300, 1000, "light") else { return };
    let place = sandbox();
    let mut run = Written::begin(&place.path("mine"));
    run.steps(200);
    for _ in 0..5 {
        run.run_out();
        run.steps(1);
    }
    run.steps(200);
    run.run_out();
    run.finish();
    let watching = Watching::start(&place, "mine");
    browser.go(watching.url());
    browser.wait_for("document.body.dataset.drawn === '405'");
    let figures = text(&browser, "figures");
    assert!(figures.contains("Peak memory\n50.00 MiB\nfailed try: 63.00 MiB"), "{figures}");
    assert!(text(&browser, "legend").contains("reserved by the try that failed"));
    let piled = "piles(view.data[0], view.scale).map((pile) => [pile.kind, pile.count, pile.marks.length])";
    assert_eq!(browser.value(piled), serde_json::json!([["out_of_memory", 5, 15], ["out_of_memory", 1, 3]]));
    let x =
        browser.value("Math.round(piles(view.data[0], view.scale)[0].x + byId('memory').getBoundingClientRect().left)");
    let tip = point_at(&browser, u32::try_from(x.as_u64().unwrap()).unwrap());
    let counts = "5 times out of memory, 5 retries, 5 cleanings from step 201 to 205";
    assert!(tip.contains(counts), "{tip}");
    // Wide enough apart, they are single marks again.
    browser.value("(() => { view.zoom = [100, 103]; draw(); return true; })()");
    assert_eq!(browser.value("piles(view.data[0], view.scale).filter((pile) => pile.count > 1).length"), 0);
}

#[test]
fn what_was_measured_is_seen_on_a_phone() {
    let Some(browser) = Browser::open(500, 900, "light") else { return };
    browser.be_a_phone(390);
    let place = sandbox();
    let mut run = Written::begin(&place.path("mine"));
    for (samples, mebibytes) in [(1, 14), (2, 17), (4, 24)] {
        let (micro_batch, peak) = (MicroBatch::new(samples).unwrap(), Some(Bytes::from_mib(mebibytes)));
        run.event(Event::Probed { micro_batch, peak, seconds: 0.1 });
    }
    run.steps(3);
    assert_eq!(place.run("report mine --out mine.html").code, Some(0));
    browser.go(&format!("file://{}", place.path("mine.html").display()));
    browser.wait_for("document.body.dataset.drawn === '3'");
    assert_eq!(browser.value("[innerWidth, document.documentElement.scrollWidth]"), serde_json::json!([390, 390]));
    assert_eq!(
        text(&browser, "plan").matches("23.00 MiB\nthe two tries before").count(),
        1,
        "{}",
        text(&browser, "plan")
    );
    let edges = "[...document.querySelectorAll('#plan tr')].map((row) => row.lastChild.getBoundingClientRect().right)";
    let edges = browser.value(edges);
    assert!(edges.as_array().unwrap().iter().all(|edge| edge.as_f64() < Some(390.0)), "{edges}");
    assert_eq!(
        browser.value("[...document.querySelectorAll('#plan th')].map((it) => it.textContent).pop()"),
        "measured"
    );
}
