/** A child that ended this often within `unsteadyMs` is a problem, until it has run for as long. */
const unsteadyEnds = 3;
const unsteadyMs = 60_000;

/** When a child ended by itself, or did not start, as far as that still counts. */
export interface EndHistory {
  /** Records an end, now. */
  record(): void;
  /** Says whether it keeps ending. `runningSince`: by `performance.now()`; undefined while it does not run. */
  isUnsteady(runningSince: number | undefined): boolean;
}

/** Creates the history of a child that has not ended yet. */
export function createEndHistory(): EndHistory {
  /** Newest last. */
  let ends: number[] = [];
  let unsteady = false;
  return {
    record() {
      const nowMs = performance.now();
      ends = [...ends, nowMs].filter((atMs) => nowMs - atMs < unsteadyMs).slice(-unsteadyEnds);
      unsteady ||= ends.length === unsteadyEnds;
    },
    isUnsteady(runningSince) {
      if (runningSince !== undefined && performance.now() - runningSince >= unsteadyMs) unsteady = false;
      return unsteady;
    },
  };
}
