/**
 * Segments: sets of user ids or device ids, by which an account's exports are filtered.
 *
 * In: a Parquet file with one column `id` (sorted, each id once), which operate/lists makes of an operator's list. Out:
 * the segments of an account, and the file of each. A segment belongs to one account: to every other one it does not
 * exist. Layout: `segments/<account>/<id>.json`, the record, and the file that it names (runtime/store/file-records.ts).
 * Invariant: a segment changes as a whole; a reader has the set of one record or an error, never another set.
 */
import { AppError } from '../runtime/errors.ts';
import { openFileRecords, type FileRecords } from '../runtime/store/file-records.ts';
import { isCount, isText, oneOf, shapeOf } from '../runtime/store/shape.ts';

/** What the ids of a segment are: `custom` user ids, or ids of devices, of whichever kind. */
export const segmentKinds = ['custom', 'device'] as const;
export type SegmentKind = (typeof segmentKinds)[number];

/** Longest id, characters: a user id has no more. */
export const maxIdLength = 1024;

/** What a record says of a segment beside its file. */
export interface SegmentFacts {
  readonly kind: SegmentKind;
  /** How many ids are in it. */
  readonly ids: number;
  /** When it was added as it is now, ISO time. */
  readonly addedAt: string;
}

/** Which segment: an id is an account's own, and says nothing in another. */
export interface SegmentId {
  readonly idAccount: number;
  readonly idSegment: number;
}

/** A segment at rest. */
export interface Segment extends SegmentFacts, SegmentId {
  /** Absolute path of its file. */
  readonly file: string;
  readonly sizeBytes: number;
  /** Hash of the file's bytes, hex. */
  readonly sha256: string;
}

const isFacts = shapeOf<SegmentFacts>({ kind: oneOf(segmentKinds), ids: isCount, addedAt: isText });
const idForm = /^[1-9]\d{0,14}\/[1-9]\d{0,15}$/;

const toId = ({ idAccount, idSegment }: SegmentId): string => `${idAccount}/${idSegment}`;

/** Opens the files of the segments, by `<account>/<id>`. */
export function openSegments(segmentsDir: string): FileRecords<SegmentFacts> {
  const damaged = {
    code: 'record_damaged',
    hint: "Add the segment anew by 'tributary segment add', or restore its files from a backup.",
  } as const;
  return openFileRecords(segmentsDir, { isValid: isFacts, idForm, damaged }, true);
}

/** Lists the segments of an account, or of all, by account and id. */
async function listIds(segmentsDir: string, idAccount?: number): Promise<SegmentId[]> {
  const ids = await openSegments(segmentsDir).ids(idAccount === undefined ? '' : `${idAccount}/`);
  return ids
    .map((id) => id.split('/').map(Number))
    .map(([account = 0, idSegment = 0]) => ({ idAccount: account, idSegment }))
    .filter(({ idSegment }) => Number.isSafeInteger(idSegment))
    .toSorted((a, b) => a.idAccount - b.idAccount || a.idSegment - b.idSegment);
}

/** Lists the ids of an account's segments, ascending. */
export async function listSegmentIds(segmentsDir: string, idAccount: number): Promise<number[]> {
  return (await listIds(segmentsDir, idAccount)).map(({ idSegment }) => idSegment);
}

/** Finds a segment of an account; undefined when the account has none of that id. Error: `record_damaged`. */
export async function findSegment(segmentsDir: string, id: SegmentId): Promise<Segment | undefined> {
  const found = await openSegments(segmentsDir).get(toId(id));
  if (found === undefined) return undefined;
  const { facts, ...file } = found;
  return { idAccount: id.idAccount, idSegment: id.idSegment, ...facts, ...file };
}

/** Lists the segments of an account, or of all, by account and id. Error: `record_damaged`. */
export async function listSegments(segmentsDir: string, idAccount?: number): Promise<Segment[]> {
  const ids = await listIds(segmentsDir, idAccount);
  const segments = await Promise.all(ids.map((id) => findSegment(segmentsDir, id)));
  return segments.filter((segment) => segment !== undefined);
}

/**
 * Adds a segment, or replaces the one of its id, by a finished file on the same file system, which is moved: durable
 * when it returns. Returns whether one was replaced. Errors: `locked`, the system's.
 */
export async function putSegment(
  segmentsDir: string,
  id: SegmentId,
  file: string,
  facts: SegmentFacts,
): Promise<{ readonly replaced: boolean }> {
  const segments = openSegments(segmentsDir);
  return await segments.hold(async () => {
    const replaced = (await segments.ids(`${id.idAccount}/`)).includes(toId(id));
    await segments.publish(toId(id), file, { ...facts });
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
  const segments = openSegments(segmentsDir);
  await segments.hold(async () => {
    const before = await findSegment(segmentsDir, id);
    const changed = before === undefined ? undefined : await change(before);
    if (before === undefined || changed === undefined) return;
    const { kind, addedAt } = before;
    await segments.publish(toId(id), changed.file, { kind, ids: changed.ids, addedAt });
  });
}

/** Removes a segment, also one whose record is damaged or missing. Errors: `not_found`, `locked`. */
export async function removeSegment(segmentsDir: string, id: SegmentId): Promise<void> {
  const segments = openSegments(segmentsDir);
  if (await segments.hold(() => segments.withdraw(toId(id)))) return;
  throw new AppError('not_found', `account ${id.idAccount} has no segment ${id.idSegment}`, {
    hint: "'tributary segment list' names them.",
  });
}
