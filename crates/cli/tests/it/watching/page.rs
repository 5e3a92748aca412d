//! The page in a real browser.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, SystemTime};

use lowtide_sensors::{Options, Sampler};
use lowtide_testkit::alone;
use lowtide_watch::{Board, Server};

use super::browser::Browser;
use super::kit::{Watching, Written};
use crate::kit::sandbox;

/// Whether a canvas shows something in about this colour.
pub(crate) fn has_colour(canvas: &str, style: &str) -> String {
    format!(
        "(() => {{ const c = document.getElementById('{canvas}'); const probe = document.createElement('canvas'); \
         const p = probe.getContext('2d'); p.fillStyle = colour('{style}'); p.fillRect(0, 0, 1, 1); \
         const [r, g, b] = p.getImageData(0, 0, 1, 1).data; \
         const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; let n = 0; \
         for (let i = 0; i < d.length; i += 4) if (d[i + 3] > 200 && Math.abs(d[i] - r) + Math.abs(d[i + 1] - g) \
         + Math.abs(d[i + 2] - b) < 30) n += 1; return n > 10; }})()"
    )
}

#[test]
fn a_run_grows_runs_out_of_memory_and_ends() {
    let _alone = alone();
    let Some(browser) = Browser::open(1300, 1000, "light") else { return };
    let place = sandbox();
    let mut run = Written::begin(&place.path("mine"));
    run.lock();
    run.steps(3);
    let mut watching = Watching::start(&place, "mine");
    browser.go(watching.url());
    browser.wait_for("document.body.dataset.drawn === '3'");
    browser.wait_for("document.getElementById('state').textContent === 'running'");
    browser.wait_for(&has_colour("memory", "--line"));
    let figures = browser.value("document.getElementById('figures').textContent");
    assert!(["limit 64.00 MiB", "gpt on cpu"].iter().all(|it| figures.as_str().unwrap().contains(it)), "{figures}");
    assert_eq!(browser.value(&has_colour("memory", "--oom")), false);

    run.steps(7);
    browser.wait_for("document.body.dataset.drawn === '10'");
    run.run_out();
    run.steps(1);
    run.evaluate();
    browser.wait_for("document.querySelectorAll('#story li[data-kind=out_of_memory]').length === 1");
    browser.wait_for(&has_colour("memory", "--oom"));
    browser.wait_for(&has_colour("loss", "--eval"));
    let label = browser.value("document.getElementById('memory').getAttribute('aria-label')");
    assert_eq!(label, "Memory over time: 11 points, out of memory 1 times");
    // What an engine said is shown, and nothing more comes of it.
    let detail = browser.value("document.querySelector('#story details').textContent");
    assert!(detail.as_str().unwrap().contains("<script>"), "{detail}");
    assert_eq!(browser.value("document.title"), "mine · Lowtide");

    browser.value(
        "document.getElementById('memory').dispatchEvent(new PointerEvent('pointermove', {clientX: 400, clientY: 400}))",
    );
    assert_eq!(browser.value("document.getElementById('tip').hidden"), false);
    assert!(browser.value("document.getElementById('tip').textContent").as_str().unwrap().contains("64.00 MiB"));

    run.finish();
    browser.wait_for("document.getElementById('state').textContent === 'finished'");
    assert_eq!(browser.value("document.getElementById('banner').hidden"), true);

    // The page stays and says so when the program behind it has gone.
    watching.child.kill().unwrap();
    browser.wait_for("document.getElementById('banner').textContent.includes('does not answer')");
    assert_eq!(browser.value("document.body.dataset.drawn"), "11");
}

#[test]
fn a_killed_run_is_told_and_several_are_compared_on_a_phone() {
    let Some(browser) = Browser::open(500, 900, "dark") else { return };
    let place = sandbox();
    Written::begin(&place.path("runs/a")).steps(5);
    let killed = place.path("runs/b/events.jsonl");
    Written::begin(&place.path("runs/b")).steps(4);
    let long_ago = SystemTime::now() - Duration::from_secs(3600);
    fs::File::options().append(true).open(&killed).unwrap().set_modified(long_ago).unwrap();
    let watching = Watching::start(&place, "runs");
    browser.go(watching.url());
    browser.wait_for("document.querySelectorAll('#compare tbody tr').length === 2");
    browser.value("[...document.querySelectorAll('#chips button')].find((chip) => chip.textContent === 'b').click()");
    browser.wait_for("document.getElementById('state').textContent === 'killed'");
    let told = browser.value("document.getElementById('banner').textContent");
    assert!(told.as_str().unwrap().contains("silent for 60 minutes"), "{told}");
    assert_eq!(browser.value("document.documentElement.scrollWidth <= window.innerWidth"), true);
    assert_eq!(browser.value("matchMedia('(prefers-color-scheme: dark)').matches"), true);
    assert_eq!(browser.value("getComputedStyle(document.body).backgroundColor"), "rgb(12, 19, 25)");
    assert_eq!(
        browser.value("performance.getEntriesByType('resource').every((it) => it.name.startsWith(location.origin))"),
        true
    );
}

