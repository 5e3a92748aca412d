// What hands do: zoom, move, click, search.

function zoom(factor, event) {
  const middle = event ?? (view.from + view.to) / 2;
  const width = Math.min(Math.max((view.to - view.from) * factor, Math.min(8, data.entries)), data.entries);
  const share = (middle - view.from) / (view.to - view.from);
  place(middle - share * width, width);
}
function place(from, width) {
  view.from = Math.min(Math.max(from, 0), data.entries - width);
  view.to = view.from + width;
  redraw();
}
function zoomUp(factor, offset) {
  const height = Math.min(Math.max((view.high - view.low) * factor, Math.min(4096, data.height)), data.height);
  const share = (offset - view.low) / (view.high - view.low);
  placeUp(offset - share * height, height);
}
function placeUp(low, height) {
  view.low = Math.min(Math.max(low, 0), data.height - height);
  view.high = view.low + height;
  redraw();
}
function whole() {
  Object.assign(view, { from: 0, to: data.entries, low: 0, high: data.height });
  redraw();
}

function spot(id, happening) {
  const box = byId(id).getBoundingClientRect();
  const area = scale(box.width, box.height);
  const y = happening.clientY - box.top;
  return {
    event: Math.min(Math.max(eventAt(area, happening.clientX - box.left), 0), data.entries - 1e-6),
    offset: view.low + (area.bottom - y) / (area.bottom - area.top) * (view.high - view.low),
    area,
  };
}

let drag = null;
for (const id of ["timeline", "blocks"]) {
  const element = byId(id);
  element.addEventListener("wheel", (happening) => {
    happening.preventDefault();
    const turn = happening.deltaY || happening.deltaX;
    const factor = Math.exp(Math.min(Math.max(turn, -200), 200) / 400);
    const { event, offset } = spot(id, happening);
    if (happening.shiftKey && id === "blocks") zoomUp(factor, offset); else zoom(factor, event);
  }, { passive: false });
  element.addEventListener("pointerdown", (happening) => {
    drag = { x: happening.clientX, y: happening.clientY, from: view.from, low: view.low, isMoved: false, id };
    try { element.setPointerCapture(happening.pointerId); } catch { /* A pointer made by a script has no capture. */ }
  });
  element.addEventListener("pointermove", (happening) => {
    const { event, offset, area } = spot(id, happening);
    if (drag === null) { hover(id, happening, event, offset); return; }
    const [dx, dy] = [happening.clientX - drag.x, happening.clientY - drag.y];
    if (Math.abs(dx) + Math.abs(dy) > 4) drag.isMoved = true;
    if (!drag.isMoved) return;
    place(drag.from - dx / (area.right - area.left) * (view.to - view.from), view.to - view.from);
    if (id === "blocks") placeUp(drag.low + dy / (area.bottom - area.top) * (view.high - view.low), view.high - view.low);
  });
  element.addEventListener("pointerup", (happening) => {
    const isClick = drag !== null && !drag.isMoved;
    drag = null;
    if (isClick) click(id, happening);
  });
  element.addEventListener("pointercancel", () => { drag = null; });
  element.addEventListener("pointerleave", () => { byId("tip").hidden = true; });
  element.addEventListener("dblclick", whole);
}

function hover(id, happening, event, offset) {
  const tip = byId("tip");
  const block = id === "blocks" ? blockAt(event, offset) : null;
  if (block === null) {
    const { sum, reserved } = heldAt(Math.floor(event));
    tip.textContent = `${when(event)}\nlive ${bytes(sum)}\nreserved ${bytes(reserved)}`;
  } else {
    tip.textContent = [bytes(blocks.size[block]), placeOf(block)].filter(Boolean).join("\n");
  }
  const box = tip.parentElement.getBoundingClientRect();
  tip.hidden = false;
  tip.style.left = `${Math.min(happening.clientX - box.left + 14, box.width - tip.offsetWidth - 6)}px`;
  tip.style.top = `${happening.clientY - box.top + 14}px`;
}

function click(id, happening) {
  const { event, offset } = spot(id, happening);
  const block = id === "blocks" ? blockAt(event, offset) : null;
  if (block === null) choose(null, Math.floor(event)); else choose(block, null);
}

