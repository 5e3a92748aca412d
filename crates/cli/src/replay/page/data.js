"use strict";
// The page of `lowtide replay --html`: its files are joined in one script, this one first. Texts go into the page as text only,
// never as HTML.

const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

/** Blocks in the order in which they were handed out, each figure in a list of its own. */
const blocks = {
  count: data.blocks.begin.length,
  begin: Float64Array.from(data.blocks.begin),
  end: Float64Array.from(data.blocks.end, (end) => (end < 0 ? data.entries : end)),
  low: Float64Array.from(data.blocks.offset),
  size: Float64Array.from(data.blocks.size),
  kind: Uint8Array.from(data.blocks.size, (size) => sizeClass(size)),
};
const ranges = {
  count: data.ranges.begin.length,
  begin: Float64Array.from(data.ranges.begin),
  end: Float64Array.from(data.ranges.end, (end) => (end < 0 ? data.entries : end)),
  low: Float64Array.from(data.ranges.offset),
  size: Float64Array.from(data.ranges.size),
};
/** What changes how much is held, in order: of a class of sizes, or (after the last class) of what is reserved. */
const changes = changesOf();

const view = { from: 0, to: data.entries, low: 0, high: data.height, chosen: null, moment: null, found: null, tip: null };

function sizeClass(size) {
  const index = data.classes.findIndex((each) => size < each.below);
  return index < 0 ? data.classes.length - 1 : index;
}

function changesOf() {
  const all = [];
  const reserved = data.classes.length;
  for (let index = 0; index < blocks.count; index += 1) {
    all.push([blocks.begin[index], blocks.kind[index], blocks.size[index]]);
    if (blocks.end[index] < data.entries) all.push([blocks.end[index], blocks.kind[index], -blocks.size[index]]);
  }
  for (let index = 0; index < ranges.count; index += 1) {
    all.push([ranges.begin[index], reserved, ranges.size[index]]);
    if (ranges.end[index] < data.entries) all.push([ranges.end[index], reserved, -ranges.size[index]]);
  }
  // What goes at an event goes before something comes.
  all.sort((one, other) => one[0] - other[0] || one[2] - other[2]);
  return {
    count: all.length,
    at: Float64Array.from(all, (each) => each[0]),
    kind: Uint8Array.from(all, (each) => each[1]),
    size: Float64Array.from(all, (each) => each[2]),
  };
}

/** The first place in a list that goes up whose value is above this one. */
function above(list, value) {
  let [low, high] = [0, list.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle] <= value) low = middle + 1; else high = middle;
  }
  return low;
}

function bytes(value) {
  let unit = 0;
  let rest = value;
  while (rest >= 1024 && unit < UNITS.length - 1) { rest /= 1024; unit += 1; }
  return unit === 0 ? `${value} B` : `${rest.toFixed(2)} ${UNITS[unit]}`;
}

/** Seconds since the first event, where they are known. */
function seconds(event) {
  if (data.times.length === 0) return null;
  const at = Math.min(Math.max(Math.floor(event / data.times_step), 0), data.times.length - 1);
  return data.times[at] / 1e6;
}
function when(event) {
  const time = seconds(event);
  return time === null ? `event ${Math.floor(event)}` : `event ${Math.floor(event)}, ${time.toFixed(3)} s`;
}

function framesOf(block) {
  const stack = data.blocks.stack[block];
  return stack === undefined || stack < 0 ? [] : data.stacks[stack].map((frame) => data.frames[frame]);
}
/** The line of a stack that belongs to the program, as the text page names it. */
function placeOf(block) {
  const stack = data.blocks.stack[block];
  return stack === undefined || stack < 0 ? null : data.places[stack];
}

/** What is held at an event: the blocks, the largest first, and their sum. */
function heldAt(event) {
  const held = [];
  let sum = 0;
  const last = above(blocks.begin, event);
  for (let index = 0; index < last; index += 1) {
    if (blocks.end[index] > event) { held.push(index); sum += blocks.size[index]; }
  }
  held.sort((one, other) => blocks.size[other] - blocks.size[one]);
  let reserved = 0;
  for (let index = 0; index < ranges.count; index += 1) {
    if (ranges.begin[index] <= event && ranges.end[index] > event) reserved += ranges.size[index];
  }
  return { held, sum, reserved };
}

/** The block at a place of the chart of blocks; the last one that was handed out there. */
function blockAt(event, offset) {
  for (let index = above(blocks.begin, event) - 1; index >= 0; index -= 1) {
    if (blocks.end[index] > event && blocks.low[index] <= offset && offset < blocks.low[index] + blocks.size[index]) return index;
  }
  return null;
}

/** Which blocks have a text in their stack; none where there is no text. */
function find(text) {
  const wanted = text.trim().toLowerCase();
  if (wanted === "") return null;
  const hits = data.stacks.map((stack) => stack.some((frame) => {
    const [file, line, name] = data.frames[frame];
    return `${file}:${line} ${name}`.toLowerCase().includes(wanted);
  }));
  const found = new Uint8Array(blocks.count);
  for (let index = 0; index < blocks.count; index += 1) {
    const stack = data.blocks.stack[index];
    if (stack >= 0 && hits[stack]) found[index] = 1;
  }
  return found;
}
