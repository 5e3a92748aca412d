// Both charts: one scale along the events, memory upwards.

const LEFT = 78, RIGHT = 10, TOP = 12, BOTTOM = 22;

function colour(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }

function surface(id) {
  const element = byId(id);
  const ratio = window.devicePixelRatio || 1;
  const { width, height } = element.getBoundingClientRect();
  element.width = Math.round(width * ratio);
  element.height = Math.round(height * ratio);
  const pen = element.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.font = `11px ${getComputedStyle(document.body).fontFamily}`;
  return { pen, ...scale(width, height) };
}
function scale(width, height) {
  return { left: LEFT, right: width - RIGHT, top: TOP, bottom: height - BOTTOM };
}
function xOf(area, event) { return area.left + (event - view.from) / (view.to - view.from) * (area.right - area.left); }
function eventAt(area, x) { return view.from + (x - area.left) / (area.right - area.left) * (view.to - view.from); }
function yOf(area, value, low, high) { return area.bottom - (value - low) / (high - low) * (area.bottom - area.top); }

/** A round step that goes about four times into a range; of sizes by powers of 1024. */
function step(range, base) {
  let unit = 1;
  while (base === 1024 && range / unit >= 1024) unit *= 1024;
  const power = 10 ** Math.floor(Math.log10(range / unit / 4));
  const found = [1, 2, 5, 10].map((factor) => factor * power * unit).find((size) => range / size <= 6);
  return Math.max(found, base === 1024 ? 1e-9 : 1);
}

function axes(area, low, high) {
  const { pen } = area;
  pen.strokeStyle = colour("--grid");
  pen.fillStyle = colour("--soft");
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  const size = step(high - low, 1024);
  for (let value = Math.ceil(low / size) * size; value <= high; value += size) {
    const y = Math.round(yOf(area, value, low, high)) + 0.5;
    pen.beginPath(); pen.moveTo(area.left, y); pen.lineTo(area.right, y); pen.stroke();
    pen.fillText(value === 0 ? "0" : bytes(value), area.left - 7, y);
  }
  pen.textAlign = "center";
  pen.textBaseline = "top";
  const events = step(view.to - view.from, 10);
  for (let value = Math.ceil(view.from / events) * events; value <= view.to; value += events) {
    const x = xOf(area, value);
    if (x < area.right - 30) pen.fillText(value === 0 ? "event 0" : String(Math.round(value)), Math.max(x, area.left + 20), area.bottom + 6);
  }
}

function clipped(area, work) {
  area.pen.save();
  area.pen.beginPath();
  area.pen.rect(area.left, area.top, area.right - area.left, area.bottom - area.top + 1);
  area.pen.clip();
  work(area.pen);
  area.pen.restore();
}

/** The most of each column of points: sums of the classes at their highest moment, and what was reserved. */
function columns(count) {
  const kinds = data.classes.length;
  const now = new Float64Array(kinds + 1);
  const made = [];
  let next = 0;
  const take = () => { now[changes.kind[next]] += changes.size[next]; next += 1; };
  while (next < changes.count && changes.at[next] < view.from) take();
  const total = () => { let sum = 0; for (let kind = 0; kind < kinds; kind += 1) sum += now[kind]; return sum; };
  for (let column = 0; column < count; column += 1) {
    const end = view.from + (column + 1) / count * (view.to - view.from);
    const most = { live: now.slice(0, kinds), sum: total(), reserved: now[kinds] };
    while (next < changes.count && changes.at[next] < end) {
      take();
      const sum = total();
      if (sum > most.sum) { most.live = now.slice(0, kinds); most.sum = sum; }
      most.reserved = Math.max(most.reserved, now[kinds]);
    }
    made.push(most);
  }
  return made;
}

