import { lstatSync, linkSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import type { Random } from '../../src/demo/random.ts';

/**
 * The part of a disk that survives a power cut.
 *
 * A real folder is the kernel's view, which every process sees. The disk also records the durable state: the bytes of
 * each file at its last fsync, and the entries of each folder at its last fsync. A cut restores the durable state plus
 * other changes that the seed selects: POSIX promises neither order nor completeness. Files that the SQL engine writes
 * are found by later scans, and are not durable until the service syncs them.
 */
export interface Disk {
  readonly root: string;
  /** Records a new file or folder. */
  made(file: string): void;
  linked(from: string, to: string): void;
  /** Records an entry before it is removed or replaced by a rename, so that a cut can restore it. */
  renaming(from: string, to: string): void;
  removing(file: string): void;
  /** Returns the file that a path names now; later renames do not change it. */
  inodeOf(file: string): Inode;
  /** Records a successful fsync of a file. */
  synced(inode: Inode, bytes: Buffer): void;
  /**
   * Records a failed fsync: the kernel discards the bytes, and the next fsync of the file succeeds without writing
   * them.
   */
  syncFailed(inode: Inode): void;
  syncedFolder(folder: string): void;
  /** Cuts the power; every process must have ended. */
  cut(random: Random): void;
  /** Returns names and bytes of a folder's files that would survive the worst cut now. */
  durableFiles(folder: string): ReadonlyMap<string, Buffer>;
}

/** A file or a folder, independent of its names. */
export interface Inode {
  readonly isFolder: boolean;
  readonly entries: Map<string, Inode>;
  readonly durableEntries: Map<string, Inode>;
  durableBytes: Buffer;
  /** The bytes at the removal of the last name. */
  lastBytes: Buffer | undefined;
  isForgotten: boolean;
}

/** A rename: it becomes durable completely or not at all. */
type Renaming = readonly { readonly folder: Inode; readonly name: string; readonly inode: Inode | undefined }[];

const nothing = Buffer.alloc(0);

function createInode(isFolder: boolean): Inode {
  return {
    isFolder,
    entries: new Map(),
    durableEntries: new Map(),
    durableBytes: nothing,
    lastBytes: undefined,
    isForgotten: false,
  };
}

function apply(renaming: Renaming, to: 'entries' | 'durableEntries'): void {
  for (const { folder, name, inode } of renaming) {
    if (inode === undefined) folder[to].delete(name);
    else folder[to].set(name, inode);
  }
}

/**
 * Returns the bytes after a cut: those without fsync are kept, lost, truncated or zeroed. Earlier fsynced ones stay.
 */
function surviving(durable: Buffer, bytes: Buffer, random: Random): Buffer {
  if (bytes.equals(durable)) return bytes;
  const fate = random.pick(['kept', 'lost', 'cut', 'zeros'] as const);
  if (fate === 'kept') return bytes;
  if (fate === 'lost') return durable;
  const start = bytes.subarray(0, durable.length).equals(durable) ? durable.length : 0;
  const to = random.integer(start, bytes.length);
  return fate === 'cut'
    ? bytes.subarray(0, to)
    : Buffer.concat([bytes.subarray(0, to), Buffer.alloc(bytes.length - to)]);
}

/** Writes the durable content of a folder, and the other bytes that the seed selects. */
function restore(folder: Inode, at: string, written: Map<Inode, string>, random: Random): void {
  folder.entries.clear();
  for (const [name, inode] of folder.durableEntries) {
    const file = path.join(at, name);
    folder.entries.set(name, inode);
    const twin = written.get(inode);
    if (twin !== undefined) {
      linkSync(twin, file);
    } else if (inode.isFolder) {
      mkdirSync(file);
      restore(inode, file, written, random);
    } else {
      inode.durableBytes = surviving(inode.durableBytes, inode.lastBytes ?? nothing, random);
      inode.isForgotten = false;
      writeFileSync(file, inode.durableBytes);
      written.set(inode, file);
    }
  }
}

/** Creates the disk of an empty folder. */
export function createDisk(root: string): Disk {
  const top = createInode(true);
  let pending: Renaming[] = [];

  function record(renaming: Renaming): void {
    apply(renaming, 'entries');
    pending.push(renaming);
  }

  /** Adds a file or folder that was created outside of the double. */
  function adopt(folder: Inode, name: string, file: string): Inode {
    const known = folder.entries.get(name);
    if (known !== undefined) return known;
    const inode = createInode(lstatSync(file).isDirectory());
    record([{ folder, name, inode }]);
    return inode;
  }

  function inodeOf(file: string): Inode {
    let [inode, at] = [top, root];
    // Folders above belong to another disk.
    if (!`${file}${path.sep}`.startsWith(`${root}${path.sep}`)) return createInode(true);
    for (const name of path
      .relative(root, file)
      .split(path.sep)
      .filter((part) => part !== '')) {
      at = path.join(at, name);
      inode = adopt(inode, name, at);
    }
    return inode;
  }

  function adoptAll(folder: Inode, at: string): void {
    const names = readdirSync(at).toSorted();
    for (const name of folder.entries.keys()) {
      if (!names.includes(name)) record([{ folder, name, inode: undefined }]);
    }
    for (const name of names) {
      const file = path.join(at, name);
      const inode = adopt(folder, name, file);
      if (inode.isFolder) adoptAll(inode, file);
      else inode.lastBytes = readFileSync(file);
    }
  }

  const place = (file: string): { folder: Inode; name: string } => ({
    folder: inodeOf(path.dirname(file)),
    name: path.basename(file),
  });

  /** Makes renames durable, and earlier ones of the same names. */
  function settle(isDue: (renaming: Renaming) => boolean): void {
    const due = new Set<Renaming>();
    for (const renaming of pending.toReversed()) {
      const isBefore = [...due].some((later) =>
        later.some((a) => renaming.some((b) => a.folder === b.folder && a.name === b.name)),
      );
      if (isDue(renaming) || isBefore) due.add(renaming);
    }
    for (const renaming of pending) if (due.has(renaming)) apply(renaming, 'durableEntries');
    pending = pending.filter((renaming) => !due.has(renaming));
  }

  /** Selects renames that survive without an fsync: in the order of a journal, or in any order that POSIX allows. */
  function letThrough(random: Random): void {
    const share = random.pick([0, 0.5, 0.9, 1]);
    const upTo = random.integer(0, pending.length);
    const isOrdered = random.chance(0.5);
    for (const [index, renaming] of pending.entries()) {
      if (isOrdered ? index < upTo : random.chance(share)) apply(renaming, 'durableEntries');
    }
    pending = [];
  }

  return {
    root,
    inodeOf,
    made: (file) => void inodeOf(file),
    renaming(from, to) {
      const inode = inodeOf(from);
      const target = place(to);
      const replaced = target.folder.entries.get(target.name);
      if (replaced?.isFolder === false) replaced.lastBytes = readFileSync(to);
      record([
        { ...place(from), inode: undefined },
        { ...target, inode },
      ]);
    },
    linked: (from, to) => record([{ ...place(to), inode: inodeOf(from) }]),
    removing(file) {
      const inode = inodeOf(file);
      if (!inode.isFolder) inode.lastBytes = readFileSync(file);
      record([{ ...place(file), inode: undefined }]);
    },
    synced(inode, bytes) {
      if (!inode.isForgotten) inode.durableBytes = bytes;
    },
    syncFailed(inode) {
      inode.isForgotten = true;
    },
    syncedFolder(folder) {
      const inode = inodeOf(folder);
      if (!folder.startsWith(root)) return;
      for (const name of readdirSync(folder)) adopt(inode, name, path.join(folder, name));
      settle((renaming) => renaming.some((change) => change.folder === inode));
    },
    cut(random) {
      adoptAll(top, root);
      letThrough(random);
      for (const name of readdirSync(root)) rmSync(path.join(root, name), { recursive: true });
      restore(top, root, new Map(), random);
    },
    durableFiles(folder) {
      let inode: Inode | undefined = top;
      for (const name of path.relative(root, folder).split(path.sep)) inode = inode?.durableEntries.get(name);
      return new Map(
        [...(inode?.durableEntries ?? [])].flatMap(([name, file]) =>
          file.isFolder ? [] : [[name, file.durableBytes] as const],
        ),
      );
    },
  };
}
