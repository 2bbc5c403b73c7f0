import type { Clock } from '../../runtime/clock.ts';
import { describeError, isTransient } from '../../runtime/errors.ts';
import type { Logger } from '../../runtime/logger.ts';
import type { Problem } from '../../runtime/conditions/problem.ts';
import { createTrouble } from '../compact-status.ts';

/**
 * One task of the maintenance loop. Its failure is a problem that is tried again; it keeps neither the other tasks nor the
 * flushes from their work.
 */
export interface MaintenanceTask {
  /** Runs the work, unless it failed and its next try is not due. Returns what the work has thrown. */
  run(work: () => Promise<void>): Promise<unknown>;
  problems(): Problem[];
}

const firstWaitMs = 500;
const longestWaitMs = 60_000;

/** What passes by itself is tried twice a second; anything else ever less often: it may cost minutes each time. */
function waitAfter(error: unknown, tries: number): number {
  return isTransient(error) ? firstWaitMs : Math.min(longestWaitMs, firstWaitMs * 2 ** (tries - 1));
}

/** Creates a task; `what` says what does not happen while it fails, for the operator. */
export function createMaintenanceTask(
  what: string,
  { clock, logger }: { readonly clock: Clock; readonly logger: Logger },
): MaintenanceTask {
  const trouble = createTrouble(clock);
  let tries = 0;
  let logged = '';
  let retryAtMs = 0;
  return {
    async run(work) {
      if (performance.now() < retryAtMs) return undefined;
      try {
        await work();
        trouble.clear();
        [tries, retryAtMs] = [0, 0];
        return undefined;
      } catch (error) {
        tries += 1;
        retryAtMs = performance.now() + waitAfter(error, tries);
        trouble.note(error);
        const text = describeError(error);
        // Once for each cause: it is tried again and again.
        logger[tries === 1 || text !== logged ? 'warn' : 'debug'](
          { error: text, what, tries },
          'maintenance failed, will retry',
        );
        logged = text;
        return error;
      }
    },
    problems() {
      const found = trouble.find();
      if (found === undefined) return [];
      return [
        {
          code: 'maintenance_failing',
          subject: what,
          what: `${what} since ${found.since}: ${found.error}`,
          todo: 'Remove the cause, such as a full disk: it then goes on by itself. Import, exports and SQL work meanwhile.',
          since: found.since,
        },
      ];
    },
  };
}
