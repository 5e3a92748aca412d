// Elements and colours.

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
