import { useLayoutEffect, useRef } from 'preact/hooks';

/**
 * A dialog that is open for as long as it is there. It opens before the page is painted: what is typed at once goes into
 * it, not into what opened it, to which the focus goes back.
 */
export function useModal(): { current: HTMLDialogElement | null } {
  const dialog = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => {
    const element = dialog.current;
    element?.showModal();
    // By itself: as long as it is open, nothing else can have the focus.
    return () => element?.close();
  }, []);
  return dialog;
}
