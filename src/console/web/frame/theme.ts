import { signal } from '@preact/signals';

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
