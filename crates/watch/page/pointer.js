// Pointing and zooming.

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
