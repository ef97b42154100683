// The log of a run: new lines are appended, and the view stays at its end while "Follow" is checked.
"use strict";
(() => {
  const follow = document.getElementById("follow");
  let scrolledTo = -1;

  function toEnd() {
    const log = document.querySelector("#log .log");
    if (!log || (follow && !follow.checked)) return;
    log.scrollTop = log.scrollHeight;
    scrolledTo = log.scrollTop;
  }

  if (follow) follow.parentElement.hidden = false;
  follow?.addEventListener("change", toEnd);

  // Scrolling up stops following, and scrolling to the end continues.
  document.addEventListener("scroll", (event) => {
    const log = event.target;
    if (!follow || !log.classList?.contains("log") || log.scrollTop === scrolledTo) return;
    follow.checked = log.scrollHeight - log.scrollTop - log.clientHeight < 24;
  }, true);

  // A selection in the lines that are there survives.
  document.addEventListener("live:replace", (event) => {
    const shown = event.target.querySelector(".log");
    if (event.target.id !== "log") return;
    if (shown) {
      event.preventDefault();
      for (const line of event.detail.querySelectorAll(".line")) {
        if (!document.getElementById(line.id)) shown.append(line);
      }
    }
    queueMicrotask(toEnd);
  });
  toEnd();
})();
