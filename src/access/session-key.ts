import { createHash } from 'node:crypto';
import type { Problem } from '../runtime/problems/problem.ts';
import { describeError } from '../runtime/errors.ts';
import type { Logger } from '../runtime/logger.ts';
import { parseChecksummed, renderChecksummed } from '../runtime/files/checksummed-json.ts';
import { openStore } from '../runtime/store/open-store.ts';
import { ensureRecord, newKey, openKeys } from '../runtime/store/keys.ts';
import { createRecords, type Records } from '../runtime/store/records.ts';
import { isCount, shapeOf } from '../runtime/store/shape.ts';

const keyHint = "Restore it from a backup, or run 'tributary key rotate sessions', which signs out all users.";
const keyName = 'sessions';

const openSessionKeys = (keysFolder: string): Records<Buffer> =>
  openKeys(keysFolder, { code: 'file_damaged', what: 'the key that signs sessions of the console', hint: keyHint });

/** Returns an id of the key: 8 hex digits, which reveal nothing of it. */
export function sessionKeyId(key: Buffer): string {
  return createHash('sha256').update('session key\n').update(key).digest('hex').slice(0, 8);
}

/** Rotates the key, durably. All sessions end within a second. */
export async function rotateSessionKey(keysFolder: string): Promise<{ readonly keyId: string }> {
  const key = newKey();
  await openSessionKeys(keysFolder).put(keyName, key);
  return { keyId: sessionKeyId(key) };
}

/**
 * Opens the key that signs console sessions; creates it on first use. A change is effective within a second. An
 * unreadable key is a problem: while running, the last valid key stays active; at the start, sign-ins are not possible.
 */
export async function openSessionKey(keysFolder: string, logger: Logger) {
  const keys = openSessionKeys(keysFolder);
  await ensureRecord(keys, keyName, newKey);
  const watched = await keys.watch(keyName, (key) => key, logger);
  const substitute = newKey();
  return {
    /** Returns the key; a random one if none can be read. */
    current: (): Buffer => watched.current() ?? substitute,
    /** Returns why sessions cannot start now, or will end with the process. */
    problems(): readonly Problem[] {
      const why = watched.problem();
      if (why === undefined) return [];
      const isDown = watched.current() === undefined;
      const effect = isDown ? 'users cannot sign in to the console' : 'all sessions end at the next restart';
      return [{ code: 'session_key_unreadable', message: `${effect}: ${why}`, action: keyHint }];
    },
    isReadable: (): boolean => watched.current() !== undefined,
    close: (): void => watched.close(),
  };
}

export type SessionKey = Awaited<ReturnType<typeof openSessionKey>>;

type Ends = Readonly<Record<string, number>>;

export interface SessionEndsOptions {
  readonly nowSeconds: () => number;
  /** Maximum age of a session, s: earlier sign-outs are dropped. */
  readonly longestSeconds: number;
}

/** Id for all users: no user has it. */
const everybody = '0';
const endsId = 'session-ends';

/**
 * Opens `keys/session-ends.json`, the time of each user's last sign-out, which ended all earlier sessions. Other
 * processes see a sign-out within a second; it survives a restart. If the file is damaged, all sessions that started
 * before now have ended.
 */
export async function openSessionEnds(
  keysFolder: string,
  logger: Logger,
  { nowSeconds, longestSeconds }: SessionEndsOptions,
) {
  const isEnds = shapeOf<{ readonly ends: Ends }>({
    ends: (ends) => typeof ends === 'object' && ends !== null && Object.values(ends).every(isCount),
  });
  const records = createRecords<{ readonly ends: Ends }>(openStore(keysFolder), {
    isValid: isEnds,
    damaged: { code: 'record_damaged', hint: 'Remove it.' },
    codec: {
      parse(text) {
        try {
          const record = parseChecksummed(text);
          if (isEnds(record)) return record;
          throw new Error('it has no list of sign-outs');
        } catch (error) {
          logger.error({ keysFolder, error: describeError(error) }, 'cannot read sign-outs, ending all sessions');
          return { ends: { [everybody]: nowSeconds() } };
        }
      },
      render: renderChecksummed,
    },
  });
  /** Sign-outs of this process. */
  const own = new Map<string, number>();
  const watched = await records.watch(endsId, (record): Ends => record?.ends ?? {}, logger);

  const drop = (ends: readonly (readonly [string, number])[]): Ends =>
    Object.fromEntries(ends.filter(([, seconds]) => seconds > nowSeconds() - longestSeconds));
  return {
    /** Returns the Unix second up to which started sessions have ended; 0 without a sign-out. */
    of(idUser: string): number {
      const read = watched.current();
      return Math.max(read?.[everybody] ?? 0, read?.[idUser] ?? 0, own.get(idUser) ?? 0);
    },
    /** Ends the user's sessions that started until `seconds`. Durable when it resolves. */
    async end(idUser: string, seconds: number): Promise<void> {
      await records.change(endsId, (before) => {
        const ends: Ends = before?.ends ?? {};
        const last = Math.max(seconds, ends[idUser] ?? 0, own.get(idUser) ?? 0);
        return { ends: drop(Object.entries({ ...ends, [idUser]: last })) };
      });
      own.set(idUser, Math.max(seconds, own.get(idUser) ?? 0));
    },
    close: (): void => watched.close(),
  };
}

export type SessionEnds = Awaited<ReturnType<typeof openSessionEnds>>;
