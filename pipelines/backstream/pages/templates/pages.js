"use strict";
(() => {
  const grid = document.querySelector("[data-grid]");
  if (grid) {
    const named = [...grid.querySelectorAll("a.day")].map((day) => [day.href.slice(-10), day]);
    named.sort((one, other) => (one[0] < other[0] ? -1 : 1));
    const isos = named.map((each) => each[0]), days = named.map((each) => each[1]);
    const places = new Map(days.map((day, at) => [day, at]));
    const since = document.getElementById("since"), until = document.getElementById("until");
    const said = document.getElementById("range-said");
    let current = days.length - 1, anchor = null;
    const next = (iso) => new Date(Date.parse(iso + "T00:00Z") + 864e5).toISOString().slice(0, 10);
    const focus = (at, isRange) => {
      at = Math.max(0, Math.min(days.length - 1, at));
      if (isRange && anchor === null) anchor = current;
      days[current].tabIndex = -1;
      current = at;
      days[at].tabIndex = 0;
      days[at].focus();
      if (isRange) select(anchor, at); else anchor = null;
    };
    const select = (one, other) => {
      const low = Math.min(one, other), high = Math.max(one, other);
      for (const day of grid.querySelectorAll(".chosen")) day.classList.remove("chosen");
      for (let at = low; at <= high; at++) days[at].classList.add("chosen");
      if (!since) return;
      since.value = isos[low];
      until.value = next(isos[high]);
      said.textContent = `${high - low + 1} ${high > low ? "days" : "day"} chosen: ${since.value} until ${until.value}`;
    };
    for (const day of days) day.tabIndex = -1;
    if (days.length) days[current].tabIndex = 0;
    const month = (at, by) => {
      const day = new Date(isos[at] + "T00:00Z");
      day.setUTCMonth(day.getUTCMonth() + by, Math.min(day.getUTCDate(), 28));
      return at + Math.round((day - Date.parse(isos[at] + "T00:00Z")) / 864e5);
    };
    const moves = {
      ArrowLeft: () => current - 1, ArrowRight: () => current + 1,
      ArrowUp: () => month(current, -1), ArrowDown: () => month(current, 1),
      PageUp: () => month(current, -12), PageDown: () => month(current, 12),
      Home: () => 0, End: () => days.length - 1,
    };
    grid.addEventListener("keydown", (event) => {
      if (!(event.key in moves) || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      focus(moves[event.key](), event.shiftKey);
    });
    grid.addEventListener("click", (event) => {
      const day = event.target.closest("a.day");
      if (!day || !event.shiftKey) return;
      event.preventDefault();
      const at = places.get(day);
      if (anchor === null) anchor = at;
      select(anchor, at);
    });
  }
  const soon = document.body.dataset.reload;
  if (soon) setTimeout(() => {
    if (!document.hidden && !document.activeElement.matches("input, textarea, select")) location.reload();
  }, Number(soon) * 1000);
})();
