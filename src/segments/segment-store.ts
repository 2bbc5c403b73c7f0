import path from 'node:path';
import { AppError } from '../runtime/errors.ts';
import { ensureFolder } from '../runtime/files/durable-file.ts';
import { findNames } from '../runtime/files/folder-names.ts';
import { isKnownRecord, markRecord, unmarkRecord } from '../runtime/files/known-records.ts';
import { waitForLock } from '../runtime/files/lock.ts';
import { findRecord, listRecords, publishRecord, recordPath, withdrawRecord } from '../runtime/files/recorded-file.ts';
import { segmentKinds, type Segment, type SegmentFacts } from './segments.ts';

/** Which segment: an id is an account's own, and says nothing in another. */
export interface SegmentId {
  readonly idAccount: number;
  readonly idSegment: number;
}

/** How long a change waits for another one, or for a backup that copies the segments, milliseconds. */
const lockWaitMs = 30_000;
const idForm = /^[1-9]\d{0,15}$/;

/** An id as it stands in a path or a request; undefined for anything else. */
function parseStoredId(text: string): number | undefined {
  const id = idForm.test(text) ? Number(text) : Number.NaN;
  return Number.isSafeInteger(id) ? id : undefined;
}

function toIds(names: readonly string[]): number[] {
  return names
    .map(parseStoredId)
    .filter((id) => id !== undefined)
    .toSorted((a, b) => a - b);
}

function accountFolder(segmentsDir: string, idAccount: number): string {
  return path.join(segmentsDir, String(idAccount));
}

function isFacts(facts: Readonly<Record<string, unknown>>): boolean {
  return (
    segmentKinds.some((kind) => kind === facts['kind']) &&
    Number.isSafeInteger(facts['ids']) &&
    typeof facts['addedAt'] === 'string'
  );
}

/** The ids of an account's segments, ascending. */
export async function listSegmentIds(segmentsDir: string, idAccount: number): Promise<number[]> {
  return toIds(await listRecords(accountFolder(segmentsDir, idAccount)));
}

/**
 * Reads a segment of an account; undefined when the account has none of that id. Error: `record_damaged`.
 */
export async function findSegment(
  segmentsDir: string,
  { idAccount, idSegment }: SegmentId,
): Promise<Segment | undefined> {
  const damaged = (cause?: unknown): AppError =>
    new AppError('record_damaged', `the record of segment ${idSegment} of account ${idAccount} is damaged`, {
      cause,
      hint: "Add the segment anew by 'tributary segment add', or restore its files from a backup.",
    });
  const record = await findRecord(accountFolder(segmentsDir, idAccount), String(idSegment)).catch((error: unknown) => {
    throw damaged(error);
  });
  if (record === undefined) return undefined;
  const { facts, ...file } = record;
  if (!isFacts(facts)) throw damaged();
  return { idAccount, idSegment, ...(facts as unknown as SegmentFacts), ...file };
}

/** The accounts that may have segments, ascending. */
export async function listSegmentAccounts(segmentsDir: string): Promise<number[]> {
  return toIds(await findNames(segmentsDir));
}

/** The segments of an account, or of all, by account and id. Error: `record_damaged`. */
export async function listSegments(segmentsDir: string, idAccount?: number): Promise<Segment[]> {
  const segments: Segment[] = [];
  for (const account of idAccount === undefined ? await listSegmentAccounts(segmentsDir) : [idAccount]) {
    for (const idSegment of await listSegmentIds(segmentsDir, account)) {
      const segment = await findSegment(segmentsDir, { idAccount: account, idSegment });
      if (segment !== undefined) segments.push(segment);
    }
  }
  return segments;
}

/** Does one change, or one backup, of the segments at a time. Error: `locked`. */
export async function withSegmentsLock<T>(segmentsDir: string, holder: string, work: () => Promise<T>): Promise<T> {
  const lock = await waitForLock(segmentsDir, holder, lockWaitMs);
  try {
    return await work();
  } finally {
    lock.release();
  }
}

/**
 * Adds a segment, or replaces the one of its id, by a finished file on the same file system, which is moved: durable
 * when it returns. Says whether one was replaced. Errors: `locked`, the system's.
 */
export async function putSegment(
  segmentsDir: string,
  { idAccount, idSegment }: SegmentId,
  file: string,
  facts: SegmentFacts,
): Promise<{ readonly replaced: boolean }> {
  const folder = accountFolder(segmentsDir, idAccount);
  await ensureFolder(folder);
  return withSegmentsLock(segmentsDir, 'segment add', async () => {
    const replaced = (await listRecords(folder)).includes(String(idSegment));
    await publishRecord(folder, String(idSegment), file, { ...facts });
    await markRecord(segmentsDir, recordPath(folder, String(idSegment)));
    return { replaced };
  });
}

/**
 * Replaces the file of a segment by what `change` makes of it, nothing where that is undefined; kind and date stay.
 * Nobody else changes segments meanwhile. A segment that is gone is passed over. Errors: `locked`, `record_damaged`,
 * those of `change`.
 */
export async function changeSegment(
  segmentsDir: string,
  id: SegmentId,
  change: (before: Segment) => Promise<{ readonly file: string; readonly ids: number } | undefined>,
): Promise<void> {
  await withSegmentsLock(segmentsDir, 'a change of a segment', async () => {
    const before = await findSegment(segmentsDir, id);
    const changed = before === undefined ? undefined : await change(before);
    if (before === undefined || changed === undefined) return;
    const { kind, addedAt } = before;
    const facts = { kind, ids: changed.ids, addedAt };
    await publishRecord(accountFolder(segmentsDir, id.idAccount), String(id.idSegment), changed.file, facts);
  });
}

/** Removes a segment, also one whose record is damaged or missing. Errors: `not_found`, `locked`. */
export async function removeSegment(segmentsDir: string, { idAccount, idSegment }: SegmentId): Promise<void> {
  const folder = accountFolder(segmentsDir, idAccount);
  const file = recordPath(folder, String(idSegment));
  const isThere = () => isKnownRecord(segmentsDir, file);
  const missing = new AppError('not_found', `account ${idAccount} has no segment ${idSegment}`, {
    hint: "'tributary segment list' names them.",
  });
  // Asked before the lock, which would make the folder.
  if (!(await isThere())) throw missing;
  await withSegmentsLock(segmentsDir, 'segment remove', async () => {
    if (!(await isThere())) throw missing;
    await ensureFolder(folder);
    await unmarkRecord(segmentsDir, file, () => withdrawRecord(folder, String(idSegment)));
  });
}
