/** The address of the page that is shown, and how it looks: what the browser keeps. */
import { signal } from '@preact/signals';

const base = '/console/';

function readPath(): string {
  return location.pathname.startsWith(base) ? location.pathname.slice(base.length).replace(/\/+$/, '') : '';
}

/** The path of the page that is shown, below `/console/`, without a slash at its end. */
export const path = signal(readPath());

/** The address of a page, for links. */
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

/** Follows links between pages without loading anything; other links, and clicks with keys held, go their way. */
document.addEventListener('click', (event) => {
  const link = (event.target as Element | null)?.closest?.('a');
  if (!link || event.defaultPrevented || event.button !== 0) return;
  if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  if (link.target !== '' || link.hasAttribute('download') || link.origin !== location.origin) return;
  if (!link.pathname.startsWith(base)) return;
  event.preventDefault();
  navigate(link.pathname.slice(base.length));
});

/** How the console looks: as the system says, or as its user does. */
export const themes = ['system', 'light', 'dark'] as const;
export type Theme = (typeof themes)[number];

const storageKey = 'tributary.theme';

function readTheme(): Theme {
  const stored = localStorage.getItem(storageKey);
  return themes.find((theme) => theme === stored) ?? 'system';
}

export const theme = signal<Theme>(readTheme());

/** Shows the theme; style sheets read it from the root element. */
export function applyTheme(): void {
  document.documentElement.dataset['theme'] = theme.value;
}

/** Changes the theme, for this browser and from now on. */
export function chooseTheme(chosen: Theme): void {
  theme.value = chosen;
  localStorage.setItem(storageKey, chosen);
  applyTheme();
}
