import { createHash, randomBytes } from 'node:crypto';
import { type EventHead, readEventHead } from '../../datasets/event-line.ts';
import { AppError, isSystemError } from '../../runtime/errors.ts';
import { createKeySet } from '../batch/key-set.ts';
import {
  createFailedList,
  readFailedFile,
  readFailedText,
  type FailedListing,
  type FailureReason,
} from '../files/failed-events.ts';
import { pause } from '../../runtime/async/retry.ts';
import { isLookupTarget, type LookupTarget, idStartOf } from './find-rows.ts';

export interface FoundFailed extends EventHead {
  readonly reason: FailureReason;
  /** ISO 8601. */
  readonly failedAt: string;
}

/** Limit of indexed failed events: 56 MB. */
const maxKnown = 4_000_000;
const maxFound = 256;
/** An id in an event's line, a text inside a line of JSON, and the app if it follows as ingest renders it. */
const idInText = /\\"event_id\\":\\"([0-9a-f-]{36})\\"(?:,\\"kind\\":\\"\w*\\",\\"id_app\\":(\d{1,16}),)?/g;
/** Stands for the app of a line that does not have it there. */
const anyApp = 0;

/** Two random or hashed parts of an id that its request's events share. */
function halvesOf(start: string): readonly [low: number, high: number] {
  const digits = start.replaceAll('-', '');
  const from = start.charAt(14) === '7' ? 16 : 0;
  return [Number.parseInt(digits.slice(from, from + 8), 16), Number.parseInt(digits.slice(from + 8, from + 16), 16)];
}

type Halves = ReturnType<typeof halvesOf>;

/** Hashes ids with their apps and a secret of this process: a lookup of another app's event leads to no file. */
function createOwnHalves(): (idApp: number, start: string) => Halves {
  const secret = randomBytes(16);
  const masks = new Map<number, Halves>();
  return (idApp, start) => {
    let mask = masks.get(idApp);
    if (mask === undefined) {
      const hash = createHash('sha256').update(secret).update(String(idApp)).digest();
      mask = [hash.readUInt32LE(0), hash.readUInt32LE(4)];
      masks.set(idApp, mask);
    }
    const [low, high] = halvesOf(start);
    return [(low ^ mask[0]) >>> 0, (high ^ mask[1]) >>> 0];
  };
}

function toFound(line: string, lookupTarget: LookupTarget): EventHead | undefined {
  const event = readEventHead(line);
  // The owner must be certain.
  const isOwned = lookupTarget.idApp === undefined || event?.idApp === lookupTarget.idApp;
  return event !== undefined && isOwned && isLookupTarget(lookupTarget, event.eventId) ? event : undefined;
}

async function ifThere<T>(work: Promise<T>, otherwise: T): Promise<T> {
  return work.catch((error: unknown) => {
    if (isSystemError(error, 'ENOENT')) return otherwise;
    throw error;
  });
}

async function findInFile(file: string, lookupTarget: LookupTarget): Promise<FoundFailed[]> {
  const found: FoundFailed[] = [];
  for (const { line, reason, failedAt } of await ifThere(readFailedFile(file), [])) {
    // Most lines do not match, and are not parsed.
    const event = line.includes(idStartOf(lookupTarget)) ? toFound(line, lookupTarget) : undefined;
    if (event !== undefined) found.push({ ...event, reason, failedAt });
  }
  return found;
}

/** Finds at most 256 failed events in files. */
async function findInFiles(files: readonly string[], lookupTarget: LookupTarget): Promise<FoundFailed[]> {
  const found: FoundFailed[] = [];
  for (const file of files) {
    found.push(...(await findInFile(file, lookupTarget)));
    if (found.length >= maxFound) return found.slice(0, maxFound);
  }
  return found;
}

/** Finds the failed events of targets one after the other. Error: `overloaded` after the deadline. */
async function findForEach(
  lookupTargets: readonly LookupTarget[],
  deadlineMs: number,
  find: (lookupTarget: LookupTarget) => Promise<FoundFailed[]>,
): Promise<FoundFailed[]> {
  const found: FoundFailed[] = [];
  for (const lookupTarget of lookupTargets) {
    if (performance.now() >= deadlineMs)
      throw new AppError('overloaded', 'too many failed events to search', { hint: 'Retry with fewer ids.' });
    found.push(...(await find(lookupTarget)));
  }
  return found;
}

