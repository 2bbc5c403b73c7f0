/**
 * Segments: sets of user ids or device ids that filter the exports of an account.
 *
 * In: a Parquet file with one column `id` (sorted, each id once) from admin/lists. Out: the segments of an account and
 * their files. Other accounts do not find a segment.
 * Layout: `segments/<account>/<id>.json`, the record, and its file (runtime/store/file-records.ts).
 * Invariant: a reader gets the set of one record or an error.
 * Crash: the previous or the new record is current; the next change removes files without a record.
 */
import { AppError } from '../runtime/errors.ts';
import { openFileRecords, type FileRecords, type RecordedFile } from '../runtime/store/file-records.ts';
import { isCount, isText, oneOf, shapeOf } from '../runtime/store/shape.ts';

/** Kinds of ids: `custom` user ids, or ids of devices of any kind. */
export const segmentKinds = ['custom', 'device'] as const;
export type SegmentKind = (typeof segmentKinds)[number];

/** Longest id, characters, as of a user id. */
export const maxIdLength = 1024;

interface SegmentStats {
  readonly kind: SegmentKind;
  readonly ids: number;
  /** Time of the last change, ISO 8601. */
  readonly addedAt: string;
}

export interface SegmentId {
  readonly idAccount: number;
  readonly idSegment: number;
}

export interface Segment extends RecordedFile, SegmentStats, SegmentId {}

const isFacts = shapeOf<SegmentStats>({ kind: oneOf(segmentKinds), ids: isCount, addedAt: isText });
const idForm = /^[1-9]\d{0,14}\/[1-9]\d{0,15}$/;

const toId = ({ idAccount, idSegment }: SegmentId): string => `${idAccount}/${idSegment}`;

export function openSegments(segmentsDir: string): FileRecords<SegmentStats> {
  const damaged = {
    code: 'record_damaged',
    hint: "Restore its files from a backup, or add the segment again by 'tributary segment add'.",
  } as const;
  return openFileRecords(segmentsDir, { isValid: isFacts, idForm, damaged }, true);
}

async function listIds(segmentsDir: string, idAccount?: number): Promise<SegmentId[]> {
  const ids = await openSegments(segmentsDir).ids(idAccount === undefined ? '' : `${idAccount}/`);
  return ids
    .map((id) => id.split('/').map(Number))
    .map(([account = 0, idSegment = 0]) => ({ idAccount: account, idSegment }))
    .filter(({ idSegment }) => Number.isSafeInteger(idSegment))
    .toSorted((a, b) => a.idAccount - b.idAccount || a.idSegment - b.idSegment);
}

export async function listSegmentIds(segmentsDir: string, idAccount: number): Promise<number[]> {
  return (await listIds(segmentsDir, idAccount)).map(({ idSegment }) => idSegment);
}

export async function findSegment(segmentsDir: string, id: SegmentId): Promise<Segment | undefined> {
  const found = await openSegments(segmentsDir).get(toId(id));
  if (found === undefined) return undefined;
  const { facts, ...file } = found;
  return { idAccount: id.idAccount, idSegment: id.idSegment, ...facts, ...file };
}

export async function listSegments(segmentsDir: string, idAccount?: number): Promise<Segment[]> {
  const ids = await listIds(segmentsDir, idAccount);
  const segments = await Promise.all(ids.map((id) => findSegment(segmentsDir, id)));
  return segments.filter((segment) => segment !== undefined);
}

/**
 * Adds or replaces a segment by a finished file on the same file system, which is moved, durably. Returns whether one
 * was replaced. Errors: `locked`, the system's.
 */
export async function putSegment(
  segmentsDir: string,
  id: SegmentId,
  file: string,
  facts: SegmentStats,
): Promise<{ readonly replaced: boolean }> {
  return { replaced: await openSegments(segmentsDir).publish(toId(id), file, { ...facts }) };
}

/**
 * Replaces the file of a segment by the result of `change`, unless that is undefined or the segment does not exist. Other
 * changes wait. Errors: `locked`, `record_damaged`, those of `change`.
 */
export async function changeSegment(
  segmentsDir: string,
  id: SegmentId,
  change: (before: Segment) => Promise<{ readonly file: string; readonly ids: number } | undefined>,
): Promise<void> {
  await openSegments(segmentsDir).change(toId(id), async (found) => {
    if (found === undefined) return undefined;
    const { facts, ...file } = found;
    const changed = await change({ ...id, ...facts, ...file });
    if (changed === undefined) return undefined;
    return { file: changed.file, facts: { kind: facts.kind, ids: changed.ids, addedAt: facts.addedAt } };
  });
}

/** Removes a segment, damaged or not. Errors: `not_found`, `locked`. */
export async function removeSegment(segmentsDir: string, id: SegmentId): Promise<void> {
  if (await openSegments(segmentsDir).withdraw(toId(id))) return;
  throw new AppError('not_found', `account ${id.idAccount} has no segment ${id.idSegment}`, {
    hint: "Run 'tributary segment list' for the segments.",
  });
}
