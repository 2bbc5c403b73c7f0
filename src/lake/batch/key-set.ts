/** Hashes of 64 bits, as their halves. */
export interface KeyHashes {
  readonly lows: Uint32Array;
  readonly highs: Uint32Array;
}

/** SQL of the two halves of the engine's hash of a column, `low` and `high`. */
export const halvesSql = (column: string): string =>
  `(hash(${column}) & 4294967295)::UINTEGER AS low, (hash(${column}) >> 32)::UINTEGER AS high`;

/**
 * Hashes of keys, and for each the group of rows that has it, such as a file: by it one group is read for a key that may
 * be there, and none for one that is not. Every key that was added is found; another passes for one of them once in
 * 2^44 / `size` times. Off the heap, and grown in small steps.
 */
export interface KeySet {
  /** Adds the keys of a group; they take the places of the same ones of groups that were dropped. */
  add(hashes: KeyHashes, group: number): void;
  /** The groups that may have the key; those that were dropped are left out. */
  find(low: number, high: number): readonly number[];
  /** The number of a group whose keys are about to be added; undefined: none is free. */
  addGroup(): number | undefined;
  /** Nobody asks for the group any more. The places of its keys, and its number, are free a while later. */
  dropGroup(group: number): void;
  /** Keys, those of dropped groups among them until their places are needed. */
  readonly size: number;
  readonly bytes: number;
}

/** The keys of so many groups at a time: 255 in 6 to 9 bytes a key, or as many as come in 10 to 14. */
export type GroupRange = '255' | 'any';

/** Keys lie by the first bits of their hashes in so many shards: one grows in well under a millisecond. */
const shardBits = 12;
const shardCount = 2 ** shardBits;
const leastSlots = 8;
const mostFull = 0.8;
/** What a shard grows by: each by another factor, so that not all of them grow at once. */
const growthOf = (shard: number): number => 1.2 + (0.3 * shard) / shardCount;
/** Shards in which numbers of dropped groups are wiped out when a new group asks for one. */
const shardsATurn = shardCount / 16;

/** An open-addressed table. */
interface Shard {
  /** The second halves of the hashes; 0: the slot is empty. */
  readonly prints: Uint32Array;
  readonly groups: Uint8Array | Uint32Array;
  used: number;
}

/** Whether each group is there, by its number. */
type LiveGroups = Uint8Array;

const printOf = (low: number): number => (low === 0 ? 1 : low);
/** Where the search for a print begins: in proportion to it, so that any number of slots will do. */
const homeOf = (print: number, slots: number): number => Math.floor((print * slots) / 2 ** 32);

/** Puts a key into a shard that has room. */
function place(shard: Shard, print: number, group: number, live: LiveGroups): void {
  const { prints, groups } = shard;
  let at = homeOf(print, prints.length);
  for (let found = prints[at]; found !== 0; found = prints[at]) {
    const other = groups[at] ?? 0;
    if (found === print && (other === group || live[other] !== 1)) {
      groups[at] = group;
      return;
    }
    at = at + 1 === prints.length ? 0 : at + 1;
  }
  prints[at] = print;
  groups[at] = group;
  shard.used += 1;
}

/** The same shard without the keys of dropped groups; `grownTo`: how many slots it gets for so many keys. */
function rebuild({ prints, groups }: Shard, live: LiveGroups, grownTo: (keys: number) => number): Shard {
  let kept = 0;
  for (let at = 0; at < prints.length; at += 1) if (prints[at] !== 0 && live[groups[at] ?? 0] === 1) kept += 1;
  const slots = grownTo(kept);
  const shard = {
    prints: new Uint32Array(slots),
    groups: groups instanceof Uint8Array ? new Uint8Array(slots) : new Uint32Array(slots),
    used: 0,
  };
  for (let at = 0; at < prints.length; at += 1) {
    const print = prints[at] ?? 0;
    const group = groups[at] ?? 0;
    if (print !== 0 && live[group] === 1) place(shard, print, group, live);
  }
  return shard;
}

