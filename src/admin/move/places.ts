import path from 'node:path';
import type { dataPaths } from '../../config.ts';
import { ensureLakeId } from '../../lake/identity.ts';
import { AppError } from '../../runtime/errors.ts';
import { assertUsable, movedFormat, writeDataFormat } from '../../runtime/files/data-format.ts';
import { listNames } from '../../runtime/files/folder-names.ts';
import type { ObjectStore } from '../../runtime/store/object-store.ts';
import { openStore } from '../../runtime/store/open-store.ts';
import { findStoredFormat, writeStoredFormat, type StoredFormat } from '../../runtime/store/stored-format.ts';

type DataPaths = ReturnType<typeof dataPaths>;

/** The stores of a place. */
interface Place {
  /** Path or address. */
  readonly name: string;
  readonly lake: ObjectStore;
  readonly reports: ObjectStore;
  readonly state: ObjectStore;
}

/** A data folder, which has the data itself or is connected to buckets. The caller has locked it. */
export interface MoveSource extends Place {
  readonly dataDir: string;
  readonly paths: DataPaths;
  /** Whether all of the data is in buckets. */
  readonly isScratch: boolean;
  /** Whether the service runs its own broker, with its store in the data folder. */
  readonly runsBroker: boolean;
}

export interface MoveTarget extends Place {
  /** Undefined for a bucket. */
  readonly paths?: DataPaths;
  isEmpty(): Promise<boolean>;
}

/** Opens a data folder as a source. */
export function openSource(
  source: Pick<MoveSource, 'name' | 'dataDir' | 'paths' | 'isScratch' | 'runsBroker'>,
): MoveSource {
  const { dataDir, paths } = source;
  const state = openStore(dataDir, { isOwned: true });
  return { ...source, lake: openStore(paths.lake), reports: openStore(paths.reports), state };
}

/** Opens an existing folder, which the caller has locked, as a target. */
export function openFolder(dataDir: string, paths: DataPaths): MoveTarget {
  const owned = { isOwned: true };
  return {
    name: dataDir,
    paths,
    lake: openStore(paths.lake, owned),
    reports: openStore(paths.reports, owned),
    state: openStore(dataDir, owned),
    isEmpty: async () => (await listNames(dataDir)).every((name) => ['.lock', 'lost+found'].includes(name)),
  };
}

/** Opens a place in a bucket as a target. `open`: opens a store below it. */
export function openBucket(name: string, open: (below: string) => ObjectStore): MoveTarget {
  const [lake, reports, state] = [open('lake'), open('reports'), open('state')];
  return {
    name,
    lake,
    reports,
    state,
    async isEmpty() {
      for (const store of [lake, reports, state]) if ((await store.list('')).length > 0) return false;
      return true;
    },
  };
}

/** Names a source in the mark of its target: a repeat from another source is rejected. */
export const nameSource = async ({ name, paths }: MoveSource): Promise<string> =>
  `${name} (lake ${await ensureLakeId(paths.lake)})`;

const isMoveFrom = (found: StoredFormat | undefined, from: string): boolean =>
  found?.restoring === true && found.movedFrom === from;

function describeData({ name }: MoveTarget, found: StoredFormat | undefined): string {
  if (found?.movedTo !== undefined) return `the data of ${name} was moved to ${found.movedTo}`;
  if (found?.restoring !== true) return `${name} has data already`;
  return `${name} has an unfinished ${found.movedFrom === undefined ? 'restore' : `move of ${found.movedFrom}`}`;
}

/**
 * Decides what a move has to do: `finish` if a killed one has copied all. Changes nothing in the target. Errors:
 * `data_format` of the source; `conflict` for a target with other data, or one that was moved away.
 */
export async function planMove(source: MoveSource, target: MoveTarget): Promise<'copy' | 'finish'> {
  const from = await nameSource(source);
  const [own, found] = [await findStoredFormat(source.state), await findStoredFormat(target.state)];
  if (own?.movedTo === target.name && isMoveFrom(found, from)) return 'finish';
  if (own !== undefined) assertUsable('the data in', source.name, own);
  if (isMoveFrom(found, from) || (found === undefined && (await target.isEmpty()))) return 'copy';
  throw new AppError('conflict', describeData(target, found), {
    hint: 'Pass a new or empty place: a move overwrites no other data.',
  });
}

/** Returns the mark of a run in the target; that of any run without `move`. Error: `conflict` if another one has begun. */
export async function getMark({ state, name }: MoveTarget, from: string, move?: string): Promise<StoredFormat> {
  const found = await findStoredFormat(state);
  if (found !== undefined && isMoveFrom(found, from) && (move === undefined || found.move === move)) return found;
  throw new AppError('conflict', `another move to ${name} has begun`, {
    hint: 'Wait for it, or stop it and repeat this one.',
  });
}

/** Marks the source as moved. Idempotent. Error: `conflict` if another process has marked it. */
export async function markSource({ state, dataDir, isScratch }: MoveSource, movedTo: string): Promise<void> {
  const found = await findStoredFormat(state);
  const moved = { format: movedFormat, movedTo };
  if (found?.movedTo !== movedTo) await writeStoredFormat(state, moved, found);
  // The rest of a data folder whose state is in a bucket.
  if (!isScratch && state.folder === undefined) await writeDataFormat(path.resolve(dataDir), moved);
}
