// What happened, the newest first.

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
    if (mark.detail) item.append(element("details", {}, element("summary", {}, "error message"), mark.detail));
    return item;
  });
  const before = marks.length - STORY;
  if (before > 0) items.push(element("li", { className: "none" }, `and ${whole(before)} before`));
  if (items.length === 0) items.push(element("li", { className: "none" }, "Nothing yet."));
  byId("story").replaceChildren(...items);
}
