import type { Clock } from '../../runtime/clock.ts';
import { type AppError, describeError, isDamage } from '../../runtime/errors.ts';
import { events, type Dataset } from '../../datasets/dataset.ts';
import type { Problem } from '../../runtime/conditions/problem.ts';

/**
 * Remembers the young files that could not be sealed: all others are sealed, and these are tried again ever less often.
 */
export interface LeftOut {
  /** The files to leave out of a seal now, by path, each with what was wrong: the seal adds further ones. */
  begin(): Map<string, AppError>;
  /** Takes in what a seal has left out; `young` are the paths of all young files after it. */
  end(leftOut: ReadonlyMap<string, AppError>, young: ReadonlySet<string>): void;
  problems(): Problem[];
}

interface Failure {
  readonly error: AppError;
  readonly since: string;
  readonly tries: number;
  readonly retryAtMs: number;
}

/** What a problem calls a table. */
export function describeTable(dataset: Dataset): string {
  return dataset === events ? 'the lake' : `the lake's table ${dataset.table}`;
}

const longestWaitMs = 3_600_000;
/** So many files are named. */
const namedFiles = 3;

/**
 * Creates the memory; a restart forgets it. Damage is looked at again each time, as a restored file is sealed at once.
 */
export function createLeftOut(clock: Clock, dataset = events, firstWaitMs = 60_000): LeftOut {
  const of = describeTable(dataset);
  const prefix = dataset === events ? '' : `${dataset.table}/`;
  let failures = new Map<string, Failure>();
  return {
    begin() {
      const waiting = [...failures].filter(([, { retryAtMs }]) => performance.now() < retryAtMs);
      return new Map(waiting.map(([path, { error }]) => [path, error]));
    },
    end(leftOut, young) {
      const nowMs = performance.now();
      const next = new Map<string, Failure>();
      for (const [path, error] of leftOut) {
        if (!young.has(path)) continue;
        const known = failures.get(path);
        if (known?.error === error) next.set(path, known);
        else {
          const tries = (known?.tries ?? 0) + 1;
          const waitMs = isDamage(error) ? 0 : Math.min(longestWaitMs, firstWaitMs * 2 ** (tries - 1));
          next.set(path, {
            error,
            tries,
            since: known?.since ?? new Date(clock.nowMs()).toISOString(),
            retryAtMs: nowMs + waitMs,
          });
        }
      }
      failures = next;
    },
    problems() {
      const all = [...failures];
      const named = all.slice(0, namedFiles).map(([path, { since, error }]): Problem => ({
        code: 'file_unsealed',
        subject: `${prefix}${path}`,
        what: `a young file of ${of} has not been sealed since ${since}: ${describeError(error)}`,
        todo: "Exports and SQL over the snapshot have its rows, the sealed files have not. It is tried again by itself, and everything else is sealed; if it lasts, run 'tributary lake check', and restore what it names from a backup.",
        since,
      }));
      const more = all.length - named.length;
      return more <= 0
        ? named
        : [
            ...named,
            {
              code: 'files_unsealed',
              ...(dataset === events ? {} : { subject: dataset.table }),
              what: `${more} more young files of ${of} have not been sealed`,
              todo: "They are tried again by themselves; the log has a line 'left out of sealing' for each.",
            },
          ];
    },
  };
}
