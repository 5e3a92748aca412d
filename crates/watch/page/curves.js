// The charts.

function rounded(value) {
  return value === 0 ? "0" : bytes(value).replace(/\.00 /, " ").replace(/(\.\d)0 /, "$1 ");
}

function drawMemory(data) {
  const size = canvas("memory");
  const { pen } = size;
  const { points } = data;
  const range = axisRange(data);
  const others = view.runs.length > 1 ? view.data.filter((other, id) => other && id !== view.chosen) : [];
  const most = ({ points }) => Math.max(0, ...points.reserved, ...points.peak, ...points.line.map(Number));
  const ofCards = runCards(data).flatMap((name) => data.host[name].map(Number));
  const tried = failedTries(data).map((mark) => mark.reserved);
  const high = Math.max(1024, ...[data, ...others].map(most), ...ofCards, ...tried) * 1.07;
  const scale = scales(size, range, 0, high);
  axes(pen, scale, range, ticks(0, high, 5, 1024), rounded);
  within(pen, scale, () => {
    shade(pen, data, scale);
    for (const name of runCards(data)) {
      trace(pen, ...known(data, name), scale); stroke(pen, "--card-used", 1.2);
    }
    if (view.runs[view.chosen].isBare && has(data.host.process_on_cards)) {
      area(pen, ...known(data, "process_on_cards"), scale, "--peak", 0.5);
    }
    const xs = pointPlaces(data);
    area(pen, xs, points.peak, scale, "--peak", 0.38);
    trace(pen, xs, points.peak, scale); stroke(pen, "--peak", 1.5);
    area(pen, xs, points.allocated, scale, "--rest", 0.6);
    trace(pen, xs, points.reserved, scale); stroke(pen, "--reserved", 1.5);
    view.data.forEach((other, id) => {
      if (!other || id === view.chosen) return;
      trace(pen, pointPlaces(other), other.points.peak, scale);
      pen.globalAlpha = 0.8; stroke(pen, runColour(id), 1.2); pen.globalAlpha = 1;
    });
    drawLimit(pen, data, range, scale);
    crosshair(pen, scale);
  });
  drawFailedTries(pen, data, scale);
  rail(pen, data, scale);
  const failed = data.marks.filter((mark) => mark.kind === "out_of_memory");
  const failures = failed.reduce((sum, mark) => sum + mark.count, 0);
  const label = `Memory over ${view.isByStep ? "steps" : "time"}: ${points.time.length} points, out of memory ${failures} times`;
  byId("memory").setAttribute("aria-label", label);
}

function drawHost(data) {
  const size = canvas("host");
  const { pen } = size;
  const range = axisRange(data);
  const limit = hostLimitIsNear(data) ? hostLimit() : 0;
  const high = Math.max(hostMost(data), limit) * 1.07;
  const { isBare } = view.runs[view.chosen];
  const scale = scales(size, range, 0, high, isBare ? TOP : 8);
  axes(pen, scale, range, ticks(0, high, 4, 1024), rounded);
  within(pen, scale, () => {
    const xs = places(data, data.host.time);
    area(pen, xs, together(data), scale, "--below", 0.7);
    area(pen, xs, data.host.process_resident || [], scale, "--own", 0.75);
    if (has(data.host.reserve)) area(pen, ...known(data, "reserve"), scale, "--rung", 0.75);
    trace(pen, ...known(data, "host_used"), scale); stroke(pen, "--reserved", 1.5);
    if (limit) {
      trace(pen, range, [limit, limit], scale); stroke(pen, "--line", 1.8, [7, 4]);
    }
    crosshair(pen, scale);
  });
  if (isBare) rail(pen, data, scale);
  byId("host").setAttribute("aria-label", `Host memory over ${view.isByStep ? "steps" : "time"}: ${data.host.time.length} points`);
}

/** The limit holds from the start of a run to its newest moment. */
function drawLimit(pen, data, range, scale) {
  const { line } = data.points;
  if (line.length === 0) return;
  const xs = pointPlaces(data);
  const ends = [0, ...xs, Math.max(range[1], xs[xs.length - 1])];
  trace(pen, ends, [line[0], ...line, line[line.length - 1]], scale);
  stroke(pen, "--line", 1.8, [7, 4]);
}

function drawLoss(data) {
  const size = canvas("loss");
  const { pen } = size;
  const range = axisRange(data);
  const shown = view.data.filter((other) => other);
  const evaluations = (other) => other.marks.filter((mark) => mark.kind === "evaluated" && mark.loss !== null);
  const values = shown.flatMap((other) => other.points.loss.filter((loss) => loss !== null)
    .concat(evaluations(other).map((mark) => mark.loss)));
  const label = `Loss over ${view.isByStep ? "steps" : "time"}: ${data.points.loss.length} points, ${evaluations(data).length} evaluations`;
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
      trace(pen, pointPlaces(other), other.points.loss, scale);
      pen.globalAlpha = chosen ? 1 : 0.8;
      stroke(pen, view.runs.length > 1 ? runColour(id) : "--loss", chosen ? 1.7 : 1.3);
      pen.globalAlpha = 1;
    });
    for (const mark of evaluations(data)) {
      pen.beginPath(); pen.arc(scale.x(markPlace(mark)), scale.y(mark.loss), 3.2, 0, 7);
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
  view.isByStep = isByStep();
  const { isBare } = view.runs[view.chosen];
  // All charts are as wide as each other, so one scale of time or steps serves them all.
  const { width } = byId(isBare ? "host" : "memory").getBoundingClientRect();
  view.scale = scales({ width, height: 100 }, axisRange(data), 0, 1);
  if (!byId("memory-part").hidden) drawMemory(data);
  if (hasHost(data)) drawHost(data);
  if (!isBare) drawLoss(data);
  document.querySelectorAll(".zoomed").forEach((part) => { part.hidden = view.zoom === null; });
  document.body.dataset.drawn = String(data.points.time.length);
  document.body.dataset.axis = view.isByStep ? "step" : "time";
  document.body.dataset.sampled = String(hasHost(data) ? data.host.time.length : 0);
}
