// The cards below the charts: what holds memory, the machine, runs side by side, the summary.

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
