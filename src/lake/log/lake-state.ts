import type { CommitInfoAction } from './actions.ts';

/** What made a commit. */
export type CommitCause =
  | 'create'
  | 'start'
  | 'schema'
  | 'flush'
  | 'epoch'
  | 'seal'
  | 'erase'
  | 'enrich'
  | 'swap'
  | 'replay'
  | 'drop'
  | 'protocol'
  | 'reset'
  | 'repair'
  | 'restamp'
  | 'restore'
  | 'load'
  | 'unload';

/**
 * Where every event that was in the stream has gone, since the lake was created:
 * `streamed` = rows in the lake + `failed` + `repeats` + `erased`.
 */
export interface Totals {
  readonly streamed: number;
  readonly stored: number;
  readonly failed: number;
  readonly repeats: number;
  readonly erased: number;
}

/** One life of the stream, as far as the lake has followed it. */
export interface Epoch {
  /**
   * Identity of the txn action that carries the position: the stream's id, and a number when that id had a fault
   * before.
   */
  readonly appId: string;
  /** The stream's own id: name and creation time. */
  readonly streamId: string;
  /** Last stream sequence in the lake; 0 before the first. The txn action says the same. */
  readonly position: number;
  /** SHA-256 (hex) of the message at `position`; absent at the start of an epoch. */
  readonly anchorHash?: string;
  /**
   * SHA-256 (hex) of the message after `position`, where the epoch began: while there is no anchor, it is known by this
   * whether numbers were used again.
   */
  readonly nextHash?: string;
  /** Events up to this sequence may already be in the lake under another epoch: each is looked up by its id. */
  readonly dedupeThrough: number;
  /**
   * Every event that was acknowledged before the broker's clock first showed this is in the stream up to `position`, Unix
   * milliseconds (lake/watermark.ts). Absent: nothing of the epoch is in the lake yet, or it was taken in before this
   * was written down.
   */
  readonly watermarkMs?: number;
}

/** A repair of the clock that has given rows another `available_at` (lake/repair/restamp.ts). */
export interface Restamp {
  /** The version that it made. */
  readonly version: number;
  /** The newest `available_at` among those that it has given, Unix milliseconds. */
  readonly toMs: number;
  /** The newest `available_at` that it has looked at, Unix milliseconds: later ones stay as they are. Absent: all. */
  readonly upToMs?: number;
  /** The file that says what became of each time, relative to the table's folder; absent: no row had one. */
  readonly steps?: string;
}

/** The file of the hashes of erased ids (lake/find/erased-ids.ts). */
export interface ErasedIdsState {
  /** How many hashes it has; 0: it is not there, since those of before were lost. */
  readonly hashes: number;
  /** SHA-256 of its bytes, hex. */
  readonly sha256: string;
  /** Hashes of earlier erasures were lost, and an operator has accepted it. */
  readonly isPartial?: true;
}

/** The service's own part of a commit: totals and position are running values, so the newest commit says it all. */
export interface LakeState {
  /** Unique id of the commit. */
  readonly commitId: string;
  readonly cause: CommitCause;
  /** SHA-256 (hex) of the bytes of the commit before: the log is a chain, so that a changed entry shows. */
  readonly previous?: string;
  /**
   * Versions before this one refer to erased rows: they are dropped, with the files that only they name, at
   * `forgetAtMs`.
   */
  readonly forgetBefore?: number;
  /**
   * An erasure has taken rows of these apps out (`true`: of any) and has not said yet which versions are to be dropped
   * for it.
   */
  readonly erasing?: true | readonly number[];
  /** By app, or `all` for any: the versions before this one have rows of it that were erased since. */
  readonly erasedBefore?: Readonly<Record<string, number>>;
  /** When the retention of the newest erasure is over, Unix milliseconds; absent: at once, whoever still reads. */
  readonly forgetAtMs?: number;
  readonly totals: Totals;
  readonly epoch?: Epoch;
  /** The compactor that may flush and seal: each claims the lake at its start, which fences the one before. */
  readonly writer?: string;
  /**
   * The commitId of the newest commit that added events under Idempotency-Keys. Who judges repeats must have seen it: a
   * flush and a replay in another process would else each store the same event.
   */
  readonly keysCommit?: string;
  /**
   * The hashes of erased ids, in the log of the events alone. Absent: nothing was erased yet, or by a version before 0.4
   * only.
   */
  readonly erasedIds?: ErasedIdsState;
  /** The newest `available_at` given out, Unix milliseconds; it never goes back. */
  readonly availableAtMs: number;
  /** The commitId of the commit that gave it out; absent where it was made before that was written down. */
  readonly availableBy?: string;
  /** The repairs of the clock so far, oldest first. */
  readonly restamps?: readonly Restamp[];
  /** The lake was restored from the backup of this time, ISO 8601, and nothing has been read from a stream since. */
  readonly restoredFrom?: string;
}

/** The totals of a lake that has seen nothing. */
export const emptyTotals: Totals = { streamed: 0, stored: 0, failed: 0, repeats: 0, erased: 0 };

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

/** Finds the service's part of a commit; undefined when another engine wrote it (or it cannot be trusted). */
export function findLakeState(info: CommitInfoAction | undefined): LakeState | undefined {
  const state = info?.tributary as Partial<LakeState> | undefined | null;
  if (typeof state !== 'object' || state === null) return undefined;
  const { totals, epoch } = state;
  if (
    typeof state.commitId !== 'string' ||
    !isCount(state.availableAtMs) ||
    typeof totals !== 'object' ||
    totals === null
  )
    return undefined;
  if (!Object.keys(emptyTotals).every((name) => isCount(totals[name as keyof Totals]))) return undefined;
  if (
    epoch !== undefined &&
    !(
      typeof epoch.appId === 'string' &&
      typeof epoch.streamId === 'string' &&
      isCount(epoch.position) &&
      isCount(epoch.dedupeThrough) &&
      isCount(epoch.watermarkMs ?? 0)
    )
  ) {
    return undefined;
  }
  return state as LakeState;
}
