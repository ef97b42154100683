// The feed of events: new rows on top, unless it is paused.
"use strict";
(() => {
  const rows = document.getElementById("events"), button = document.getElementById("pause");
  if (!rows || !button || !rows.dataset.feed) return;
  const MOST = 500;
  let held = [], paused = false;

  function show() {
    button.textContent = paused ? `Resume (${held.length} new)` : "Pause";
    button.setAttribute("aria-pressed", paused);
  }

  function add(row) {
    if (document.getElementById(row.id)) return;  // sent again after a lost connection
    rows.prepend(row);
    while (rows.children.length > MOST) rows.lastElementChild.remove();
  }

  button.hidden = false;
  show();
  button.addEventListener("click", () => {
    paused = !paused;
    if (!paused) { held.forEach(add); held = []; document.getElementById("nothing-yet")?.remove(); }
    show();
  });

  const source = new EventSource(rows.dataset.feed);
  source.addEventListener("listening", () => { rows.dataset.listening = "yes"; });
  source.addEventListener("events", (event) => {
    const made = document.createElement("template");
    made.innerHTML = event.data;  // escaped by the server; scripts do not run in a template
    const fresh = [...made.content.querySelectorAll("tr")];
    if (paused) {
      held = held.concat(fresh).slice(-MOST);
    } else {
      fresh.forEach(add);
      document.getElementById("nothing-yet")?.remove();
    }
    show();
    document.dispatchEvent(new Event("htmx:afterSwap"));  // writes times in the time zone of the browser
  });
  addEventListener("pagehide", () => source.close());
})();