function drawTimeline() {
  const area = surface("timeline");
  const width = Math.max(1, Math.floor(area.right - area.left));
  const made = columns(width);
  const most = Math.max(data.peak, data.limit !== null && data.limit <= 4 * data.peak ? data.limit : 0, 1024);
  const high = most * 1.06;
  axes(area, 0, high);
  clipped(area, (pen) => {
    const y = (value) => yOf(area, value, 0, high);
    made.forEach((column, index) => {
      const x = area.left + index;
      pen.fillStyle = colour("--free");
      pen.fillRect(x, y(column.reserved), 1, area.bottom - y(column.reserved));
    });
    let below = new Float64Array(width);
    for (let kind = data.classes.length - 1; kind >= 0; kind -= 1) {
      pen.fillStyle = data.classes[kind].colour;
      made.forEach((column, index) => {
        const [from, to] = [y(below[index]), y(below[index] + column.live[kind])];
        if (to < from) pen.fillRect(area.left + index, to, 1, from - to);
        below[index] += column.live[kind];
      });
    }
    pen.strokeStyle = colour("--reserved");
    pen.beginPath();
    made.forEach((column, index) => {
      const point = [area.left + index + 0.5, y(column.reserved)];
      if (index === 0) pen.moveTo(...point); else pen.lineTo(...point);
    });
    pen.stroke();
    if (data.limit !== null && data.limit <= high) {
      pen.strokeStyle = colour("--line");
      pen.setLineDash([7, 4]);
      pen.beginPath(); pen.moveTo(area.left, y(data.limit)); pen.lineTo(area.right, y(data.limit)); pen.stroke();
      pen.setLineDash([]);
    }
    marks(area);
  });
  byId("timeline").setAttribute("aria-label",
    `Memory over ${data.entries} events: peak reserved ${bytes(data.peak)}, out of memory ${data.ooms.length} times`);
}

/** Errors, and the moment that was clicked on, across a chart. */
function marks(area) {
  const upright = (event, name) => {
    const x = Math.round(xOf(area, event)) + 0.5;
    area.pen.strokeStyle = colour(name);
    area.pen.beginPath(); area.pen.moveTo(x, area.top); area.pen.lineTo(x, area.bottom); area.pen.stroke();
    return x;
  };
  for (const event of data.ooms) {
    if (event < view.from || event > view.to) continue;
    const x = upright(event, "--oom");
    area.pen.fillStyle = colour("--oom");
    area.pen.beginPath(); area.pen.moveTo(x, area.top + 9); area.pen.lineTo(x - 5, area.top); area.pen.lineTo(x + 5, area.top); area.pen.fill();
  }
  if (view.moment !== null) upright(view.moment, "--text");
}

function drawBlocks() {
  const area = surface("blocks");
  axes(area, view.low, view.high);
  let drawn = 0;
  clipped(area, (pen) => {
    const rectangle = (table, index) => {
      const [from, to] = [xOf(area, Math.max(table.begin[index], view.from)), xOf(area, Math.min(table.end[index], view.to))];
      const [top, bottom] = [yOf(area, table.low[index] + table.size[index], view.low, view.high), yOf(area, table.low[index], view.low, view.high)];
      return [from, top, Math.max(to - from, 0.7), Math.max(bottom - top, 0.4)];
    };
    const isSeen = (table, index) => table.begin[index] < view.to && table.end[index] >= view.from
      && table.low[index] < view.high && table.low[index] + table.size[index] > view.low;
    pen.fillStyle = colour("--free");
    for (let index = 0; index < ranges.count; index += 1) if (isSeen(ranges, index)) pen.fillRect(...rectangle(ranges, index));
    for (let kind = 0; kind < data.classes.length; kind += 1) {
      pen.fillStyle = data.classes[kind].colour;
      for (let index = 0; index < blocks.count; index += 1) {
        if (blocks.kind[index] !== kind || !isSeen(blocks, index)) continue;
        pen.globalAlpha = view.found === null || view.found[index] ? 1 : 0.15;
        const [x, y, width, height] = rectangle(blocks, index);
        // A gap between neighbours, where there is room for one.
        pen.fillRect(x, y, width > 4 ? width - 0.5 : width, height > 3 ? height - 0.6 : height);
        drawn += 1;
      }
      pen.globalAlpha = 1;
    }
    if (view.chosen !== null) {
      pen.strokeStyle = colour("--line");
      pen.lineWidth = 2;
      pen.strokeRect(...rectangle(blocks, view.chosen));
      pen.lineWidth = 1;
    }
    marks(area);
  });
  byId("blocks").setAttribute("aria-label", `${drawn} of ${blocks.count} blocks`);
}

let isAsked = false;
/** Draws once before the next frame, however often it is asked. */
function redraw() {
  if (isAsked) return;
  isAsked = true;
  requestAnimationFrame(() => {
    isAsked = false;
    drawTimeline();
    drawBlocks();
    document.body.dataset.from = view.from.toFixed(2);
    document.body.dataset.to = view.to.toFixed(2);
  });
}
