"use strict";
// The page of `lowtide watch` and `lowtide report`. Texts go into the page as text only, never as HTML.

const embedded = JSON.parse(document.getElementById("data").textContent);
const token = new URLSearchParams(location.search).get("token");
const byId = (id) => document.getElementById(id);

/** Runs as listed, their points and marks by number, and what is looked at. */
const view = { runs: [], live: null, data: [], chosen: null, zoom: null, hover: null, filter: "all", drag: null };

const COLOURS = ["#0e9ab5", "#c2710c", "#7c3aed", "#15803d", "#d6264f", "#64748b", "#b45309", "#2563eb"];
const MEMORY_KINDS = ["out_of_memory", "rung", "climbed", "cleaned", "probed", "sized", "skipped", "evaluation_failed"];
const FILTERS = {
  all: ["All", () => true],
  memory: ["Memory", (mark) => MEMORY_KINDS.includes(mark.kind)],
  evaluations: ["Evaluations", (mark) => mark.kind.startsWith("evaluat")],
  checkpoints: ["Checkpoints", (mark) => mark.kind === "saved"],
};
const MARK_COLOUR = {
  out_of_memory: "--oom", rung: "--rung", climbed: "--sized", cleaned: "--clean", evaluated: "--eval",
  evaluation_failed: "--oom", saved: "--save", probed: "--sized", sized: "--sized", skipped: "--rung",
  started: "--rest", ended: "--rest",
};
/** The kinds with a place of their own above the chart, the most important one last, so that it is on top. */
const RAIL = ["saved", "evaluated", "climbed", "skipped", "cleaned", "rung", "evaluation_failed", "out_of_memory"];

// ---- words for numbers

