import { decodePath, type Action } from './actions.ts';
import { isOwnEncoding, toDataFile } from './live-file.ts';
import { describeState, toSnapshot, type DataFile, type Snapshot } from './snapshot.ts';
import type { TableState } from './table-state.ts';

/**
 * The snapshot of a table that goes on commit by commit: the same as `toSnapshot` makes of the whole state, made from
 * the snapshot before and what the commits since have named. A flush asks for it again and again, and must not pay for
 * each live file.
 */
export interface SnapshotView {
  /** The snapshot of the state as it is. Errors: as `toSnapshot`. */
  current(): Snapshot;
  /** Told of actions that are to be applied to the state. */
  note(actions: readonly Action[]): void;
}

/** What has become of a path: the file that it names now, if any. */
type Changes = ReadonlyMap<string, DataFile | undefined>;

/** The first place in a list, sorted by path, whose path is not before this one. */
function findPlace(files: readonly DataFile[], path: string, from: number): number {
  let [low, high] = [from, files.length];
  while (low < high) {
    const middle = (low + high) >>> 1;
    const file = files[middle];
    if (file !== undefined && file.path < path) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Replaces, adds and takes out files in a list that is sorted by path and has each path once. */
export function replaceFiles(files: readonly DataFile[], changes: Changes): DataFile[] {
  const replaced: DataFile[] = [];
  let from = 0;
  const copyTo = (end: number): void => {
    for (; from < end; from += 1) {
      const file = files[from];
      if (file !== undefined) replaced.push(file);
    }
  };
  for (const [path, file] of [...changes].toSorted(([a], [b]) => (a < b ? -1 : 1))) {
    copyTo(findPlace(files, path, from));
    if (files[from]?.path === path) from += 1;
    if (file !== undefined) replaced.push(file);
  }
  copyTo(files.length);
  return replaced;
}

/** Creates the view of a state; `tableDir` is absolute. */
export function createSnapshotView(tableDir: string, state: Readonly<TableState>): SnapshotView {
  let snapshot: Snapshot | undefined;
  /** Encoded paths that commits since that snapshot have named. */
  let named = new Set<string>();
  /** A path in another encoding may stand beside one that means the same file: such a log is sorted anew each time. */
  let isOwn = true;

  function build(): Snapshot {
    isOwn &&= snapshot === undefined ? [...state.files.keys()].every(isOwnEncoding) : [...named].every(isOwnEncoding);
    if (snapshot === undefined || !isOwn) return toSnapshot(tableDir, state);
    const changes = new Map(
      [...named].map((encoded) => {
        const add = state.files.get(encoded);
        return [decodePath(encoded) ?? encoded, add === undefined ? undefined : toDataFile(tableDir, add)] as const;
      }),
    );
    return describeState(tableDir, state, replaceFiles(snapshot.files, changes));
  }

  return {
    current() {
      if (snapshot?.version === state.version) return snapshot;
      snapshot = build();
      named = new Set();
      return snapshot;
    },
    note(actions) {
      if (snapshot === undefined) return;
      for (const { add, remove } of actions) {
        if (add !== undefined) named.add(add.path);
        if (remove !== undefined) named.add(remove.path);
      }
    },
  };
}
