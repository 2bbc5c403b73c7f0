import path from 'node:path';
import { readLineHead } from '../../datasets/event-line.ts';
import { AppError, isSystemError } from '../../runtime/errors.ts';
import { createKeySet } from '../batch/key-set.ts';
import { listFailedFiles, readFailedFile, readFailedText, type FailureReason } from '../files/failed-events.ts';
import { isSought, type Sought, idStartOf } from './find-rows.ts';

/** An event that could not be written to the lake. Times are Unix milliseconds. */
export interface FoundFailed {
  readonly eventId: string;
  readonly reason: FailureReason;
  /** ISO 8601. */
  readonly failedAt: string;
  readonly kind?: string;
  readonly eventTimeMs?: number;
  readonly receivedAtMs?: number;
}

/**
 * Which files of failed events may have an id: a memory of hashes, 10 to 14 bytes an event, made when it is first asked
 * and gone with the process. A file is read once, and again when it may have what is asked for: one that was replaced or
 * removed since gives what it has now.
 */
export interface FailedIndex {
  /**
   * Finds what counts as failed, at most so many events. Errors: `overloaded` while files are still to be read, and when
   * there are more failed events than it keeps hashes of.
   */
  find(sought: Sought, deadlineMs: number): Promise<FoundFailed[]>;
}

/** Failed events whose hashes are kept: 56 MB. */
const maxKnown = 4_000_000;
const maxFound = 256;
/** An id in an event's line, which is a text in a line of JSON. */
const idInText = /\\"event_id\\":\\"([0-9a-f-]{36})\\"/g;

/**
 * Two parts of an id that are a hash, or random: of one that begins with the time what is behind it, of any other what
 * its request's other events have, too.
 */
function halvesOf(start: string): readonly [low: number, high: number] {
  const digits = start.replaceAll('-', '');
  const from = start.charAt(14) === '7' ? 16 : 0;
  return [Number.parseInt(digits.slice(from, from + 8), 16), Number.parseInt(digits.slice(from + 8, from + 16), 16)];
}

/** Reads what is left of a line: undefined when it is no event of those that are looked for. */
function toFound(line: string, sought: Sought): Omit<FoundFailed, 'reason' | 'failedAt'> | undefined {
  let event: Readonly<Record<string, unknown>> | null;
  try {
    event = JSON.parse(line) as typeof event;
  } catch {
    // As ingest has rendered it, and damaged behind its head.
    const head = readLineHead(line);
    if (head === undefined || !isSought(sought, head.eventId)) return undefined;
    const { idApp, ...rest } = head;
    return sought.idApp === undefined || sought.idApp === idApp ? rest : undefined;
  }
  const id = event?.['event_id'];
  if (event === null || typeof id !== 'string' || !isSought(sought, id)) return undefined;
  // Whose event it is must be sure.
  if (sought.idApp !== undefined && event['id_app'] !== sought.idApp) return undefined;
  const { kind, event_time: seconds, received_at: receivedAtMs } = event;
  return {
    eventId: id,
    ...(typeof kind === 'string' ? { kind } : {}),
    ...(typeof seconds === 'number' ? { eventTimeMs: seconds * 1000 } : {}),
    ...(typeof receivedAtMs === 'number' ? { receivedAtMs } : {}),
  };
}

/** Reads a file that may be gone. */
async function ifThere<T>(work: Promise<T>, otherwise: T): Promise<T> {
  return work.catch((error: unknown) => {
    if (isSystemError(error, 'ENOENT')) return otherwise;
    throw error;
  });
}

async function findInFile(file: string, sought: Sought): Promise<FoundFailed[]> {
  const found: FoundFailed[] = [];
  for (const { line, reason, failedAt } of await ifThere(readFailedFile(file), [])) {
    // Most are not: what is no match is not parsed.
    const event = line.includes(idStartOf(sought)) ? toFound(line, sought) : undefined;
    if (event !== undefined) found.push({ ...event, reason, failedAt });
  }
  return found;
}

/** The name that a file will have once its commit is settled, by which it is known. */
const nameOf = (file: string): string => path.basename(file).replace(/^pending-\d+-/, '');

/** Creates the index of the failed events of a lake, empty. */
export function createFailedIndex(folder: string, tableDir: string): FailedIndex {
  const hashes = createKeySet('any');
  const groups = new Map<string, number>();
  const names = new Map<number, string>();

  async function add(file: string): Promise<void> {
    const text = await ifThere(readFailedText(file), '');
    const ids = [...text.matchAll(idInText)].flatMap(([, id]) => id ?? []).map(halvesOf);
    const group = hashes.addGroup();
    if (group === undefined) throw new Error('there is a number for each file');
    hashes.add(
      { lows: Uint32Array.from(ids, ([low]) => low), highs: Uint32Array.from(ids, ([, high]) => high) },
      group,
    );
    groups.set(nameOf(file), group);
    names.set(group, nameOf(file));
  }

  async function catchUp(files: readonly string[], deadlineMs: number): Promise<void> {
    const there = new Set(files.map(nameOf));
    for (const [name, group] of groups) {
      if (there.has(name)) continue;
      hashes.dropGroup(group);
      groups.delete(name);
      names.delete(group);
    }
    const more = files.filter((file) => !groups.has(nameOf(file)));
    for (const [done, file] of more.entries()) {
      if (hashes.size > maxKnown)
        throw new AppError(
          'overloaded',
          `there are more than ${maxKnown} failed events: not all of them can be looked through`,
          {
            hint: "Replay them by 'tributary failed replay', or look through what 'tributary failed list' gives.",
          },
        );
      if (performance.now() >= deadlineMs)
        throw new AppError('overloaded', `${more.length - done} files of failed events are still to be read`, {
          hint: 'Ask again in a while.',
        });
      await add(file);
    }
  }

  return {
    async find(sought, deadlineMs) {
      const files = await ifThere(listFailedFiles(folder, tableDir), []);
      await catchUp(files, deadlineMs);
      const wanted = new Set(hashes.find(...halvesOf(idStartOf(sought))).flatMap((group) => names.get(group) ?? []));
      const found: FoundFailed[] = [];
      for (const file of files) {
        if (!wanted.has(nameOf(file))) continue;
        found.push(...(await findInFile(file, sought)));
        if (found.length >= maxFound) return found.slice(0, maxFound);
      }
      return found;
    },
  };
}
