import type { Duckdb } from '../../lake/sql/duckdb.ts';

/** How far a load is. */
export interface Progress {
  /** `hash`: its content is compared with what was loaded; `read`: its rows are read and written; `commit`: the rest. */
  readonly phase: 'hash' | 'read' | 'commit';
  /** Of the phase, 0 to 100; absent where it is not known. */
  readonly percent?: number;
  /** Bytes of the file a second, in this phase so far. */
  readonly bytesPerSecond?: number;
  /** Time that the phase will take at this rate, seconds. */
  readonly secondsLeft?: number;
}

const everyMs = 1000;

/** Reports the progress of a load until it is stopped. */
export function watchProgress(
  onProgress: ((progress: Progress) => void) | undefined,
  sizeBytes: number,
  duckdb: Pick<Duckdb, 'progress'>,
): { phase(name: Progress['phase']): void; stop(): void } {
  let phase: Progress['phase'] = 'hash';
  let sinceMs = performance.now();
  const report = (): void => {
    const percent = phase === 'read' ? duckdb.progress() : undefined;
    const seconds = (performance.now() - sinceMs) / 1000;
    if (percent === undefined || percent < 1) return onProgress?.({ phase });
    const bytesPerSecond = Math.round((sizeBytes * percent) / 100 / seconds);
    const secondsLeft = Math.round((seconds * (100 - percent)) / percent);
    onProgress?.({ phase, percent: Math.round(percent), bytesPerSecond, secondsLeft });
  };
  const timer = onProgress === undefined ? undefined : setInterval(report, everyMs);
  return {
    phase(name) {
      phase = name;
      sinceMs = performance.now();
    },
    stop: () => clearInterval(timer),
  };
}
