/**
 * Segments: sets of user ids or device ids, by which an account's exports are filtered.
 *
 * In: a Parquet file with one column `id` (sorted, each id once), which operate/lists has made of an operator's list.
 * Out: what segments an account has, and where the file of one is. A segment belongs to one account: to every other
 * one it does not exist. Layout: `segments/<account>/<id>.json`, the record, and the file that it names
 * (runtime/files/recorded-file.ts).
 * Invariant: a segment changes as a whole; a reader has the set of one record or an error, never another set.
 * Crash: the segment before, or the one after; a file that no record names goes with the next change of the account.
 */

/** What the ids of a segment are: `custom` user ids, or ids of devices, of whichever kind. */
export const segmentKinds = ['custom', 'device'] as const;
export type SegmentKind = (typeof segmentKinds)[number];

/** Longest id, characters: a user id has no more. */
export const maxIdLength = 1024;

/** What is known of a segment beside its file. */
export interface SegmentFacts {
  readonly kind: SegmentKind;
  /** How many ids are in it. */
  readonly ids: number;
  /** When it was added as it is now, ISO time. */
  readonly addedAt: string;
}

/** A segment at rest. */
export interface Segment extends SegmentFacts {
  readonly idAccount: number;
  readonly idSegment: number;
  /** Absolute path of its file. */
  readonly file: string;
  readonly sizeBytes: number;
  /** Hash of the file's bytes, hex. */
  readonly sha256: string;
}