/** Shows a block, or what is held at a moment. */
function choose(block, moment) {
  view.chosen = block;
  view.moment = moment;
  if (block !== null) showBlock(block);
  else if (moment !== null) showMoment(moment);
  redraw();
}

function made(tag, text, ...children) {
  const element = document.createElement(tag);
  if (text !== null) element.textContent = text;
  element.append(...children);
  return element;
}
function facts(pairs) {
  const list = made("dl", null);
  for (const [name, value] of pairs) list.append(made("dt", name), made("dd", value));
  return list;
}

function showBlock(block) {
  const [begin, end] = [data.blocks.begin[block], data.blocks.end[block]];
  const isBefore = data.blocks.is_before[block] === 1;
  const lived = (end < 0 ? data.entries : end) - begin;
  const span = seconds(begin) === null ? "" : `, ${((seconds(end < 0 ? data.entries - 1 : end) - seconds(begin)) * 1e3).toFixed(1)} ms`;
  const frames = framesOf(block);
  const list = made("ol", null);
  for (const [file, line, name] of frames) list.append(made("li", name, made("small", `${file}, line ${line}`)));
  byId("detail").replaceChildren(
    made("h2", bytes(blocks.size[block])),
    facts([
      ["asked for", `${bytes(data.blocks.requested[block])} (${data.blocks.requested[block]} B)`],
      ["from", isBefore ? "before the first event" : when(begin)],
      ["to", end < 0 ? "the end" : when(end)],
      ["lived", `${lived} events${span}`],
      ["address", data.blocks.address[block]],
      ["stream", String(data.blocks.stream[block])],
    ]),
    frames.length > 0 ? list : made("p", data.stacks.length > 0 ? "No stack is known of it." : "The snapshot has no stacks."),
  );
}

function showMoment(event) {
  const { held, sum, reserved } = heldAt(event);
  const list = made("ol", null);
  for (const block of held.slice(0, 30)) {
    const button = made("button", bytes(blocks.size[block]), made("small", placeOf(block) ?? ""));
    button.addEventListener("click", () => choose(block, null));
    list.append(made("li", null, button));
  }
  byId("detail").replaceChildren(
    made("h2", `Held at ${when(event)}`),
    facts([["live", bytes(sum)], ["reserved", bytes(reserved)], ["blocks", String(held.length)]]),
    list,
  );
}

function search() {
  view.found = find(byId("search").value);
  if (view.found === null) {
    byId("found").textContent = "";
  } else {
    let [count, most] = [0, 0];
    for (let index = 0; index < blocks.count; index += 1) {
      if (view.found[index]) { count += 1; most = Math.max(most, blocks.size[index]); }
    }
    byId("found").textContent = count === 0 ? "no block" : `${count} blocks, the largest ${bytes(most)}`;
  }
  redraw();
}

byId("search").addEventListener("input", search);
byId("in").addEventListener("click", () => zoom(0.5));
byId("out").addEventListener("click", () => zoom(2));
byId("whole").addEventListener("click", whole);
byId("blocks").addEventListener("keydown", (happening) => {
  const width = view.to - view.from;
  const keys = {
    "+": () => zoom(0.5), "-": () => zoom(2), 0: whole,
    ArrowLeft: () => place(view.from - width / 8, width), ArrowRight: () => place(view.from + width / 8, width),
  };
  if (keys[happening.key]) { happening.preventDefault(); keys[happening.key](); }
});
addEventListener("resize", redraw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

document.title = `${data.name} · Lowtide`;
byId("name").textContent = `${data.name}, GPU ${data.device}`;
byId("words").textContent = data.words;
for (const kind of [...data.classes].reverse()) {
  const key = made("i", null);
  key.style.background = kind.colour;
  byId("legend").append(made("span", null, key, kind.words));
}
for (const [style, words] of [["--free", "reserved, unused"], ["--line", "limit"], ["--oom", "out of memory"]]) {
  if ((style === "--line" && data.limit === null) || (style === "--oom" && data.ooms.length === 0)) continue;
  const key = made("i", null);
  key.style.background = `var(${style})`;
  byId("legend").append(made("span", null, key, style === "--line" ? `limit ${bytes(data.limit)}` : words));
}
choose(null, data.ooms.length > 0 ? data.ooms[0] : data.peak_event);
