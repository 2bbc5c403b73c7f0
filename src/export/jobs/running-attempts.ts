import type { AccessReader } from '../../access/access.ts';
import type { ReportJob } from '../../reports/reports.ts';
import { standingOf } from './standing.ts';

/** An attempt whose worker runs. */
export interface RunningAttempt {
  /** Aborts when the attempt is broken off: by its caller, or since access was taken back. */
  readonly signal: AbortSignal;
  readonly onPercent: (percent: number) => void;
  /** The worker is gone. */
  end(): void;
}

/** The attempts whose workers run: for whom, on whose rows, and how far the requests have come. */
export interface RunningAttempts {
  begin(job: ReportJob, idApps: readonly number[], signal: AbortSignal): RunningAttempt;
  /** How far the attempts of a request have come, percent; 0 when none has reported. */
  percent(id: number): number;
  /** Forgets the progress of a request that has ended. */
  forget(id: number): void;
  /** Breaks off the attempts that work for a removed user, or read the rows of a removed app. */
  dropTakenBack(): void;
}

interface Entry {
  readonly idUser: string;
  readonly idAccount: number;
  readonly idApps: readonly number[];
  readonly abort: AbortController;
}

/** Creates an empty set of running attempts. */
export function createRunningAttempts(access: AccessReader): RunningAttempts {
  const percents = new Map<number, number>();
  const running = new Map<number, Entry>();
  return {
    begin({ id, idUser, idAccount }, idApps, signal) {
      const abort = new AbortController();
      running.set(id, { idUser, idAccount, idApps, abort });
      return {
        signal: AbortSignal.any([signal, abort.signal]),
        onPercent: (percent) => void percents.set(id, Math.max(percent, percents.get(id) ?? 0)),
        end: () => void running.delete(id),
      };
    },
    percent: (id) => percents.get(id) ?? 0,
    forget: (id) => void percents.delete(id),
    dropTakenBack() {
      const view = access.current();
      for (const { idUser, idAccount, idApps, abort } of running.values()) {
        const lacksApp = !access.mayLackApps() && idApps.some((idApp) => view.findApp(idApp)?.idAccount !== idAccount);
        if (lacksApp || standingOf(access, idUser) === 'removed') abort.abort();
      }
    },
  };
}
