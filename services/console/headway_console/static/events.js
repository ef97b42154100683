// The feed of events: new rows on top while somebody looks, unless it is paused.
"use strict";
(() => {
  const rows = document.getElementById("events"), button = document.getElementById("pause");
  if (!rows || !button || !rows.dataset.feed) return;
  const MOST = 500;
  let held = [], paused = false;

  function show() {
    button.textContent = paused ? `Go on (${held.length} new)` : "Pause";
    button.setAttribute("aria-pressed", paused);
  }

  function add(row) {
    if (document.getElementById(row.id)) return;  // told again after a lost connection
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
    made.innerHTML = event.data;  // rows that our own server has escaped; scripts do not run in it
    const fresh = [...made.content.querySelectorAll("tr")];
    if (paused) {
      held = held.concat(fresh).slice(-MOST);
    } else {
      fresh.forEach(add);
      document.getElementById("nothing-yet")?.remove();
    }
    show();
    document.dispatchEvent(new Event("htmx:afterSwap"));  // times are written in the viewer's zone
  });
  addEventListener("pagehide", () => source.close());
})();
