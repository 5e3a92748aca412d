// Pointing and zooming.

function pointRows(data) {
  const { points } = data;
  if (points.time.length === 0) return [];
  const at = nearest(pointPlaces(data), view.hover);
  const limit = points.line[at];
  return [
    ["step", whole(points.step[at])], ["time", span(points.time[at])],
    ["allocated during the step", bytes(points.peak[at])], ["allocated after it", bytes(points.allocated[at])],
    ["reserved", bytes(points.reserved[at])],
    ...(limit === null ? [] : [["limit", bytes(limit)]]),
    ...(limit === null ? [] : [["free under the limit", bytes(Math.max(0, limit - points.reserved[at]))]]),
    ["loss", short(points.loss[at])], ["micro-batch", whole(points.micro_batch[at])],
  ];
}
/** The loss of the other runs at the same place, where they have come so far. */
function otherRows() {
  return view.data.flatMap((other, id) => {
    if (!other || id === view.chosen || other.points.time.length === 0) return [];
    const places = pointPlaces(other);
    if (view.hover > Math.max(...places)) return [];
    const at = nearest(places, view.hover);
    return [[`${view.runs[id].name}: loss`, short(other.points.loss[at])]];
  }).slice(0, 6);
}
function hostRows(data) {
  if (!hasHost(data)) return [];
  const { host } = data;
  const time = hoverTime(data);
  const at = nearest(host.time, time);
  // Samples are there only from when somebody watched.
  if (Math.abs(host.time[at] - time) > Math.max(3, host.time[host.time.length - 1] / 50)) return [];
  const told = (name, words) => (host[name] && host[name][at] !== null ? [[words, bytes(host[name][at])]] : []);
  const run = view.runs[view.chosen];
  const step = host.step && host.step[at];
  return [
    ...(run.isBare ? [["time", span(host.time[at])], ...(step ? [["step", whole(step)]] : [])] : []),
    ...runCards(data).flatMap((name) => told(name, `${cardName(name)}, all programs`)),
    ...(cards(data).length > 0 ? told("process_on_cards", "of it this process") : []),
    ...(run.command ? [] : told("process_resident", "process, on the host")),
    ...told("reserve", "of it the reserve"),
    ...(host.children_resident && host.children_resident[at] > 0
      ? told("children_resident", run.command ? "the command, on the host" : "its children") : []),
    ...told("host_used", "all programs on the host"),
  ];
}

function tip(x, target) {
  const data = view.data[view.chosen];
  const box = byId("tip");
  const rows = view.hover === null || !data ? [] : [...pointRows(data), ...otherRows(), ...hostRows(data)];
  if (rows.length === 0) { box.hidden = true; return; }
  const isNear = (pile) => x > pile.from - 7 && x < pile.to + 7;
  const near = piles(data, view.scale).filter(isNear).slice(-1)
    .flatMap(pileWords).map((words) => element("p", {}, words));
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
  const pointed = (event) => {
    const x = event.clientX - target.getBoundingClientRect().left;
    return [x, view.scale ? Math.max(0, view.scale.value(Math.max(LEFT, x))) : 0];
  };
  target.addEventListener("pointermove", (event) => {
    const [x, value] = pointed(event);
    view.hover = value;
    if (view.drag) view.drag.to = value;
    draw(); tip(x, target);
  });
  target.addEventListener("pointerleave", () => { view.hover = null; draw(); tip(0, target); });
  target.addEventListener("pointerdown", (event) => {
    if (event.pointerType === "mouse") view.drag = { from: pointed(event)[1], to: null, x: pointed(event)[0] };
  });
  target.addEventListener("pointerup", (event) => {
    const { drag } = view;
    view.drag = null;
    if (!drag || drag.to === null || Math.abs(pointed(event)[0] - drag.x) < 8) return;
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
