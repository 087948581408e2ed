"use strict";
// A report that is only read: its HTML comes with the data.
const data = JSON.parse(document.getElementById("data").textContent);
document.getElementById("title").textContent = data.title;
document.getElementById("views").innerHTML = data.html;
document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});
document.documentElement.dataset.ready = "yes";
