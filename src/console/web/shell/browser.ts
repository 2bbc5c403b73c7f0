/** State that the browser keeps: the address of the page and the theme. */
import { signal } from '@preact/signals';

const base = '/console/';

function readPath(): string {
  return location.pathname.startsWith(base) ? location.pathname.slice(base.length).replace(/\/+$/, '') : '';
}

/** Path of the current page below `/console/`, without a trailing slash. */
export const path = signal(readPath());

export function hrefOf(page: string): string {
  return `${base}${page}`;
}

/** Shows another page, as a link would. */
export function navigate(page: string): void {
  history.pushState(undefined, '', hrefOf(page));
  path.value = readPath();
  window.scrollTo({ top: 0, behavior: 'instant' });
}

window.addEventListener('popstate', () => void (path.value = readPath()));

/** Follows links between pages without a page load. Other links and modified clicks have their default action. */
document.addEventListener('click', (event) => {
  const link = event.target instanceof Element && event.target.closest('a');
  if (!link || event.defaultPrevented || event.button !== 0) return;
  if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  if (link.target !== '' || link.hasAttribute('download') || link.origin !== location.origin) return;
  if (!link.pathname.startsWith(base)) return;
  event.preventDefault();
  navigate(link.pathname.slice(base.length));
});

export const themes = ['system', 'light', 'dark'] as const;
export type Theme = (typeof themes)[number];

const storageKey = 'tributary.theme';

function readTheme(): Theme {
  const stored = localStorage.getItem(storageKey);
  return themes.find((theme) => theme === stored) ?? 'system';
}

export const theme = signal<Theme>(readTheme());

/** Applies the theme to the root element, where style sheets read it. */
export function applyTheme(): void {
  document.documentElement.dataset['theme'] = theme.value;
}

export function chooseTheme(chosen: Theme): void {
  theme.value = chosen;
  localStorage.setItem(storageKey, chosen);
  applyTheme();
}