/** Sorts prints by their shards: `ends[n]` is where those of shard n end. So each shard is in the cache once. */
function sortByShard({ lows, highs }: KeyHashes): { readonly prints: Uint32Array; readonly ends: Uint32Array } {
  const ends = new Uint32Array(shardCount + 1);
  const shardOf = (index: number): number => (highs[index] ?? 0) >>> (32 - shardBits);
  for (let index = 0; index < highs.length; index += 1) {
    const next = shardOf(index) + 1;
    ends[next] = (ends[next] ?? 0) + 1;
  }
  for (let shard = 1; shard < shardCount; shard += 1) ends[shard] = (ends[shard] ?? 0) + (ends[shard - 1] ?? 0);
  const prints = new Uint32Array(lows.length);
  for (let index = 0; index < lows.length; index += 1) {
    const shard = shardOf(index);
    const at = ends[shard] ?? 0;
    prints[at] = printOf(lows[index] ?? 0);
    ends[shard] = at + 1;
  }
  return { prints, ends };
}

/** Hands out the numbers of groups, and takes back those that no key has any more. */
function createGroups(range: GroupRange) {
  const most = range === '255' ? 255 : 2 ** 32 - 1;
  let live: LiveGroups = new Uint8Array(256);
  let newest = 0;
  /** Those that were dropped, the first one first, and how many shards will have been wiped when they are free. */
  const dropped: { readonly group: number; readonly atWiped: number }[] = [];
  let wiped = 0;
  return {
    live: (): LiveGroups => live,
    add(): number | undefined {
      const isFree = dropped[0] !== undefined && dropped[0].atWiped <= wiped;
      const group = isFree ? dropped.shift()?.group : newest < most ? (newest += 1) : undefined;
      if (group === undefined) return undefined;
      if (group >= live.length) {
        const longer = new Uint8Array(live.length * 2);
        longer.set(live);
        live = longer;
      }
      live[group] = 1;
      return group;
    },
    drop(group: number): void {
      live[group] = 0;
      if (range === '255') dropped.push({ group, atWiped: wiped + shardCount });
    },
    /** The shards to wipe next: none where no number waits for it. */
    takeTurn(): number[] {
      if (dropped.length === 0) return [];
      wiped += shardsATurn;
      return Array.from({ length: shardsATurn }, (_, index) => (wiped + index) % shardCount);
    },
  };
}

const nowhere: readonly number[] = [];

/** Creates the set, empty. */
export function createKeySet(range: GroupRange): KeySet {
  const groups = createGroups(range);
  const empty: Shard = {
    prints: new Uint32Array(1),
    groups: range === '255' ? new Uint8Array(1) : new Uint32Array(1),
    used: 0,
  };
  const shards = Array.from({ length: shardCount }, () => empty);
  const shardAt = (index: number): Shard => shards[index] ?? empty;

  /** Makes a shard anew, without what was dropped, and with room for so many keys more. */
  function renew(index: number, more: number): Shard {
    const grownTo = (keys: number): number =>
      Math.max(leastSlots, Math.ceil(((keys + more) * growthOf(index)) / mostFull));
    const shard = rebuild(shardAt(index), groups.live(), grownTo);
    shards[index] = shard;
    return shard;
  }

  return {
    add(hashes, group) {
      const { prints, ends } = sortByShard(hashes);
      const live = groups.live();
      let at = 0;
      for (let index = 0; index < shardCount; index += 1) {
        const end = ends[index] ?? 0;
        if (at === end) continue;
        const more = end - at;
        const hasRoom = shardAt(index).used + more <= shardAt(index).prints.length * mostFull;
        const shard = hasRoom ? shardAt(index) : renew(index, more);
        for (; at < end; at += 1) place(shard, prints[at] ?? 0, group, live);
      }
    },
    find(low, high) {
      const shard = shardAt(high >>> (32 - shardBits));
      const print = printOf(low);
      const live = groups.live();
      let found: number[] | undefined;
      let at = homeOf(print, shard.prints.length);
      for (let other = shard.prints[at]; other !== 0; other = shard.prints[at]) {
        const group = shard.groups[at] ?? 0;
        if (other === print && live[group] === 1) (found ??= []).push(group);
        at = at + 1 === shard.prints.length ? 0 : at + 1;
      }
      return found ?? nowhere;
    },
    addGroup() {
      for (const index of groups.takeTurn()) if (shardAt(index).used > 0) renew(index, 0);
      return groups.add();
    },
    dropGroup: (group) => groups.drop(group),
    get size() {
      return shards.reduce((sum, { used }) => sum + used, 0);
    },
    get bytes() {
      const ofShards = shards.reduce((sum, shard) => sum + shard.prints.byteLength + shard.groups.byteLength, 0);
      return ofShards + groups.live().byteLength;
    },
  };
}
