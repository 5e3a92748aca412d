//! A headless Chromium, driven over the WebDriver protocol.

use std::env;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

/// Set to `required`, a missing Chromium is a failure.
const VARIABLE: &str = "LOWTIDE_CHROMIUM";
/// A page that has not changed after this time will not.
const PATIENCE: Duration = Duration::from_secs(40);

/// One window.
pub(crate) struct Browser {
    driver: Child,
    port: u16,
    session: String,
    _profile: TempDir,
}

impl Browser {
    /// A window of this size; `None`, said loudly, where there is no Chromium with its driver.
    pub(crate) fn open(width: u32, height: u32, scheme: &str) -> Option<Browser> {
        let found = |program: &str| Command::new(program).arg("--version").output().is_ok_and(|it| it.status.success());
        let Some(chromium) = ["chromium", "chromium-browser", "google-chrome"].into_iter().find(|name| found(name))
        else {
            return skipped("there is no chromium");
        };
        if !found("chromedriver") {
            return skipped("there is no chromedriver");
        }
        let path =
            env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join(chromium)).find(|path| path.exists())?;
        let driver = Command::new("chromedriver").arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut driver = driver.unwrap();
        let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let told = lines.by_ref().map(Result::unwrap).find(|line| line.contains("successfully on port")).unwrap();
        let port = told.trim_end_matches('.').rsplit(' ').next().unwrap().parse().unwrap();
        // Read on, else the driver would wait for somebody who does.
        thread::spawn(move || lines.for_each(drop));
        let profile = tempfile::tempdir().unwrap();
        let mut browser = Browser { driver, port, session: String::new(), _profile: profile };
        let folder = browser._profile.path().display();
        let arguments = json!([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            format!("--user-data-dir={folder}"),
            format!("--window-size={width},{height}"),
            format!("--blink-settings=preferredColorScheme={}", if scheme == "dark" { 0 } else { 1 }),
        ]);
        let options = json!({ "binary": path, "args": arguments });
        let wanted = json!({ "capabilities": { "alwaysMatch": { "goog:chromeOptions": options } } });
        let session = browser.ask("POST", "", &wanted);
        browser.session = format!("/{}", session["sessionId"].as_str().unwrap());
        Some(browser)
    }

    pub(crate) fn go(&self, url: &str) {
        self.ask("POST", "/url", &json!({ "url": url }));
    }

    /// Shows pages as a phone does whose screen is so wide; no window of a desktop is narrower than 500 pixels.
    pub(crate) fn be_a_phone(&self, width: u32) {
        let screen = json!({ "width": width, "height": 844, "deviceScaleFactor": 1, "mobile": true });
        let command = json!({ "cmd": "Emulation.setDeviceMetricsOverride", "params": screen });
        self.ask("POST", "/goog/cdp/execute", &command);
    }

    /// The value of an expression in the page.
    pub(crate) fn value(&self, expression: &str) -> Value {
        let script = format!("return {expression};");
        self.ask("POST", "/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// Waits until an expression in the page is true.
    #[track_caller]
    pub(crate) fn wait_for(&self, expression: &str) {
        let begun = Instant::now();
        while self.value(expression) != true {
            assert!(begun.elapsed() < PATIENCE, "never true: {expression}\n{}", self.value("document.body.innerText"));
            thread::sleep(Duration::from_millis(100));
        }
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let body = body.to_string();
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let path = format!("/session{}{path}", self.session);
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut reader = BufReader::new(stream);
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if line.trim().is_empty() {
                break;
            }
        }
        let mut answer = vec![0; length];
        reader.read_exact(&mut answer).unwrap();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        assert!(answer["value"]["error"].is_null(), "{path}: {answer}");
        answer["value"].clone()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() && !thread::panicking() {
            self.ask("DELETE", "", &json!({}));
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

#[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
fn skipped(why: &str) -> Option<Browser> {
    assert!(env::var_os(VARIABLE).is_none_or(|value| value != "required"), "{why}, and {VARIABLE} requires it");
    // To the terminal itself: what a passing test prints is not shown.
    let loud = format!("\n*** SKIPPED: the page was NOT tested in a browser: {why} ***\n\n");
    let terminal = std::fs::OpenOptions::new().append(true).open("/dev/tty");
    let _ = terminal.map(|mut terminal| terminal.write_all(loud.as_bytes()));
    eprint!("{loud}");
    None
}
