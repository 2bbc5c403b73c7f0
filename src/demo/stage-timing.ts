import { performance } from 'node:perf_hooks';

/** Measures stages by name; a stage that fails is measured up to its error. */
export interface StageTiming {
  /** Runs a stage and remembers how long it took. */
  measure<T>(stage: string, work: () => Promise<T>): Promise<T>;
  /** How long a stage took, milliseconds; 0 before it has run. */
  ms(stage: string): number;
}

/** Creates an empty set of measurements. */
export function createStageTiming(): StageTiming {
  const durations = new Map<string, number>();
  return {
    async measure(stage, work) {
      const started = performance.now();
      try {
        return await work();
      } finally {
        durations.set(stage, performance.now() - started);
      }
    },
    ms: (stage) => durations.get(stage) ?? 0,
  };
}
