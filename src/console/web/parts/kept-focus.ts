import { useLayoutEffect, useRef } from 'preact/hooks';

/** What a part of a page is given so that no key press of its reader goes nowhere. */
export interface KeptFocus {
  readonly ref: { current: HTMLElement | null };
  readonly onFocusIn: (event: FocusEvent) => void;
}

/** Where what had the focus goes, as a line that was removed, the focus goes to the heading of its part. */
export function useKeptFocus(): KeptFocus {
  const ref = useRef<HTMLElement>(null);
  const last = useRef<EventTarget | null>(null);
  useLayoutEffect(() => {
    if (!(last.current instanceof Element) || last.current.isConnected) return;
    last.current = null;
    if (document.activeElement === document.body) ref.current?.querySelector<HTMLElement>('h2')?.focus();
  });
  return { ref, onFocusIn: ({ target }) => void (last.current = target) };
}
