import { useCallback, useEffect, useMemo, useState } from 'preact/hooks';
import { ApiError } from '../shell/client.ts';
import { signIns } from '../shell/session.ts';

export interface Loaded<T> {
  /** The newest data. It stays while it is refreshed or a refresh fails, and until other keys have data. */
  readonly data: T | undefined;
  /** Error of the newest request. */
  readonly error: ApiError | undefined;
  /** Whether `data` belongs to previous keys. */
  readonly isLoading: boolean;
  readonly reload: () => void;
}

const retrySeconds = 3;
/** Interval of checking whether a hidden page is visible again. */
const hiddenMs = 1000;

export function toApiError(error: unknown): ApiError {
  return error instanceof ApiError ? error : new ApiError(0, error instanceof Error ? error.message : String(error));
}

interface State<T> {
  readonly data: T | undefined;
  readonly error: ApiError | undefined;
  readonly of: readonly unknown[] | undefined;
}

/**
 * Loads data: at once, when `keys` change, after a sign-in, soon after an error that may pass, and with `everyMs`
 * repeatedly while the page is visible. `load` runs once at a time; its signal aborts when the data is no longer
 * needed.
 */
export function useLoaded<T>(
  load: (signal: AbortSignal) => Promise<T>,
  keys: readonly unknown[],
  everyMs?: (data: T) => number | undefined,
): Loaded<T> {
  const [state, setState] = useState<State<T>>({ data: undefined, error: undefined, of: undefined });
  const [turn, setTurn] = useState(0);
  const count = signIns.value;
  // A new array for new keys.
  const of = useMemo(() => keys, keys);

  useEffect(() => {
    const unmounted = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const reload = async (): Promise<void> => {
      const waitMs = document.hidden ? hiddenMs : await loadOnce();
      if (waitMs !== undefined && !unmounted.signal.aborted) timer = setTimeout(() => void reload(), waitMs);
    };
    /** Loads once and returns the delay before the next load. */
    const loadOnce = async (): Promise<number | undefined> => {
      try {
        const data = await load(unmounted.signal);
        if (!unmounted.signal.aborted) setState({ data, error: undefined, of });
        return everyMs?.(data);
      } catch (caught) {
        const error = toApiError(caught);
        // Data of other keys is not shown with this error.
        if (!unmounted.signal.aborted)
          setState((before) => ({ data: before.of === of ? before.data : undefined, error, of }));
        return error.mayPass ? (error.waitSeconds ?? retrySeconds) * 1000 : undefined;
      }
    };
    void reload();
    return () => {
      unmounted.abort();
      clearTimeout(timer);
    };
  }, [of, turn, count]);

  const isLoading = state.of !== of;
  return {
    data: state.data,
    error: isLoading ? undefined : state.error,
    isLoading,
    reload: useCallback(() => setTurn((before) => before + 1), []),
  };
}

/** Waits until the time has elapsed or the signal aborts. */
export function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener('abort', () => {
      clearTimeout(timer);
      resolve();
    });
  });
}

/** Keeps the state of the user's action, one at a time. */
export function useAction() {
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<ApiError>();
  /** Runs an action and reports whether it succeeded; returns false while another runs. */
  const act = async (work: () => Promise<unknown>): Promise<boolean> => {
    if (isBusy) return false;
    setBusy(true);
    setError(undefined);
    try {
      await work();
      return true;
    } catch (caught) {
      setError(toApiError(caught));
      return false;
    } finally {
      setBusy(false);
    }
  };
  return { isBusy, error, act };
}
