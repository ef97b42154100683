// Detail pages: copy buttons, a log that follows its end, and a check of text that was typed early.
"use strict";
(() => {
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    try {
      await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(document.getElementById(button.dataset.copy));
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });

  // The log is replaced with every change: stay at its end, unless it is scrolled up.
  let atEnd = true;
  document.addEventListener("scroll", (event) => {
    const log = event.target;
    if (log.classList?.contains("log")) atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 24;
  }, true);
  function follow() {
    const log = document.querySelector(".log");
    if (log && atEnd) log.scrollTop = log.scrollHeight;
  }
  const main = document.getElementById("content");
  new MutationObserver(follow).observe(main, { childList: true, subtree: false });
  follow();

  // htmx misses text that was typed, or restored by the browser, before it was ready.
  window.addEventListener("load", () => {
    const input = document.getElementById("given");
    if (input && input.value !== input.defaultValue) window.htmx?.trigger(input, "typed-early");
  });
})();