#[test]
fn a_command_that_was_kept_alive_is_shown() {
    let Some(browser) = Browser::open(1300, 1000, "light") else { return };
    let place = sandbox();
    place.write(
        "train.py",
        "import sys, time\nprint('step 7 of this <b>', flush=True)\ntime.sleep(0.2)\nif '--bs=8' in sys.argv: raise MemoryError\n",
    );
    let words = ["run", "--quiet", "--rung", "--bs={micro} --accum={accum}", "--", "python3", "train.py", "--bs=8"];
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_lowtide"));
    assert!(command.args(words).current_dir(place.path(".")).output().unwrap().status.success());
    let watching = Watching::start(&place, "");
    browser.go(watching.url());
    browser.wait_for("document.getElementById('state').textContent === 'finished'");
    browser.wait_for(&has_colour("host", "--oom"));
    assert_eq!(browser.value("document.getElementById('output').textContent"), "step 7 of this <b>");
    let figures = browser.value("document.getElementById('figures').textContent");
    assert!(
        ["1 restart", "all recovered", "4 x 2"].iter().all(|it| figures.as_str().unwrap().contains(it)),
        "{figures}"
    );
    assert_eq!(browser.value("document.querySelectorAll('#story li[data-kind=rung]').length"), 1);
    let loss = browser.value("getComputedStyle(document.getElementById('loss-part')).display");
    assert_eq!(loss, "none");
}

#[test]
fn a_report_opens_from_disk() {
    let Some(browser) = Browser::open(1300, 1000, "light") else { return };
    let place = sandbox();
    let mut run = Written::begin(&place.path("mine"));
    run.steps(6);
    run.run_out();
    run.steps(2);
    run.finish();
    assert_eq!(place.run("report mine --out mine.html").code, Some(0));
    fs::remove_dir_all(place.path("mine")).unwrap();
    browser.go(&format!("file://{}", place.path("mine.html").display()));
    browser.wait_for("document.body.dataset.drawn === '8'");
    browser.wait_for(&has_colour("memory", "--oom"));
    assert_eq!(browser.value("document.getElementById('state').textContent"), "finished");
    assert_eq!(browser.value("performance.getEntriesByType('resource').length"), 0);
}

#[test]
fn a_day_with_samples_can_be_looked_at() {
    let _alone = alone();
    let Some(browser) = Browser::open(1300, 1000, "light") else { return };
    let place = sandbox();
    let folder = place.path("mine");
    let mut run = Written::begin(&folder);
    run.lock();
    run.steps(2 * 24 * 3600);
    run.run_out();
    let now = SystemTime::now();
    let mut board = Board::open(&[folder]).unwrap();
    board.catch_up(now).unwrap();
    let process = Some(std::process::id());
    let mut sampler = Sampler::new(Options { process, ..Options::default() });
    let (sample, mut detail) = (sampler.fast(0.0), Some(sampler.slow(0.0)));
    for half in 0..2 * 24 * 3600 {
        board.add(now + Duration::from_millis(500 * half), sample.clone(), detail.take());
    }
    let server = Server::listen(IpAddr::V4(Ipv4Addr::LOCALHOST), Some(0)).unwrap();
    let (url, board, end) = (server.url(), Arc::new(Mutex::new(board)), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| server.serve(&board, &end));
        browser.go(&url);
        browser.wait_for("Number(document.body.dataset.drawn) > 1000 && Number(document.body.dataset.sampled) > 1000");
        let counts = browser.value("[document.body.dataset.drawn, document.body.dataset.sampled].map(Number)");
        assert!(counts.as_array().unwrap().iter().all(|count| count.as_u64() <= Some(2048)), "{counts}");
        browser.wait_for(&has_colour("memory", "--oom"));
        browser.wait_for(&has_colour("host", "--reserved"));
        browser.value(
            "document.getElementById('memory').dispatchEvent(new PointerEvent('pointermove', {clientX: 600, clientY: 400}))",
        );
        let tip = browser.value("document.getElementById('tip').textContent");
        assert!(tip.as_str().unwrap().contains("free under the limit"), "{tip}");
        end.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_page_that_was_opened_before_its_run_shows_it_once_it_begins() {
    let Some(browser) = Browser::open(500, 900, "light") else { return };
    let place = sandbox();
    let server = Server::listen(IpAddr::V4(Ipv4Addr::LOCALHOST), Some(0)).unwrap();
    let (url, board, end) = (server.url(), Arc::new(Mutex::new(Board::default())), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| server.serve(&board, &end));
        browser.go(&url);
        browser.wait_for("document.getElementById('state').textContent === 'waiting'");
        browser.wait_for("document.getElementById('story').textContent === 'The run has not begun yet.'");
        assert_eq!(browser.value("document.getElementById('banner').hidden"), true);
        let folder = place.path("mine");
        let mut run = Written::begin(&folder);
        run.steps(3);
        let mut seen = board.lock().unwrap();
        seen.join(&folder).unwrap();
        seen.catch_up(SystemTime::now()).unwrap();
        drop(seen);
        browser.wait_for("document.body.dataset.drawn === '3'");
        assert_eq!(browser.value("document.title"), "mine · Lowtide");
        end.store(true, Ordering::Relaxed);
    });
}
