// What every chart is made of: scales, axes, curves and areas.

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

function scales(size, range, low, high, top = TOP, logarithmic = false) {
  const inner = { left: LEFT, right: size.width - RIGHT, top, bottom: size.height - BOTTOM };
  const turn = logarithmic ? Math.log : (value) => value;
  const [from, to] = [turn(low), turn(high)];
  return {
    ...inner,
    x: (value) => inner.left + (value - range[0]) / (range[1] - range[0]) * (inner.right - inner.left),
    y: (value) => inner.bottom - (turn(value) - from) / (to - from || 1) * (inner.bottom - inner.top),
    value: (x) => range[0] + (x - inner.left) / (inner.right - inner.left) * (range[1] - range[0]),
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
  for (const value of axisTicks(range[0], range[1], (scale.right - scale.left) / 75)) {
    const x = scale.x(value);
    if (x > scale.left + 8 && x < scale.right - 14) pen.fillText(axisWords(value), x, scale.bottom + 7);
  }
  pen.textAlign = "right";
  pen.fillText(view.isByStep ? "step" : "time", scale.left - 7, scale.bottom + 7);
}

function within(pen, scale, work) {
  pen.save();
  pen.beginPath();
  pen.rect(scale.left, 0, scale.right - scale.left, scale.bottom + 1);
  pen.clip();
  work();
  pen.restore();
}

/** A path through the values that are there; it is broken where one is missing, and where a run went back to earlier steps. */
function trace(pen, xs, values, scale) {
  pen.beginPath();
  let drawing = false;
  for (let index = 0; index < xs.length; index += 1) {
    if (values[index] === null || values[index] === undefined) { drawing = false; continue; }
    if (xs[index] < xs[index - 1]) drawing = false;
    const [x, y] = [scale.x(xs[index]), scale.y(values[index])];
    if (drawing) pen.lineTo(x, y); else pen.moveTo(x, y);
    drawing = true;
  }
}
/** The area under a curve; parts where a value is missing stay empty. */
function area(pen, xs, values, scale, name, strength) {
  pen.globalAlpha = strength;
  pen.fillStyle = colour(name);
  const isThere = (index) => values[index] !== null && values[index] !== undefined;
  for (let from = 0; from < xs.length; from += 1) {
    if (!isThere(from)) continue;
    let to = from;
    while (to + 1 < xs.length && isThere(to + 1) && xs[to + 1] >= xs[to]) to += 1;
    trace(pen, xs.slice(from, to + 1), values.slice(from, to + 1), scale);
    pen.lineTo(scale.x(xs[to]), scale.bottom);
    pen.lineTo(scale.x(xs[from]), scale.bottom);
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
