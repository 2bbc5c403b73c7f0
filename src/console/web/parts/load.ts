import { useCallback, useEffect, useMemo, useState } from 'preact/hooks';
import { ApiError } from '../frame/client.ts';
import { signIns } from '../frame/session.ts';

/** What a page asks the service for. */
export interface Loaded<T> {
  /** The newest answer. It stays while the same is asked again, in vain too, and until other keys are answered. */
  readonly data: T | undefined;
  /** Why the newest was not answered. */
  readonly error: ApiError | undefined;
  /** There is no answer to these keys yet: `data` is of those before. */
  readonly isLoading: boolean;
  /** Asks again now. */
  readonly reload: () => void;
}

const retrySeconds = 3;
/** How soon a page that cannot be seen looks whether it can. */
const hiddenMs = 1000;

/** Makes an error of whatever was thrown. */
export function toApiError(error: unknown): ApiError {
  return error instanceof ApiError ? error : new ApiError(0, error instanceof Error ? error.message : String(error));
}

/** What is known, and what it was asked by. */
interface State<T> {
  readonly data: T | undefined;
  readonly error: ApiError | undefined;
  readonly of: readonly unknown[] | undefined;
}

/**
 * Loads what a page shows: at once, whenever `keys` change, after a sign-in, soon after a failure that may pass, and,
 * with `everyMs`, again and again while the page can be seen. `load` is asked once at a time and is told when its answer
 * is no longer wanted.
 */
export function useLoaded<T>(
  load: (signal: AbortSignal) => Promise<T>,
  keys: readonly unknown[],
  everyMs?: (data: T) => number,
): Loaded<T> {
  const [state, setState] = useState<State<T>>({ data: undefined, error: undefined, of: undefined });
  const [turn, setTurn] = useState(0);
  const count = signIns.value;
  // Another list for other keys, and the same one for the same.
  const of = useMemo(() => keys, keys);

  useEffect(() => {
    const gone = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const look = async (): Promise<void> => {
      const waitMs = document.hidden ? hiddenMs : await ask();
      if (waitMs !== undefined && !gone.signal.aborted) timer = setTimeout(() => void look(), waitMs);
    };
    /** Asks, and says after how long to ask again. */
    const ask = async (): Promise<number | undefined> => {
      try {
        const data = await load(gone.signal);
        if (!gone.signal.aborted) setState({ data, error: undefined, of });
        return everyMs?.(data);
      } catch (caught) {
        const error = toApiError(caught);
        // What was loaded by other keys is not shown for the answer to these.
        if (!gone.signal.aborted)
          setState((before) => ({ data: before.of === of ? before.data : undefined, error, of }));
        return error.mayPass ? (error.waitSeconds ?? retrySeconds) * 1000 : undefined;
      }
    };
    void look();
    return () => {
      gone.abort();
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

/** Waits so long, or until the signal says that nobody waits any more. */
export function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener('abort', () => {
      clearTimeout(timer);
      resolve();
    });
  });
}

/** Something that the reader asks for: one at a time. */
export interface Action {
  readonly isBusy: boolean;
  /** Why the last one failed. */
  readonly error: ApiError | undefined;
  /** Does the work, and reports whether it succeeded; nothing while another is under way. */
  readonly act: (work: () => Promise<unknown>) => Promise<boolean>;
}

/** Keeps what has become of what the reader asks for. */
export function useAction(): Action {
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<ApiError>();
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
