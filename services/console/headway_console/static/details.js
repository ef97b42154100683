// Detail pages: copy buttons, and a check of text that was typed early.
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

  // htmx misses text that was typed, or restored by the browser, before it was ready.
  window.addEventListener("load", () => {
    const input = document.getElementById("given");
    if (input && input.value !== input.defaultValue) window.htmx?.trigger(input, "typed-early");
  });
})();