function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < 4) { value /= 1024; unit += 1; }
  return `${unit === 0 ? value : value.toFixed(2)} ${units[unit]}`;
}
function whole(value) { return Math.round(value).toLocaleString("en-US"); }
function span(seconds) {
  const pad = (number) => String(Math.floor(number)).padStart(2, "0");
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)}:${pad(seconds % 60)}`;
  return `${Math.floor(seconds / 3600)}:${pad((seconds % 3600) / 60)}:${pad(seconds % 60)}`;
}
function short(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  return size !== 0 && (size < 0.001 || size >= 1e5) ? value.toExponential(2) : value.toFixed(size < 10 ? 4 : 2);
}

// ---- elements

function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(properties)) {
    if (key === "style") made.style.cssText = value;
    else if (key in made) made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}
function colour(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }
function runColour(id) { return COLOURS[id % COLOURS.length]; }

// ---- what is shown

function show() {
  const run = view.runs[view.chosen];
  if (!run) { showWaiting(); return; }
  const data = view.data[view.chosen];
  document.title = `${run.name} · Lowtide`;
  document.body.classList.toggle("process", Boolean(run.isProcess));
  document.body.classList.toggle("bare", Boolean(run.isBare));
  byId("memory-part").hidden = Boolean(run.isBare) && cards(data).length === 0;
  byId("memory-head").textContent = run.isBare ? "Memory of the card" : "Memory";
  byId("host-part").hidden = !hasHost(data);
  showChips();
  showState(run);
  if (run.isProcess) {
    showProcessFigures(run);
  } else if (run.command) {
    showCommandFigures(run, data);
  } else {
    showFigures(run);
    showHolding(run);
  }
  showLive();
  showCompare();
  showPlan(data);
  showSummary(data);
  showOutput(data);
  showStory(data);
  showLegend(data);
  draw();
}

/** The run has not begun: a page that was opened with it. */
function showWaiting() {
  const pill = byId("state");
  [pill.className, pill.textContent] = ["pill waiting", "waiting"];
  byId("figures").replaceChildren();
  byId("story").replaceChildren(element("li", { className: "none" }, "The run has not begun yet."));
  showLive();
}

function showChips() {
  if (view.runs.length < 2) {
    byId("chips").replaceChildren(element("span", {}, view.runs[0].name));
    return;
  }
  byId("chips").replaceChildren(...view.runs.map((run) => {
    const dot = element("i", { style: `background:${runColour(run.id)}` });
    const button = element("button", { title: run.state_text }, dot, run.name);
    button.setAttribute("aria-pressed", String(run.id === view.chosen));
    button.onclick = () => choose(run.id);
    return button;
  }));
}

function showState(run) {
  const kind = run.state === "ended" ? run.how : run.state;
  const told = { over: "ended", waiting: "waiting", running: "running", finished: "finished",
    interrupted: "interrupted", line: "stopped at the line", error: "ended with an error", gone: "killed" };
  const pill = byId("state");
  pill.className = `pill ${kind}`;
  pill.textContent = told[kind] || kind;
  pill.title = run.state_text;
  if (view.lost) return;
  const trouble = ["gone", "over", "error", "line"].includes(kind) ? run.state_text : "";
  const unread = run.unread > 0 ? `${run.unread} lines of its events could not be read.` : "";
  say([trouble, unread].filter(Boolean).join(" "));
}
function say(text) {
  byId("banner").hidden = text === "";
  byId("banner").textContent = text;
}

function figure(name, value, of, share, extra = "") {
  const card = element("div", { className: `figure ${extra}` }, element("span", {}, name), element("b", {}, value));
  card.append(element("span", { className: "of", title: of }, of || "\u00a0"));
  if (share !== null && share !== undefined) {
    const bar = element("div", { className: share > 0.9 && name.startsWith("Memory") ? "bar near" : "bar" });
    bar.append(element("i", { style: `width:${Math.min(100, share * 100).toFixed(2)}%` }));
    card.append(bar);
  }
  return card;
}
function showFigures(run) {
  const { figures, header: head } = run;
  const line = head && head.line;
  const speed = figures.tokens_per_second
    ? [whole(figures.tokens_per_second), "tokens a second"] : [whole(figures.samples_per_second), "samples a second"];
  const answers = `${whole(figures.rungs)} ${figures.rungs === 1 ? "answer" : "answers"}`;
  const metrics = Object.entries(figures.metrics || {}).map(([name, value]) => `${name} ${short(value)}`).join(", ");
  byId("figures").replaceChildren(
    figure("Step", whole(figures.step), `${figures.steps ? `of ${whole(figures.steps)}, ` : ""}${span(figures.time)}`,
      figures.steps ? figures.step / figures.steps : null),
    figure("Memory at most", bytes(figures.highest_reserved), line ? `line at ${bytes(line)}` : "no line",
      line ? figures.highest_reserved / line : null),
    figure("Out of memory", whole(figures.out_of_memory),
      figures.out_of_memory ? `${whole(figures.recovered)} recovered, ${answers}` : "never",
      null, figures.out_of_memory > figures.recovered ? "alert" : ""),
    figure("Loss", short(figures.loss), head ? `${head.workload} on ${head.device}` : ""),
    figure("Evaluation", short(figures.eval_loss), metrics || (figures.eval_loss === null ? "none yet" : "loss")),
    figure("Speed", speed[0], `${speed[1]}, ${whole(figures.micro_batch)} at once`),
  );
}

function showProcessFigures({ process }) {
  const limit = view.live.host_limit;
  byId("figures").replaceChildren(
    figure("Memory in RAM", bytes(process.resident), limit ? `of ${bytes(limit)}, children included` : "with children",
      limit ? process.resident / limit : null),
    figure("At most in RAM", bytes(process.peak), "since it started, without children"),
    figure("At most on cards", bytes(process.on_cards),
      cards(view.data[0]).length > 0 ? "since it is watched" : "no card is here"),
    figure("Watched for", span(process.time), process.is_running ? "and running" : "until it ended"),
  );
}

/** A command that is kept alive: what is known of it from outside. */
function showCommandFigures({ figures, command }, data) {
  const limit = figures.host_total;
  const batch = command.micro_batch ? `${whole(command.micro_batch)} x ${whole(command.accumulation || 1)}` : "–";
  const onCards = Math.max(0, ...cards(data).flatMap((name) => data.host[name].map(Number)));
  byId("figures").replaceChildren(
    figure("Step", figures.step ? whole(figures.step) : "–", `${span(figures.time)}, as its output tells`),
    figure("Start", whole(command.start), command.resumed_from ? `from ${command.resumed_from}`
      : command.start > 1 ? `${whole(command.start - 1)} ${command.start === 2 ? "restart" : "restarts"}` : "the first"),
    figure("Out of memory", whole(figures.out_of_memory), figures.out_of_memory ? `${whole(figures.recovered)} recovered`
      : "never", null, figures.out_of_memory > figures.recovered ? "alert" : ""),
    figure("Micro-batch", batch, command.micro_batch ? "x gradient accumulation" : "not known"),
    figure("Memory in RAM", bytes(figures.highest_resident), limit ? `at most, of ${bytes(limit)}` : "at most",
      limit ? figures.highest_resident / limit : null),
    figure("On cards", onCards ? bytes(onCards) : "–", onCards ? "at most, by all programs" : "no card was seen"),
  );
}

function showOutput(data) {
  const lines = (data && data.output) || [];
  byId("output-card").hidden = lines.length === 0;
  const box = byId("output");
  const text = lines.join("\n");
  if (box.textContent === text) return;
  // Whoever scrolled up to read something stays there.
  const isAtEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 8;
  box.textContent = text;
  if (isAtEnd) box.scrollTop = box.scrollHeight;
}

function showHolding(run) {
  const { allocated, peak, reserved } = run.figures;
  const line = run.header && run.header.line;
  byId("holding-card").hidden = peak === 0;
  const parts = [
    ["--rest", "between steps (weights, moments)", allocated],
    ["--peak", "more within a step (activations, gradients)", Math.max(0, peak - allocated)],
    ["--reserved", "cached by the allocator", Math.max(0, reserved - peak)],
  ];
  if (line) parts.push(["--free", "free under the line", Math.max(0, line - reserved)]);
  const all = parts.reduce((sum, part) => sum + part[2], 0) || 1;
  byId("holding").replaceChildren(...parts.map(([name, , size]) =>
    element("i", { style: `background:var(${name});width:${(100 * size / all).toFixed(3)}%` })));
  byId("holding-words").replaceChildren(...parts.map(([name, words, size]) =>
    element("li", {}, element("i", { style: `background:var(${name})` }), element("b", {}, bytes(size)), ` ${words}`)));
}

function showLive() {
  const live = view.live || { gauges: [], on_cards: [], holders: [], notes: [], unlisted: 0 };
  byId("live-card").hidden = live.gauges.length === 0;
  byId("gauges").replaceChildren(...live.gauges.map((gauge) => {
    const of = gauge.of ? ` of ${bytes(gauge.of)}` : "";
    const share = gauge.of ? gauge.used / gauge.of : 0;
    const box = element("div", { className: share > 0.9 ? "gauge near" : "gauge" },
      element("b", {}, gauge.name), ` ${bytes(gauge.used)}${of} `, element("span", {}, gauge.note || ""));
    if (gauge.of) {
      const width = Math.min(100, 100 * share).toFixed(2);
      box.append(element("div", { className: "stack" }, element("i", { style: `width:${width}%` })));
    }
    return box;
  }));
  const more = live.unlisted > 0 ? [`${whole(live.unlisted)} more processes are not listed.`] : [];
  byId("notes").textContent = live.notes.concat(more).join(" ");
  const severalCards = new Set(live.on_cards.map((holder) => holder.card)).size > 1;
  showHolders("on-cards", live.on_cards, severalCards);
  showHolders("holders", live.holders, false);
}
function showHolders(id, holders, withCard) {
  byId(`${id}-part`).hidden = holders.length === 0;
  byId(id).replaceChildren(...holders.map((holder) => {
    const place = withCard ? `, GPU ${holder.card}` : "";
    const name = element("td", { title: holder.name }, holder.name || "another container's",
      element("small", {}, ` ${holder.pid}${place}`));
    const made = element("tr", {}, name, element("td", {}, bytes(holder.used)));
    made.classList.toggle("watched", holder.watched && id === "on-cards");
    return made;
  }));
}

function showCompare() {
  byId("compare-card").hidden = view.runs.length < 2;
  if (view.runs.length < 2) return;
  const names = ["run", "state", "steps", "loss", "evaluation", "memory at most", "line", "out of memory", "time"];
  const row = (run) => {
    const { figures, header: head } = run;
    const name = element("td", {}, element("i", { style: `background:${runColour(run.id)}` }), run.name);
    const line = head && head.line ? bytes(head.line) : "none";
    const cells = [run.state === "ended" ? run.how : run.state, whole(figures.step), short(figures.loss),
      short(figures.eval_loss), bytes(figures.highest_reserved), line, whole(figures.out_of_memory),
      span(figures.time)];
    const made = element("tr", { className: run.id === view.chosen ? "chosen" : "" }, name,
      ...cells.map((cell) => element("td", {}, cell)));
    made.onclick = () => choose(run.id);
    return made;
  };
  byId("compare").replaceChildren(
    element("thead", {}, element("tr", {}, ...names.map((name) => element("th", {}, name)))),
    element("tbody", {}, ...view.runs.map(row)));
}

const SUMMARY = [
  ["stopped", "ended", String], ["steps", "steps", whole], ["effective_batch", "samples in a step", whole],
  ["micro_batch_final", "computed at once at the end", whole], ["precision", "precision", String],
  ["parameters", "parameters", whole], ["line_bytes", "line", bytes], ["host_line_bytes", "line of the host", bytes],
  ["peak_reserved_bytes", "most memory of the device", bytes],
  ["peak_allocated_bytes", "most memory of tensors", bytes],
  ["peak_rss_bytes", "most memory of the process", bytes], ["oom_errors", "out of memory", whole],
  ["oom_recovered", "recovered from", whole], ["samples_seen", "samples trained on", whole],
  ["samples_lost", "samples lost", whole], ["final_loss", "loss of the last steps", short],
  ["eval_loss", "loss of the last evaluation", short], ["loss_floor", "least loss possible", short],
  ["wall_seconds", "time", span], ["ending", "ended", String], ["restarts", "restarts", whole],
  ["exit_code", "exit code", whole], ["seconds", "time", span], ["weights_sha256", "weights (SHA-256)", String],
];
function showSummary(data) {
  const summary = data && data.summary;
  byId("summary-card").hidden = !summary;
  if (!summary) return;
  const known = SUMMARY.filter(([key]) => summary[key] !== null && summary[key] !== undefined);
  const rows = known.map(([key, words, told]) => [words, told(summary[key])]);
  rows.push(...Object.entries(summary.metrics || {}).map(([name, value]) => [name, short(value)]));
  byId("summary").replaceChildren(...rows.map(([words, value]) =>
    element("tr", {}, element("td", {}, words), element("td", {}, value))));
}

function showPlan(data) {
  const rows = (data && data.forecasts) || [];
  byId("plan-card").hidden = rows.length === 0;
  const percent = (row) => `${Math.round(100 * row.measured / row.foreseen)} %`;
  const share = (row) => (row.foreseen && row.measured !== null ? percent(row) : "");
  const cells = (row) => [row.what, row.foreseen ? bytes(row.foreseen) : "–", row.by || "",
    row.measured === null ? "memory ran out" : bytes(row.measured), share(row)];
  const line = (tag, texts) => element("tr", {}, ...texts.map((text) => element(tag, {}, text)));
  byId("plan").replaceChildren(
    element("thead", {}, line("th", ["", "foreseen", "by", "measured", ""])),
    element("tbody", {}, ...rows.map((row) => line("td", cells(row)))));
}

const STORY = 400;
function showStory(data) {
  byId("filters").replaceChildren(...Object.entries(FILTERS).map(([key, [words]]) => {
    const button = element("button", {}, words);
    button.setAttribute("aria-pressed", String(view.filter === key));
    button.onclick = () => { view.filter = key; view.told = null; show(); };
    return button;
  }));
  const marks = data ? data.marks.filter(FILTERS[view.filter][1]) : [];
  const last = marks[marks.length - 1];
  const told = `${view.chosen} ${view.filter} ${marks.length} ${last ? last.time : ""}`;
  // The list is made only when it changes, so that opened details stay open.
  if (told === view.told) return;
  view.told = told;
  const items = marks.slice(-STORY).reverse().map((mark) => {
    const item = element("li", { style: `--dot:var(${MARK_COLOUR[mark.kind]})` },
      element("time", {}, `${span(mark.time)} · step ${whole(mark.step)}`), mark.text);
    item.dataset.kind = mark.kind;
    if (mark.detail) item.append(element("details", {}, element("summary", {}, "what the engine said"), mark.detail));
    return item;
  });
  const before = marks.length - STORY;
  if (before > 0) items.push(element("li", { className: "none" }, `and ${whole(before)} before`));
  if (items.length === 0) items.push(element("li", { className: "none" }, "Nothing yet."));
  byId("story").replaceChildren(...items);
}

function entry(name, words, kind = "") {
  const style = `background:var(${name});border-color:var(${name})`;
  return element("span", {}, element("i", { className: kind, style }), words);
}
function showLegend(data) {
  showHostLegend(data);
  const ofCards = runCards(data).map((name) => entry("--card-used", `all on ${cardName(name)}`, "stroke"));
  const own = view.runs[view.chosen].isProcess ? "this process, on all cards" : "the command, on all cards";
  if (view.runs[view.chosen].isBare) {
    const held = has(data && data.host.process_on_cards) ? [entry("--peak", own)] : [];
    byId("legend").replaceChildren(...held, ...ofCards);
    return;
  }
  const kinds = new Set(data ? data.marks.map((mark) => mark.kind) : []);
  const marked = (kind, ...made) => (kinds.has(kind) ? [entry(...made)] : []);
  byId("legend").replaceChildren(
    entry("--peak", "in use during a step"), entry("--rest", "in use between steps"),
    entry("--reserved", "reserved", "stroke"), ...ofCards,
    ...(data && data.points.line.some((line) => line !== null) ? [entry("--line", "the line", "stroke dash")] : []),
    ...marked("out_of_memory", "--oom", "out of memory", "mark"),
    ...marked("rung", "--rung", "answer of the guard", "mark"),
    ...marked("cleaned", "--clean", "cleaned", "mark"), ...marked("evaluated", "--eval", "evaluation", "mark"),
    ...marked("saved", "--save", "checkpoint", "mark"));
}

function cardName(name) { return name === "device_used" ? "the card" : name.replace(/^gpu(\d+)_used$/, "GPU $1"); }
function showHostLegend(data) {
  if (!hasHost(data)) return;
  const run = view.runs[view.chosen];
  const own = run.isProcess ? "this process" : run.command ? "lowtide run" : "this run";
  const below = run.command ? "the command" : "its children";
  const kinds = new Set(run.command ? data.marks.map((mark) => mark.kind) : []);
  byId("host-legend").replaceChildren(
    ...(has(data.host.process_resident) && !run.command ? [entry("--own", own)] : []),
    ...((data.host.children_resident || []).some((value) => value > 0) ? [entry("--below", below)] : []),
    ...(kinds.has("out_of_memory") ? [entry("--oom", "out of memory", "mark")] : []),
    ...(kinds.has("rung") ? [entry("--rung", "restart", "mark")] : []),
    ...(has(data.host.host_used) ? [entry("--reserved", "all who share the host", "stroke")] : []),
    ...(hostLimitIsNear(data) ? [entry("--line", "the most there is", "stroke dash")] : []));
}

// ---- samples of the machine

function has(values) { return Boolean(values) && values.some((value) => value !== null); }
function hasHost(data) { return Boolean(data && data.host && data.host.time && data.host.time.length > 0); }
/** The names of the curves of cards. */
function cards(data) {
  return hasHost(data) ? Object.keys(data.host).filter((name) => /^gpu\d+_used$/.test(name)) : [];
}
/**
 * The cards that are drawn: with a process all, with a run those that it is on. CUDA numbers cards in its own way, so
 * the name of a run's device does not tell which.
 */
function runCards(data) {
  const run = view.runs[view.chosen];
  const all = cards(data);
  if (run.isBare) return all;
  if (!run.header || !run.header.device.startsWith("cuda")) return [];
  if (has(data.host.device_used)) return ["device_used"];
  const own = new Set(view.live.on_cards.filter((holder) => holder.watched).map((holder) => `gpu${holder.card}_used`));
  return all.length === 1 ? all : all.filter((name) => own.has(name));
}
function together(data) {
  const { process_resident: own = [], children_resident: below = [] } = data.host;
  return own.map((value, at) => (value === null ? null : value + (below[at] || 0)));
}
function hostMost(data) {
  return Math.max(1024, ...(data.host.host_used || []).map(Number), ...together(data).map(Number));
}
/** The most memory of the host that there is: as the run noted it, or as it is now. */
function hostLimit() {
  const { figures } = view.runs[view.chosen];
  return (figures && figures.host_total) || (view.live && view.live.host_limit);
}
function hostLimitIsNear(data) { return Boolean(hostLimit()) && hostLimit() < 2.5 * hostMost(data); }
/** Times and values of a figure where it is known: a run notes some less often than others are sampled. */
function known(host, name) {
  const at = (host[name] || []).flatMap((value, index) => (value === null ? [] : [index]));
  return [at.map((index) => host.time[index]), at.map((index) => host[name][index])];
}

// ---- charts

const LEFT = 62, RIGHT = 12, TOP = 24, BOTTOM = 22;

function canvas(id) {
  const element = byId(id);
  const ratio = window.devicePixelRatio || 1;
  const { width, height } = element.getBoundingClientRect();
  if (element.width !== Math.round(width * ratio) || element.height !== Math.round(height * ratio)) {
    element.width = Math.round(width * ratio);
    element.height = Math.round(height * ratio);
  }
  const pen = element.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.font = `11px ${getComputedStyle(document.body).fontFamily}`;
  return { pen, width, height };
}

/** Round numbers between two values; for sizes in powers of 1024. */
function ticks(low, high, wanted, base) {
  if (!(high > low)) return [];
  let unit = 1;
  if (base === 1024) while (high / unit >= 1024) unit *= 1024;
  const rough = (high - low) / unit / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const sizes = [1, 2, 2.5, 5, 10].map((factor) => factor * power * unit);
  const round = sizes.find((size) => (high - low) / size <= wanted * 1.3);
  const found = [];
  for (let value = Math.ceil(low / round) * round; value <= high * (1 + 1e-9); value += round) found.push(value);
  return found;
}
function timeTicks(low, high, wanted) {
  const sizes = [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400];
  const round = sizes.concat([172800, 604800])
    .find((size) => (high - low) / size <= wanted) || 2592000;
  const found = [];
  for (let value = Math.ceil(low / round) * round; value <= high; value += round) found.push(value);
  return found;
}

function timeRange(data) {
  if (view.zoom) return view.zoom;
  const shown = view.data.filter((other) => other && other.points.time.length > 0);
  const lasting = (other) => other.points.time[other.points.time.length - 1] || 0;
  const ends = (view.runs.length > 1 ? shown : [data]).map(lasting);
  const marks = data.marks.length ? data.marks[data.marks.length - 1].time : 0;
  const sampled = hasHost(data) ? data.host.time[data.host.time.length - 1] : 0;
  return [0, Math.max(1, marks, sampled, ...ends)];
}

function scales(size, range, low, high, top = TOP, logarithmic = false) {
  const inner = { left: LEFT, right: size.width - RIGHT, top, bottom: size.height - BOTTOM };
  const turn = logarithmic ? Math.log : (value) => value;
  const [from, to] = [turn(low), turn(high)];
  return {
    ...inner,
    x: (time) => inner.left + (time - range[0]) / (range[1] - range[0]) * (inner.right - inner.left),
    y: (value) => inner.bottom - (turn(value) - from) / (to - from || 1) * (inner.bottom - inner.top),
    time: (x) => range[0] + (x - inner.left) / (inner.right - inner.left) * (range[1] - range[0]),
  };
}

function axes(pen, scale, range, values, told) {
  pen.strokeStyle = colour("--grid");
  pen.fillStyle = colour("--soft");
  pen.lineWidth = 1;
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  for (const value of values) {
    const y = Math.round(scale.y(value)) + 0.5;
    pen.beginPath(); pen.moveTo(scale.left, y); pen.lineTo(scale.right, y); pen.stroke();
    pen.fillText(told(value), scale.left - 7, y);
  }
  pen.textAlign = "center";
  pen.textBaseline = "top";
  for (const time of timeTicks(range[0], range[1], (scale.right - scale.left) / 75)) {
    const x = scale.x(time);
    if (x > scale.left + 8 && x < scale.right - 14) pen.fillText(span(time), x, scale.bottom + 7);
  }
}

function within(pen, scale, work) {
  pen.save();
  pen.beginPath();
  pen.rect(scale.left, 0, scale.right - scale.left, scale.bottom + 1);
  pen.clip();
  work();
  pen.restore();
}

/** A path through the values that are there; it is broken where one is missing. */
function trace(pen, times, values, scale) {
  pen.beginPath();
  let drawing = false;
  for (let index = 0; index < times.length; index += 1) {
    if (values[index] === null) { drawing = false; continue; }
    const [x, y] = [scale.x(times[index]), scale.y(values[index])];
    if (drawing) pen.lineTo(x, y); else pen.moveTo(x, y);
    drawing = true;
  }
}
/** The area under a curve; parts where a value is missing stay empty. */
function area(pen, times, values, scale, name, strength) {
  pen.globalAlpha = strength;
  pen.fillStyle = colour(name);
  for (let from = 0; from < times.length; from += 1) {
    if (values[from] === null) continue;
    let to = from;
    while (to + 1 < times.length && values[to + 1] !== null) to += 1;
    trace(pen, times.slice(from, to + 1), values.slice(from, to + 1), scale);
    pen.lineTo(scale.x(times[to]), scale.bottom);
    pen.lineTo(scale.x(times[from]), scale.bottom);
    pen.closePath();
    pen.fill();
    from = to;
  }
  pen.globalAlpha = 1;
}
function stroke(pen, name, width, dash = []) {
  pen.strokeStyle = name.startsWith("--") ? colour(name) : name;
  pen.lineWidth = width;
  pen.setLineDash(dash);
  pen.lineJoin = "round";
  pen.stroke();
  pen.setLineDash([]);
}

/** Evaluations, checkpoints and the search for a micro-batch as bands behind the chart. */
function shade(pen, data, scale) {
  const bands = { evaluated: "--eval", saved: "--save", probed: "--sized" };
  for (const mark of data.marks) {
    const name = bands[mark.kind];
    if (!name || mark.count > 1) continue;
    const [from, to] = [scale.x(mark.time - mark.seconds), scale.x(mark.time)];
    pen.globalAlpha = mark.kind === "evaluated" ? 0.22 : 0.16;
    pen.fillStyle = colour(name);
    pen.fillRect(from, scale.top, Math.max(1.5, to - from), scale.bottom - scale.top);
  }
  pen.globalAlpha = 1;
}

function rail(pen, data, scale) {
  for (const kind of RAIL) {
    for (const mark of data.marks) {
      if (mark.kind !== kind) continue;
      const x = scale.x(mark.time);
      pen.fillStyle = colour(MARK_COLOUR[kind]);
      const failed = kind === "out_of_memory" || kind === "evaluation_failed";
      if (failed || kind === "rung" || kind === "cleaned") {
        pen.globalAlpha = 0.55;
        pen.fillRect(x - 0.6, scale.top - 8, 1.2, scale.bottom - scale.top + 8);
        pen.globalAlpha = 1;
      }
      pen.beginPath();
      if (failed) {
        pen.moveTo(x, scale.top - 3);
        pen.lineTo(x - 6, scale.top - 14);
        pen.lineTo(x + 6, scale.top - 14);
        pen.closePath();
      } else {
        pen.arc(x, scale.top - 8, kind === "saved" || kind === "evaluated" ? 2.5 : 4, 0, 7);
      }
      pen.fill();
    }
  }
}

function rounded(value) {
  return value === 0 ? "0" : bytes(value).replace(/\.00 /, " ").replace(/(\.\d)0 /, "$1 ");
}

function drawMemory(data) {
  const size = canvas("memory");
  const { pen } = size;
  const { points } = data;
  const range = timeRange(data);
  const others = view.runs.length > 1 ? view.data.filter((other, id) => other && id !== view.chosen) : [];
  const most = ({ points }) => Math.max(0, ...points.reserved, ...points.peak, ...points.line.map(Number));
  const ofCards = runCards(data).flatMap((name) => data.host[name].map(Number));
  const high = Math.max(1024, ...[data, ...others].map(most), ...ofCards) * 1.07;
  const scale = scales(size, range, 0, high);
  axes(pen, scale, range, ticks(0, high, 5, 1024), rounded);
  within(pen, scale, () => {
    shade(pen, data, scale);
    for (const name of runCards(data)) {
      trace(pen, ...known(data.host, name), scale); stroke(pen, "--card-used", 1.2);
    }
    if (view.runs[view.chosen].isBare && has(data.host.process_on_cards)) {
      area(pen, ...known(data.host, "process_on_cards"), scale, "--peak", 0.5);
    }
    area(pen, points.time, points.peak, scale, "--peak", 0.38);
    trace(pen, points.time, points.peak, scale); stroke(pen, "--peak", 1.5);
    area(pen, points.time, points.allocated, scale, "--rest", 0.6);
    trace(pen, points.time, points.reserved, scale); stroke(pen, "--reserved", 1.5);
    view.data.forEach((other, id) => {
      if (!other || id === view.chosen) return;
      trace(pen, other.points.time, other.points.peak, scale);
      pen.globalAlpha = 0.8; stroke(pen, runColour(id), 1.2); pen.globalAlpha = 1;
    });
    drawLine(pen, points, range, scale);
    rail(pen, data, scale);
    crosshair(pen, scale);
  });
  const failed = data.marks.filter((mark) => mark.kind === "out_of_memory");
  const failures = failed.reduce((sum, mark) => sum + mark.count, 0);
  const label = `Memory over time: ${points.time.length} points, out of memory ${failures} times`;
  byId("memory").setAttribute("aria-label", label);
}

function drawHost(data) {
  const size = canvas("host");
  const { pen } = size;
  const range = timeRange(data);
  const limit = hostLimitIsNear(data) ? hostLimit() : 0;
  const high = Math.max(hostMost(data), limit) * 1.07;
  const { isBare } = view.runs[view.chosen];
  const scale = scales(size, range, 0, high, isBare ? TOP : 8);
  axes(pen, scale, range, ticks(0, high, 4, 1024), rounded);
  within(pen, scale, () => {
    const { time } = data.host;
    area(pen, time, together(data), scale, "--below", 0.7);
    area(pen, time, data.host.process_resident || [], scale, "--own", 0.75);
    trace(pen, ...known(data.host, "host_used"), scale); stroke(pen, "--reserved", 1.5);
    if (limit) {
      trace(pen, range, [limit, limit], scale); stroke(pen, "--line", 1.8, [7, 4]);
    }
    if (isBare) rail(pen, data, scale);
    crosshair(pen, scale);
  });
  byId("host").setAttribute("aria-label", `Host memory over time: ${data.host.time.length} points`);
}

/** The line holds from the start of a run to its newest moment. */
function drawLine(pen, points, range, scale) {
  if (points.time.length === 0) return;
  const times = [0, ...points.time, Math.max(range[1], points.time[points.time.length - 1])];
  const lines = [points.line[0], ...points.line, points.line[points.line.length - 1]];
  trace(pen, times, lines, scale);
  stroke(pen, "--line", 1.8, [7, 4]);
}

function drawLoss(data) {
  const size = canvas("loss");
  const { pen } = size;
  const range = timeRange(data);
  const shown = view.data.filter((other) => other);
  const evaluations = (other) => other.marks.filter((mark) => mark.kind === "evaluated" && mark.loss !== null);
  const values = shown.flatMap((other) => other.points.loss.filter((loss) => loss !== null)
    .concat(evaluations(other).map((mark) => mark.loss)));
  const label = `Loss over time: ${data.points.loss.length} points, ${evaluations(data).length} evaluations`;
  byId("loss").setAttribute("aria-label", label);
  if (values.length === 0) return;
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) [low, high] = [Math.min(low, value), Math.max(high, value)];
  const logarithmic = low > 0 && high / low > 12;
  const room = (high - low || 1) * 0.06;
  [low, high] = logarithmic ? [low * 0.9, high * 1.1] : [low - room, high + room];
  const scale = scales(size, range, low, high, 8, logarithmic);
  const marks = logarithmic
    ? [1e-4, 1e-3, 0.01, 0.1, 1, 10, 100, 1000].flatMap((power) => [power, 3 * power])
      .filter((value) => value >= low && value <= high)
    : ticks(low, high, 4);
  axes(pen, scale, range, marks, (value) => String(Number(value.toPrecision(6))));
  within(pen, scale, () => {
    shade(pen, data, scale);
    view.data.forEach((other, id) => {
      if (!other) return;
      const chosen = id === view.chosen;
      trace(pen, other.points.time, other.points.loss, scale);
      pen.globalAlpha = chosen ? 1 : 0.55;
      stroke(pen, view.runs.length > 1 ? runColour(id) : "--loss", chosen ? 1.7 : 1.1);
      pen.globalAlpha = 1;
    });
    for (const mark of evaluations(data)) {
      pen.beginPath(); pen.arc(scale.x(mark.time), scale.y(mark.loss), 3.2, 0, 7);
      pen.fillStyle = colour("--eval"); pen.fill();
    }
    crosshair(pen, scale);
  });
}

function crosshair(pen, scale) {
  if (view.drag && view.drag.to !== null) {
    const [from, to] = [scale.x(view.drag.from), scale.x(view.drag.to)];
    pen.globalAlpha = 0.15; pen.fillStyle = colour("--text");
    pen.fillRect(Math.min(from, to), 0, Math.abs(to - from), scale.bottom); pen.globalAlpha = 1;
  }
  if (view.hover === null) return;
  const x = Math.round(scale.x(view.hover)) + 0.5;
  pen.beginPath(); pen.moveTo(x, 0); pen.lineTo(x, scale.bottom);
  stroke(pen, "--soft", 1, [3, 3]);
}

function draw() {
  const data = view.data[view.chosen];
  if (!data) return;
  const { isBare } = view.runs[view.chosen];
  // All charts are as wide as each other, so one scale of time serves them all.
  const { width } = byId(isBare ? "host" : "memory").getBoundingClientRect();
  view.scale = scales({ width, height: 100 }, timeRange(data), 0, 1);
  if (!byId("memory-part").hidden) drawMemory(data);
  if (hasHost(data)) drawHost(data);
  if (!isBare) drawLoss(data);
  document.querySelectorAll(".zoomed").forEach((part) => { part.hidden = view.zoom === null; });
  document.body.dataset.drawn = String(data.points.time.length);
  document.body.dataset.sampled = String(hasHost(data) ? data.host.time.length : 0);
}

// ---- hover and zoom

/** The number of the point at or after a time. */
function nearest(times, time) {
  let [low, high] = [0, times.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] < time) low = middle + 1; else high = middle;
  }
  return low > 0 && time - times[low - 1] < times[low] - time ? low - 1 : low;
}

function pointRows({ points }) {
  if (points.time.length === 0) return [];
  const at = nearest(points.time, view.hover);
  const line = points.line[at];
  return [
    ["step", whole(points.step[at])], ["time", span(points.time[at])], ["during a step", bytes(points.peak[at])],
    ["between steps", bytes(points.allocated[at])], ["reserved", bytes(points.reserved[at])],
    ...(line === null ? [] : [["line", bytes(line)]]),
    ...(line === null ? [] : [["free under it", bytes(Math.max(0, line - points.reserved[at]))]]),
    ["loss", short(points.loss[at])], ["computed at once", whole(points.micro_batch[at])],
  ];
}
function hostRows(data) {
  if (!hasHost(data)) return [];
  const { host } = data;
  const at = nearest(host.time, view.hover);
  const [from, to] = timeRange(data);
  // Samples are there only from when somebody watched.
  if (Math.abs(host.time[at] - view.hover) > Math.max(3, (to - from) / 50)) return [];
  const told = (name, words) => (host[name] && host[name][at] !== null ? [[words, bytes(host[name][at])]] : []);
  return [
    ...(view.runs[view.chosen].isBare ? [["time", span(host.time[at])]] : []),
    ...runCards(data).flatMap((name) => told(name, `all on ${cardName(name)}`)),
    ...(cards(data).length > 0 ? told("process_on_cards", "of it this process") : []),
    ...(view.runs[view.chosen].command ? [] : told("process_resident", "process, on the host")),
    ...(host.children_resident && host.children_resident[at] > 0
      ? told("children_resident", view.runs[view.chosen].command ? "the command, on the host" : "its children") : []),
    ...told("host_used", "all on the host"),
  ];
}

function tip(x, target) {
  const data = view.data[view.chosen];
  const box = byId("tip");
  const rows = view.hover === null || !data ? [] : [...pointRows(data), ...hostRows(data)];
  if (rows.length === 0) { box.hidden = true; return; }
  const isNear = (mark) => Math.abs(view.scale.x(mark.time) - x) < 6 && mark.kind !== "saved";
  const near = data.marks.filter(isNear).slice(-3).map((mark) => element("p", {}, mark.text));
  const row = ([name, value]) => element("tr", {}, element("td", {}, name), element("td", {}, value));
  box.replaceChildren(element("table", {}, ...rows.map(row)), ...near);
  box.hidden = false;
  const { width } = target.getBoundingClientRect();
  const { offsetLeft, offsetTop } = target.parentElement;
  const beside = x + box.offsetWidth + 24 > width ? Math.max(0, x - box.offsetWidth - 12) : x + 12;
  box.style.left = `${offsetLeft + beside}px`;
  box.style.top = `${offsetTop + 28}px`;
}

for (const id of ["memory", "host", "loss"]) {
  const target = byId(id);
  const place = (event) => {
    const x = event.clientX - target.getBoundingClientRect().left;
    return [x, view.scale ? Math.max(0, view.scale.time(Math.max(LEFT, x))) : 0];
  };
  target.addEventListener("pointermove", (event) => {
    const [x, time] = place(event);
    view.hover = time;
    if (view.drag) view.drag.to = time;
    draw(); tip(x, target);
  });
  target.addEventListener("pointerleave", () => { view.hover = null; draw(); tip(0, target); });
  target.addEventListener("pointerdown", (event) => {
    if (event.pointerType === "mouse") view.drag = { from: place(event)[1], to: null, x: place(event)[0] };
  });
  target.addEventListener("pointerup", (event) => {
    const { drag } = view;
    view.drag = null;
    if (!drag || drag.to === null || Math.abs(place(event)[0] - drag.x) < 8) return;
    view.zoom = [Math.min(drag.from, drag.to), Math.max(drag.from, drag.to)];
    draw();
  });
  target.addEventListener("dblclick", () => { view.zoom = null; draw(); });
}
document.querySelectorAll(".zoomed button").forEach((button) => {
  button.onclick = () => { view.zoom = null; draw(); };
});
window.addEventListener("resize", draw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);

// ---- data

function choose(id) {
  view.chosen = id;
  view.zoom = null;
  show();
}

/** The first values; what a figure that came later has not is missing. */
function upTo(values, number) {
  return values.slice(0, number).concat(Array(Math.max(0, number - values.length)).fill(null));
}

/** Takes what is new of a run into what is there. */
function take(id, news) {
  const known = view.data[id];
  const anew = !known || known.generation !== news.generation;
  const kept = anew ? { points: {}, marks: [], host: {} } : known;
  const columns = (old, more, from) => Object.fromEntries(Object.entries(more)
    .map(([name, values]) => [name, upTo(old[name] || [], from).concat(values)]));
  const points = columns(kept.points, news.points, news.points_from);
  const host = columns(kept.host, news.host, news.host_from);
  const marks = kept.marks.slice(0, news.marks_from).concat(news.marks);
  const { generation, summary, forecasts, output } = news;
  view.data[id] = { generation, points, marks, host, summary, forecasts, output };
}

async function ask(path) {
  const joint = path.includes("?") ? "&" : "?";
  const answer = await fetch(token ? `${path}${joint}token=${encodeURIComponent(token)}` : path, { cache: "no-store" });
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
}

async function askForRun(id) {
  const known = view.data[id];
  const seen = known && { generation: known.generation, points: known.points.time.length, marks: known.marks.length,
    moments: (known.host.time || []).length };
  const query = seen ? `?${new URLSearchParams(seen)}` : "";
  take(id, await ask(`api/${view.runs[id].isProcess ? "process" : `run/${id}`}${query}`));
}

/** The run to look at first: one that is under way, else the last. */
function firstChoice(runs) {
  const running = runs.findLast((run) => run.state === "running");
  return (running || runs[runs.length - 1] || { id: null }).id;
}

/** What is listed: runs, or a process in their place. */
function listed({ runs, process }) {
  // What is seen from outside alone has neither steps of its own nor a loss.
  if (!process) return runs.map((run) => ({ ...run, isBare: Boolean(run.command) }));
  const { name, state_text, is_running } = process;
  return [{ id: 0, name, state_text, process, isProcess: true, isBare: true, state: is_running ? "running" : "over", unread: 0 }];
}

let polls = 0;
async function poll() {
  try {
    const list = await ask("api/runs");
    [view.runs, view.live] = [listed(list), list.live];
    if (view.chosen === null) view.chosen = firstChoice(view.runs);
    // Runs that are only compared change nothing of what is read most, so they are asked for less often.
    const isDue = (run) => polls % 5 === 0 && run.state === "running";
    const isWanted = (run) => run.id === view.chosen || !view.data[run.id] || isDue(run);
    const wanted = view.runs.filter(isWanted);
    await Promise.all(wanted.map((run) => askForRun(run.id)));
    view.lost = false;
  } catch (error) {
    view.lost = true;
    say("lowtide watch does not answer: it has ended, or the way to it is cut. This is what it said last.");
  }
  polls += 1;
  setTimeout(poll, document.hidden ? 5000 : view.lost ? 3000 : 1000);
  if (!view.lost) show();
}

if (embedded) {
  [view.runs, view.live] = [listed(embedded), embedded.live];
  embedded.data.forEach((news, id) => take(id, news));
  view.chosen = firstChoice(view.runs);
  show();
} else {
  poll();
}
