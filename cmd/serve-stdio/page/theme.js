/* SPDX-License-Identifier: Apache-2.0 */
/* theme.js - light or dark: the system's setting until somebody chooses. Runs before the page is painted. */
'use strict';
{
  const root = document.documentElement, themes = ['', 'light', 'dark'];
  try {
    root.dataset.theme = localStorage.getItem('chimere.theme') || '';
  } catch { /* storage is forbidden: the choice lasts until a reload */ }
  document.addEventListener('DOMContentLoaded', () => {
    const button = document.getElementById('theme');
    const show = () => { button.lastElementChild.textContent = 'Theme: ' + (root.dataset.theme || 'system'); };
    button.addEventListener('click', () => {
      root.dataset.theme = themes[(themes.indexOf(root.dataset.theme || '') + 1) % themes.length];
      show();
      try {
        localStorage.setItem('chimere.theme', root.dataset.theme);
      } catch { /* as above */ }
    });
    show();
  });
}
