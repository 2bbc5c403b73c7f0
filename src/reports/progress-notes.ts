import { createKeyedSemaphore } from '../runtime/async/semaphore.ts';
import { describeError } from '../runtime/errors.ts';
import type { Logger } from '../runtime/logger.ts';
import { findText, type ObjectStore } from '../runtime/store/object-store.ts';

export const progressKey = (id: number): string => `${id}/progress`;

/** Creates the notes of the progress of each request that a client was shown, so that no crash decreases it. */
export function createProgressNotes(objects: ObjectStore, isOpen: (id: number) => boolean, logger: Logger) {
  /** Highest progress of each request, percent, as noted. */
  const percents = new Map<number, number>();
  const turns = createKeyedSemaphore();

  async function read(id: number): Promise<number> {
    const text = (await findText(objects, progressKey(id))) ?? '';
    return /^\d{1,2}$/.test(text) ? Number(text) : 0;
  }

  async function note(id: number, percent: number): Promise<number> {
    const before = percents.get(id) ?? (await read(id));
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
    /** Returns the progress to show for a request, at least `percent`, when it is noted. It never decreases. */
    async show(id: number, percent: number): Promise<number> {
      const noted = percents.get(id) ?? -1;
      return percent <= noted ? noted : await turns.run(id, () => note(id, percent));
    },
    /** Removes the note of a request that has ended. One that stays is removed by the next start. */
    drop: (id: number): Promise<void> =>
      turns
        .run(id, async () => {
          percents.delete(id);
          if ((await objects.findSize(progressKey(id))) !== undefined) await objects.remove([progressKey(id)]);
        })
        .catch(() => undefined),
  };
}
