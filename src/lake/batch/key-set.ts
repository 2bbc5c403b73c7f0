import type { Duckdb } from '../sql/duckdb.ts';

export interface KeyHashes {
  readonly lows: Uint32Array;
  readonly highs: Uint32Array;
}

interface RowHashes extends KeyHashes {
  readonly rows: Uint32Array;
}

const none = new Uint32Array();

/** Reads the hashes of a column of a query, `from` FROM on. `row`: SQL of row numbers, if needed. */
export async function readHashes(duckdb: Duckdb, column: string, from: string, row?: string): Promise<RowHashes> {
  const [lows = none, highs = none, rows = none] = await duckdb.integers(
    `SELECT (hash(${column}) & 4294967295)::UINTEGER, (hash(${column}) >> 32)::UINTEGER${row === undefined ? '' : `, ${row}::UINTEGER`} ${from}`,
  );
  return { lows, highs, rows };
}

/** Range of group ids. With 255 at a time a key takes 6 to 9 bytes, with any number 10 to 14. */
export type GroupRange = '255' | 'any';

/** Bits of hashes that select a shard, so that growing one takes well under a millisecond. */
const shardBits = 12;
const shardCount = 2 ** shardBits;
const minSlots = 8;
const maxFillRatio = 0.8;
/** Growth factors differ, so that shards do not grow all at once. */
const growthOf = (shard: number): number => 1.2 + (0.3 * shard) / shardCount;
/** Shards that are cleaned of dropped groups per new group. */
const shardsATurn = shardCount / 16;

interface Shard {
  /** Low halves of the hashes; 0: an empty slot. */
  readonly prints: Uint32Array;
  readonly groups: Uint8Array | Uint32Array;
  used: number;
}

type LiveGroups = Uint8Array;

const printOf = (low: number): number => (low === 0 ? 1 : low);
/** Start of the search for a print, proportional to it, for any number of slots. */
const homeOf = (print: number, slots: number): number => Math.floor((print * slots) / 2 ** 32);

function insertKey(shard: Shard, print: number, group: number, live: LiveGroups): void {
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

/** Copies a shard without the keys of dropped groups. `grownTo` returns its number of slots. */
function rebuild({ prints, groups }: Shard, live: LiveGroups, grownTo: (keys: number) => number): Shard {
  let liveKeys = 0;
  for (let at = 0; at < prints.length; at += 1) if (prints[at] !== 0 && live[groups[at] ?? 0] === 1) liveKeys += 1;
  const slots = grownTo(liveKeys);
  const shard = {
    prints: new Uint32Array(slots),
    groups: groups instanceof Uint8Array ? new Uint8Array(slots) : new Uint32Array(slots),
    used: 0,
  };
  for (let at = 0; at < prints.length; at += 1) {
    const print = prints[at] ?? 0;
    const group = groups[at] ?? 0;
    if (print !== 0 && live[group] === 1) insertKey(shard, print, group, live);
  }
  return shard;
}

/** Sorts prints by shard, so that each shard is in the CPU cache once. `ends[n]`: end of shard n. */
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

/** Allocates group ids, and reuses those whose keys were all wiped. */
function createGroups(range: GroupRange) {
  const maxGroup = range === '255' ? 255 : 2 ** 32 - 1;
  let live: LiveGroups = new Uint8Array(256);
  let newest = 0;
  /** In order, with the count of wiped shards at which the id is free. */
  const dropped: { readonly group: number; readonly atWiped: number }[] = [];
  let wiped = 0;
  return {
    live: (): LiveGroups => live,
    add(): number | undefined {
      const isFree = dropped[0] !== undefined && dropped[0].atWiped <= wiped;
      const group = isFree ? dropped.shift()?.group : newest < maxGroup ? (newest += 1) : undefined;
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
    takeTurn(): number[] {
      if (dropped.length === 0) return [];
      wiped += shardsATurn;
      return Array.from({ length: shardsATurn }, (_, index) => (wiped + index) % shardCount);
    },
  };
}

const nowhere: readonly number[] = [];

/**
 * Maps hashed keys to the groups (such as files) that have them, with false hits once in 2^44 / `size`. Off the heap.
 */
export function createKeySet(range: GroupRange) {
  const groups = createGroups(range);
  const empty: Shard = {
    prints: new Uint32Array(1),
    groups: range === '255' ? new Uint8Array(1) : new Uint32Array(1),
    used: 0,
  };
  const shards = Array.from({ length: shardCount }, () => empty);
  const shardAt = (index: number): Shard => shards[index] ?? empty;

  function renew(index: number, more: number): Shard {
    const grownTo = (keys: number): number =>
      Math.max(minSlots, Math.ceil(((keys + more) * growthOf(index)) / maxFillRatio));
    const shard = rebuild(shardAt(index), groups.live(), grownTo);
    shards[index] = shard;
    return shard;
  }

  function find(low: number, high: number): readonly number[] {
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
  }

  return {
    /** Adds keys of a group, replacing equal keys of dropped groups. */
    add(hashes: KeyHashes, group: number) {
      const { prints, ends } = sortByShard(hashes);
      const live = groups.live();
      let at = 0;
      for (let index = 0; index < shardCount; index += 1) {
        const end = ends[index] ?? 0;
        if (at === end) continue;
        const more = end - at;
        const hasRoom = shardAt(index).used + more <= shardAt(index).prints.length * maxFillRatio;
        const shard = hasRoom ? shardAt(index) : renew(index, more);
        for (; at < end; at += 1) insertKey(shard, prints[at] ?? 0, group, live);
      }
    },
    find,
    /** Returns pairs of a row and a group for the hashes. */
    findEach({ lows, highs, rows }: RowHashes) {
      const found: { readonly rows: number[]; readonly groups: number[] } = { rows: [], groups: [] };
      for (const [index, row] of rows.entries())
        for (const group of find(lows[index] ?? 0, highs[index] ?? 0)) {
          found.rows.push(row);
          found.groups.push(group);
        }
      return found;
    },
    addGroup() {
      for (const index of groups.takeTurn()) if (shardAt(index).used > 0) renew(index, 0);
      return groups.add();
    },
    /** Drops a group. Its slots and its id are reused later. */
    dropGroup: (group: number) => groups.drop(group),
    /** Number of keys, including those of dropped groups in slots that were not reused yet. */
    get size() {
      return shards.reduce((sum, { used }) => sum + used, 0);
    },
    get bytes() {
      const ofShards = shards.reduce((sum, shard) => sum + shard.prints.byteLength + shard.groups.byteLength, 0);
      return ofShards + groups.live().byteLength;
    },
  };
}

export type KeySet = ReturnType<typeof createKeySet>;
