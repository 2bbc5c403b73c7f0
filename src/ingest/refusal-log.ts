import type { ImportMethod } from '../datasets/field-schema.ts';
import type { RefusalReason } from './refusal.ts';

/** A rejected request, without values of its body. */
interface RefusedLine {
  readonly method: ImportMethod | undefined;
  readonly reason: RefusalReason;
  readonly detail: string;
}

/** Rejected requests of an app that the log does not have yet. */
interface Pending {
  readonly first: RefusedLine;
  readonly reasons: Partial<Record<RefusalReason, number>>;
}

const windowMs = 60_000;
/** Clients can send any app id: those beyond this number share one line, without an id. */
const maxApps = 1000;

/**
 * Creates the log of rejected requests: one line per app and minute, the first one at once. A line counts the requests
 * since the previous line by reason (`reasons`), and describes the first of them. `stop` writes what is not logged yet.
 */
export function createRefusalLog(write: (fields: Readonly<Record<string, unknown>>) => void) {
  const windows = new Map<string | undefined, { pending: Pending | undefined; timer: NodeJS.Timeout }>();

  function writeLine(idApp: string | undefined, { first, reasons }: Pending): void {
    const counts = Object.entries(reasons);
    const requests = counts.reduce((sum, [, count]) => sum + count, 0);
    // No members: the logger redacts the value of one that is called token.
    write({ idApp, requests, reasons: counts.map(([reason, count]) => `${reason}: ${count}`), ...first });
  }

  function endWindow(idApp: string | undefined): void {
    const pending = windows.get(idApp)?.pending;
    windows.delete(idApp);
    if (pending === undefined) return;
    writeLine(idApp, pending);
    begin(idApp);
  }

  const begin = (idApp: string | undefined): void =>
    void windows.set(idApp, { pending: undefined, timer: setTimeout(endWindow, windowMs, idApp).unref() });

  return {
    /** `idApp` is the unchecked value of the query. */
    add(idApp: string | undefined, line: RefusedLine): void {
      const key = windows.has(idApp) || windows.size < maxApps ? idApp : undefined;
      const window = windows.get(key);
      if (window === undefined) {
        writeLine(key, { first: line, reasons: { [line.reason]: 1 } });
        return begin(key);
      }
      const { reasons } = (window.pending ??= { first: line, reasons: {} });
      reasons[line.reason] = (reasons[line.reason] ?? 0) + 1;
    },
    stop(): void {
      for (const [idApp, { pending, timer }] of windows) {
        clearTimeout(timer);
        if (pending !== undefined) writeLine(idApp, pending);
      }
      windows.clear();
    },
  };
}

export type RefusalLog = ReturnType<typeof createRefusalLog>;
