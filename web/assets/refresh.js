// SPDX-License-Identifier: Apache-2.0
// Replaces the page's content every five seconds. Opened details stay open,
// the focus stays where it is, and a page that cannot be read says so.
(function () {
  "use strict";
  var every = 5000;
  var last = new Date();

  function openIds() {
    return Array.from(document.querySelectorAll("details[open][id]"), function (d) { return d.id; });
  }

  function focusPath() {
    var e = document.activeElement;
    if (!e || e === document.body) { return null; }
    if (e.tagName === "SUMMARY" && e.parentNode.id) { return { details: e.parentNode.id }; }
    return e.getAttribute("href") ? { href: e.getAttribute("href") } : null;
  }

  function restore(open, focus) {
    open.forEach(function (id) {
      var d = document.getElementById(id);
      if (d) { d.open = true; }
    });
    if (!focus) { return; }
    var target = focus.details
      ? document.querySelector("#" + CSS.escape(focus.details) + " > summary")
      : document.querySelector('a[href="' + CSS.escape(focus.href) + '"]');
    if (target) { target.focus({ preventScroll: true }); }
  }

  function show(text) {
    var fresh = new DOMParser().parseFromString(text, "text/html");
    var next = fresh.getElementById("live");
    if (!next) { throw new Error("not this page"); }
    var open = openIds(), focus = focusPath();
    document.getElementById("live").replaceWith(document.adoptNode(next));
    document.title = fresh.title;
    document.getElementById("stale").hidden = true;
    last = new Date();
    restore(open, focus);
  }

  function complain(err) {
    var stale = document.getElementById("stale");
    stale.textContent = "▲ Not updated since " + last.toISOString().slice(0, 19).replace("T", " ") + " UTC: " + err.message;
    stale.hidden = false;
  }

  function selecting() {
    var s = window.getSelection();
    return s && !s.isCollapsed;
  }

  function refresh() {
    if (document.hidden || selecting()) { return Promise.resolve(); }
    return fetch(location.href.split("#")[0], { cache: "no-store", signal: AbortSignal.timeout(10000) })
      .then(function (r) { return r.text(); })
      .then(show)
      .catch(complain);
  }

  (function loop() {
    setTimeout(function () { refresh().finally(loop); }, every);
  })();
})();