const filesAtOnce = 100;

const tooMany = (): AppError =>
  new AppError('overloaded', `cannot search more than ${maxKnown} failed events`, {
    hint: "Replay them with 'tributary failed replay', or search the output of 'tributary failed list'.",
  });

const stillToRead = (files: number): AppError =>
  new AppError('overloaded', `${files} files of failed events are not indexed yet`, { hint: 'Retry in a minute.' });

/** Creates an empty index. With more than `maxFiles` unread files, a lookup leaves them to `readOn`. */
export function createFailedIndex(folder: string, tableDir: string, maxFiles = Infinity) {
  const list = createFailedList(folder, tableDir);
  const ownHalves = createOwnHalves();
  const hashes = createKeySet('any');
  const groups = new Map<string, { readonly group: number; readonly events: number }>();
  const names = new Map<number, string>();
  let known: FailedListing | undefined;

  async function add(name: string, file: string): Promise<void> {
    const text = await ifThere(readFailedText(file), '');
    // A lookup and `readOn` may read it concurrently.
    if (groups.has(name)) return;
    const ids = [...text.matchAll(idInText)].map(([, id = '', idApp]) => ownHalves(Number(idApp ?? anyApp), id));
    const group = hashes.addGroup();
    if (group === undefined) throw new Error('there is a number for each file');
    hashes.add(
      { lows: Uint32Array.from(ids, ([low]) => low), highs: Uint32Array.from(ids, ([, high]) => high) },
      group,
    );
    groups.set(name, { group, events: text.split('\n').length - 1 });
    names.set(group, name);
  }

  /** Drops removed files, and returns the unread ones. */
  function compare(listing: FailedListing): (readonly [name: string, file: string])[] {
    for (const [name, { group }] of groups) {
      if (listing.has(name)) continue;
      hashes.dropGroup(group);
      groups.delete(name);
      names.delete(group);
    }
    return [...listing].filter(([name]) => !groups.has(name));
  }

  async function catchUp(deadlineMs: number): Promise<FailedListing> {
    const listing = await list();
    if (listing === known) return listing;
    const more = compare(listing);
    if (more.length > maxFiles) throw hashes.size > maxKnown ? tooMany() : stillToRead(more.length);
    for (const [done, [name, file]] of more.entries()) {
      if (hashes.size > maxKnown) throw tooMany();
      if (performance.now() >= deadlineMs) throw stillToRead(more.length - done);
      await add(name, file);
    }
    known = listing;
    return listing;
  }

  function findIn(listing: FailedListing, lookupTarget: LookupTarget, idApps: readonly number[]) {
    const hits = [...idApps, anyApp].flatMap((idApp) => hashes.find(...ownHalves(idApp, idStartOf(lookupTarget))));
    const files = new Set(hits.flatMap((group) => listing.get(names.get(group) ?? '') ?? []));
    return findInFiles([...files], lookupTarget);
  }

  return {
    /** Finds at most 256 failed events. Error: `overloaded` if files are unread, or failed events too many. */
    async find(lookupTarget: LookupTarget, idApps: readonly number[], deadlineMs: number) {
      return findIn(await catchUp(deadlineMs), lookupTarget, idApps);
    },
    /** Finds the failed events of many targets of an app, as `find`. Error: `overloaded`, also after the deadline. */
    async findEach(lookupTargets: readonly LookupTarget[], idApp: number, deadlineMs: number) {
      const listing = await catchUp(deadlineMs);
      return findForEach(lookupTargets, deadlineMs, (one) => findIn(listing, { ...one, idApp }, [idApp]));
    },
    /** Number of events in the files that were read. */
    count: () => [...groups.values()].reduce((sum, { events }) => sum + events, 0),
    /** Reads the unread files up to the limit, with pauses. */
    async readOn(signal: AbortSignal) {
      const listing = await list();
      if (listing === known) return;
      let startedAt = performance.now();
      for (const [done, [name, file]] of compare(listing).entries()) {
        if (signal.aborted || hashes.size > maxKnown) return;
        await add(name, file);
        if (done % filesAtOnce !== filesAtOnce - 1) continue;
        await pause(performance.now() - startedAt, signal);
        startedAt = performance.now();
      }
    },
  };
}

/** Index of failed events by id: hashes in memory, 10 to 14 bytes per event. Reads only files that may have the id. */
export type FailedIndex = ReturnType<typeof createFailedIndex>;
