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
