import { useEffect, useState } from 'preact/hooks';

/** Whether the page has been out of sight for so long, milliseconds; no more when it is looked at again. */
export function useOutOfSight(afterMs: number): boolean {
  const [isOut, setOut] = useState(false);
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const look = (): void => {
      clearTimeout(timer);
      if (document.hidden) timer = setTimeout(() => setOut(true), afterMs);
      else setOut(false);
    };
    look();
    document.addEventListener('visibilitychange', look);
    return () => {
      clearTimeout(timer);
      document.removeEventListener('visibilitychange', look);
    };
  }, []);
  return isOut;
}
