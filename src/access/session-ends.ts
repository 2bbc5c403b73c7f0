import path from 'node:path';
import { createMutex } from '../runtime/async/mutex.ts';
import { describeError } from '../runtime/errors.ts';
import { parseChecked, renderChecked } from '../runtime/files/checked-json.ts';
import { ensureFolder, writeFileDurably } from '../runtime/files/durable-file.ts';
import { waitForLock } from '../runtime/files/lock.ts';
import { findTextFileSync } from '../runtime/files/text-file.ts';
import { watchFile } from '../runtime/files/watched-file.ts';
import type { Logger } from '../runtime/logger.ts';

/**
 * The time up to which each user's sessions have ended by a sign-out. Other processes learn of a sign-out within a
 * second, and a restart keeps it.
 */
export interface SessionEnds {
  /** Returns the Unix second up to which sessions that began have ended; 0: none. */
  of(idUser: string): number;
  /** Ends the user's sessions that began until `seconds`. Durable when it resolves. */
  end(idUser: string, seconds: number): Promise<void>;
  close(): void;
}

/** Unix seconds by user. */
type Ends = ReadonlyMap<string, number>;

export interface SessionEndsOptions {
  readonly nowSeconds: () => number;
  /** No session is older than this, s: earlier ends are dropped. */
  readonly longestSeconds: number;
}

const lockWaitMs = 10_000;
/** Key of all users in the file. No user has this id. */
const everybody = '0';

function readEnds(file: string): Ends {
  const text = findTextFileSync(file);
  if (text === undefined) return new Map();
  const { ends } = parseChecked(text);
  return new Map(Object.entries(ends as Readonly<Record<string, number>>));
}

/** Opens the sign-outs in `keys/session-ends.json`. If the file is damaged, every session that began before now has ended. */
export function openSessionEnds(
  keysFolder: string,
  logger: Logger,
  { nowSeconds, longestSeconds }: SessionEndsOptions,
): SessionEnds {
  const file = path.join(keysFolder, 'session-ends.json');
  const turns = createMutex();
  /** Ends that this process has added. */
  let own: Ends = new Map();

  function readFile(): Ends {
    try {
      return readEnds(file);
    } catch (error) {
      logger.error({ file, error: describeError(error) }, 'cannot read sign-outs, ending all sessions');
      return new Map([[everybody, nowSeconds()]]);
    }
  }

  const watched = watchFile(file, readFile, logger);
  const latest = (...all: readonly Ends[]): Ends => {
    const [merged, from] = [new Map<string, number>(), nowSeconds() - longestSeconds];
    for (const [idUser, seconds] of all.flatMap((ends) => [...ends]))
      if (seconds > from) merged.set(idUser, Math.max(seconds, merged.get(idUser) ?? 0));
    return merged;
  };
  return {
    of(idUser) {
      const read = watched.current();
      return Math.max(read.get(everybody) ?? 0, read.get(idUser) ?? 0, own.get(idUser) ?? 0);
    },
    end: (idUser, seconds) =>
      turns.run(async () => {
        await ensureFolder(keysFolder);
        const lock = await waitForLock(keysFolder, 'a sign-out', lockWaitMs);
        try {
          const added = latest(own, new Map([[idUser, seconds]]));
          await writeFileDurably(file, renderChecked({ ends: Object.fromEntries(latest(readFile(), added)) }));
          own = added;
        } finally {
          lock.release();
        }
      }),
    close: () => watched.close(),
  };
}
