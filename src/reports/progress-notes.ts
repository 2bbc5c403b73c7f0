/**
 * Notes of the progress of export requests that clients were shown, so that neither a crash nor a response of another
 * host decreases it.
 */
import { createKeyedSemaphore } from '../runtime/async/semaphore.ts';
import { describeError } from '../runtime/errors.ts';
import type { Logger } from '../runtime/logger.ts';
import { findText, type ObjectStore } from '../runtime/store/object-store.ts';
import { createRecords, type RecordKind } from '../runtime/store/records.ts';
import { isCount, shapeOf } from '../runtime/store/shape.ts';

export const progressKey = (id: number): string => `${id}/progress`;

export interface ProgressNotes {
  /** Returns the progress to show for a request, at least `percent`, when it is noted. It never decreases. */
  show(id: number, percent: number): Promise<number>;
  /** Notes the progress of a request that runs here for other hosts, now and then. */
  note(id: number, percent: number): void;
  /** Removes the note of a request that has ended. One that stays is removed by the next start, or with the request. */
  drop(id: number): Promise<void>;
}

const parsePercent = (text: string | undefined): number => (/^\d{1,2}$/.test(text ?? '') ? Number(text) : 0);

/** Creates the notes of a store without other hosts. */
export function createProgressNotes(
  objects: ObjectStore,
  isOpen: (id: number) => boolean,
  logger: Logger,
): ProgressNotes {
  /** Highest progress of each request, percent, as noted. */
  const percents = new Map<number, number>();
  const turns = createKeyedSemaphore();

  async function note(id: number, percent: number): Promise<number> {
    const before = percents.get(id) ?? parsePercent(await findText(objects, progressKey(id)));
    const shown = Math.max(before, percent);
    if (!isOpen(id)) return shown;
    percents.set(id, shown);
    // A full disk must not turn a response about progress into an error.
    if (shown > before)
      await objects.note(progressKey(id), Buffer.from(String(shown))).catch((error: unknown) => {
        logger.warn({ idReport: id, error: describeError(error) }, 'cannot write export progress');
      });
    return shown;
  }

  return {
    async show(id, percent) {
      const noted = percents.get(id) ?? -1;
      return percent <= noted ? noted : await turns.run(id, () => note(id, percent));
    },
    note: () => undefined,
    drop: (id) =>
      turns
        .run(id, async () => {
          percents.delete(id);
          if ((await objects.findSize(progressKey(id))) !== undefined) await objects.remove([progressKey(id)]);
        })
        .catch(() => undefined),
  };
}

interface Progress {
  readonly percent: number;
}

const kind: RecordKind<Progress> = {
  isValid: shapeOf<Progress>({ percent: isCount }),
  codec: { parse: (text) => ({ percent: parsePercent(text) }), render: ({ percent }) => String(percent) },
  ending: '/progress',
  damaged: { code: 'report_damaged', hint: 'Remove it.' },
};
/** Interval of the notes of a running request, ms. */
const everyMs = 2000;

/** Creates the notes of a store that hosts share: each raises them by compare-and-swap. */
export function createSharedProgressNotes(objects: ObjectStore, logger: Logger): ProgressNotes {
  const records = createRecords(objects, kind);
  /** Time and progress of the last note of each request that runs here. */
  const noted = new Map<number, Progress & { readonly atMs: number }>();

  async function raise(id: number, percent: number): Promise<number> {
    const raised = await records.change(String(id), (found) => (percent > (found?.percent ?? 0) ? { percent } : found));
    return raised?.percent ?? 0;
  }

  return {
    show: raise,
    note(id, percent) {
      const [atMs, last] = [performance.now(), noted.get(id)];
      if (last !== undefined && (atMs - last.atMs < everyMs || percent <= last.percent)) return;
      noted.set(id, { atMs, percent });
      raise(id, percent).catch((error: unknown) => {
        logger.warn({ idReport: id, error: describeError(error) }, 'cannot write export progress');
      });
    },
    async drop(id) {
      noted.delete(id);
      await objects.remove([progressKey(id)]).catch(() => undefined);
    },
  };
}
