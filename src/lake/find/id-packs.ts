import { createHash } from 'node:crypto';
import path from 'node:path';
import { isAppError, isSystemError } from '../../runtime/errors.ts';
import { findTextFile, removeFile, replaceFile } from '../../runtime/files/durable-file.ts';
import { findSize } from '../../runtime/files/file-checks.ts';
import { findNames } from '../../runtime/files/folder-names.ts';
import { mergePairs, readAllPairs, writePairs, type PairColumns } from '../files/id-pairs.ts';

/**
 * Packs: the pairs of many small files in one, so that a lake that gets a few small files an hour for years is still
 * looked through by a few hundred reads. A file of pairs, and beside it the list of the files that it is made of, by whose hash
 * both are named: a list that is not what was written is known, and a pack is never of other files than its list says.
 *
 * The files that a pack is made of stay. When one of them goes, since an erasure or a seal has replaced its data file,
 * the pack goes with it, and the others come into a new one.
 */
interface Pack {
  /** Absolute. */
  readonly file: string;
  /** The names of the files that it is made of. */
  readonly members: ReadonlySet<string>;
}

const packSuffix = '.pack';
const listSuffix = '.list';
/** Files that become a pack, unless they have so many bytes before. */
const membersOfPack = 128;
const bytesOfPack = 4 * 1024 * 1024;
/** A larger file is no trouble by itself. */
const maxMemberBytes = 256 * 1024;

const hashOf = (list: string): string => createHash('sha256').update(list).digest('hex');

/** The packs of a folder, as far as this process knows them: what another makes meanwhile is not needed. */
export interface Packs {
  /** The packs that some files are in, by their names, and the files that are in none. */
  part(names: readonly string[]): Promise<{ readonly packs: ReadonlyMap<Pack, string[]>; readonly single: string[] }>;
  /** The pack is not there any more. */
  forget(pack: Pack): void;
  /** Keeps the packs of which every file is wanted, and there; returns the names of their own files. */
  keepOnly(wanted: { has(name: string): boolean }, there: ReadonlySet<string>): Promise<ReadonlySet<string>>;
  /** Makes the packs that some files, by their names, are enough for, and says so after each. */
  make(names: readonly string[]): AsyncGenerator<void>;
}

/** The names of a pack's two files. */
const filesOfPack = ({ file }: Pack): readonly string[] => {
  const name = path.basename(file);
  return [name, `${name.slice(0, -packSuffix.length)}${listSuffix}`];
};

/** Reads which packs a folder has; one without its list, or with a damaged one, is none. */
async function listPacks(folder: string): Promise<Pack[]> {
  const packs: Pack[] = [];
  for (const name of await findNames(folder)) {
    if (!name.endsWith(packSuffix)) continue;
    const base = name.slice(0, -packSuffix.length);
    const list = await findTextFile(path.join(folder, `${base}${listSuffix}`));
    if (list !== undefined && hashOf(list) === base)
      packs.push({ file: path.join(folder, name), members: new Set(list.trimEnd().split('\n')) });
  }
  return packs;
}

/** The bytes of files of a folder, each looked at once: under one name a file is made anew as it was. */
interface Sizes {
  find(name: string): Promise<number | undefined>;
  /** Forgets the files that do not stay. */
  keepOnly(stays: (name: string) => boolean): void;
}

function createSizes(folder: string): Sizes {
  const known = new Map<string, number>();
  return {
    async find(name) {
      const size = known.get(name) ?? (await findSize(path.join(folder, name)));
      if (size !== undefined) known.set(name, size);
      return size;
    },
    keepOnly(stays) {
      for (const name of known.keys()) if (!stays(name)) known.delete(name);
    },
  };
}

/** Cuts files into packs, in their order; what is left over stays as it is. */
async function planPacks(sizes: Sizes, names: readonly string[]): Promise<string[][]> {
  const plan: string[][] = [];
  let members: string[] = [];
  let bytes = 0;
  for (const name of names) {
    const size = await sizes.find(name);
    if (size === undefined || size > maxMemberBytes) continue;
    members.push(name);
    bytes += size;
    if (members.length < membersOfPack && (bytes < bytesOfPack || members.length === 1)) continue;
    plan.push(members);
    [members, bytes] = [[], 0];
  }
  return plan;
}

/** Reads files of pairs; undefined: one of them is gone, or is now, since it was damaged. It is made anew. */
async function readMembers(folder: string, members: readonly string[]): Promise<PairColumns[] | undefined> {
  const read: PairColumns[] = [];
  for (const name of members) {
    const file = path.join(folder, name);
    try {
      read.push(await readAllPairs(file));
    } catch (error) {
      if (isAppError(error, 'file_damaged')) await removeFile(file);
      else if (!isSystemError(error, 'ENOENT')) throw error;
      return undefined;
    }
  }
  return read;
}

/** Makes the packs that some files, by their names, are enough for, one after the other. */
async function* makePacks(folder: string, sizes: Sizes, names: readonly string[]): AsyncGenerator<Pack> {
  for (const members of await planPacks(sizes, names)) {
    const read = await readMembers(folder, members);
    if (read === undefined) continue;
    const list = `${members.join('\n')}\n`;
    const base = path.join(folder, hashOf(list));
    const file = `${base}${packSuffix}`;
    await writePairs(file, [mergePairs(read)]);
    await replaceFile(`${base}${listSuffix}`, list);
    yield { file, members: new Set(members) };
  }
}

/** Opens the packs of a folder; nothing is read yet. */
export function openPacks(folder: string): Packs {
  /** By the name of each file; undefined: not looked yet. */
  let byMember: Map<string, Pack> | undefined;
  const sizes = createSizes(folder);

  async function read(): Promise<Map<string, Pack>> {
    if (byMember !== undefined) return byMember;
    const listed = await listPacks(folder);
    byMember = new Map(listed.flatMap((pack) => [...pack.members].map((name) => [name, pack] as const)));
    return byMember;
  }

  return {
    async part(names) {
      const known = await read();
      const [packs, single] = [new Map<Pack, string[]>(), [] as string[]];
      for (const name of names) {
        const pack = known.get(name);
        const own = pack === undefined ? single : (packs.get(pack) ?? []);
        own.push(name);
        if (pack !== undefined) packs.set(pack, own);
      }
      return { packs, single };
    },
    forget({ members }) {
      for (const name of members) byMember?.delete(name);
    },
    async keepOnly(wanted, there) {
      sizes.keepOnly((name) => wanted.has(name) && there.has(name));
      const known = new Set((await read()).values());
      const kept = [...known].filter(
        (pack) =>
          [...pack.members].every((name) => wanted.has(name)) && filesOfPack(pack).every((name) => there.has(name)),
      );
      byMember = new Map(kept.flatMap((pack) => [...pack.members].map((name) => [name, pack] as const)));
      return new Set(kept.flatMap(filesOfPack));
    },
    async *make(names) {
      const { single } = await this.part(names);
      for await (const pack of makePacks(folder, sizes, single)) {
        for (const name of pack.members) byMember?.set(name, pack);
        yield;
      }
    },
  };
}
