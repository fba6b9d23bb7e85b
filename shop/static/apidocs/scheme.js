"use strict";

document.documentElement.lang ||= document.currentScript.lang; // of Swagger's page, which names none

// Swagger's page is dark where its root element says so; it goes with the reader's system, also while it is open
const dark = matchMedia("(prefers-color-scheme: dark)");
const follow = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
dark.addEventListener("change", follow);
follow();
