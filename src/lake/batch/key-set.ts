/** A 64-bit hash in two halves of 32 bits. */
export interface KeyHash {
  readonly low: number;
  readonly high: number;
}

/**
 * Hashes of the keys of a table's rows, and for each the file that has the row: by it one file is read for a key that
 * may be there, and none for one that is not. A key that is not there passes for one that may be once in 10^5 times in
 * a table of 10 million rows. Some 11 to 16 bytes a key.
 */
export interface KeySet {
  /** Adds a key of a file; takes the place of the same one of a file that was dropped. */
  add(hash: KeyHash, file: number): void;
  /** The files that may have the key; those that were dropped are left out. */
  find(hash: KeyHash): number[];
  /** The number of a file whose keys are about to be added. */
  addFile(): number;
  /** The table has the file no more: its keys are in another, or gone. */
  dropFile(file: number): void;
  /** Keys, those of dropped files among them until the set grows. */
  readonly size: number;
  readonly bytes: number;
}

const leastSlots = 1024;
/** Growing by half keeps the slots between half and three quarters full. */
const mostFull = 0.75;
const growth = 1.5;
/** Of each key 40 bits are kept, the other 24 bits of its slot number the file; 0: the slot is empty. */
const fileBits = 24;
const fileMask = 2 ** fileBits - 1;

/** The slots of a set, two numbers of 32 bits each. */
interface Slots {
  readonly lows: Uint32Array;
  /** Eight more bits of the hash, then the number of the file. */
  readonly tags: Uint32Array;
}

const makeSlots = (count: number): Slots => ({ lows: new Uint32Array(count), tags: new Uint32Array(count) });

/** The same numbers in an array of twice the length. */
function lengthen(files: Uint8Array): Uint8Array<ArrayBuffer> {
  const longer = new Uint8Array(files.length * 2);
  longer.set(files);
  return longer;
}

/** Where the search for a hash begins: in proportion to it, so that any number of slots will do. */
const homeOf = (low: number, slots: number): number => Math.floor((low * slots) / 2 ** 32);

/** Creates the set, empty. */
export function createKeySet(): KeySet {
  let slots = makeSlots(leastSlots);
  let used = 0;
  let files = new Uint8Array(64);
  let fileCount = 0;
  /** Numbers of dropped files that no slot has any more. */
  let free: number[] = [];
  const isLive = (tag: number): boolean => files[tag & fileMask] === 1;

  function place(low: number, tag: number): void {
    const { lows, tags } = slots;
    let at = homeOf(low, tags.length);
    for (;;) {
      const found = tags[at] ?? 0;
      if (found === 0) break;
      const isSame = lows[at] === low && found >>> fileBits === tag >>> fileBits;
      if (isSame && (found === tag || !isLive(found))) {
        tags[at] = tag;
        return;
      }
      at = at + 1 === tags.length ? 0 : at + 1;
    }
    lows[at] = low;
    tags[at] = tag;
    used += 1;
  }

  /** Makes new slots for the keys of live files, with room for as many again by half. */
  function rebuild(): void {
    const before = slots;
    let live = 0;
    for (const tag of before.tags) if (tag !== 0 && isLive(tag)) live += 1;
    slots = makeSlots(Math.max(leastSlots, Math.ceil((live * growth) / mostFull)));
    used = 0;
    for (let at = 0; at < before.tags.length; at += 1) {
      const tag = before.tags[at] ?? 0;
      if (tag !== 0 && isLive(tag)) place(before.lows[at] ?? 0, tag);
    }
    free = [];
    for (let file = 1; file <= fileCount; file += 1) if (files[file] !== 1) free.push(file);
  }

  return {
    add({ low, high }, file) {
      if (used >= slots.tags.length * mostFull) rebuild();
      place(low, (((high & 0xff) << fileBits) | file) >>> 0);
    },
    find({ low, high }) {
      const { lows, tags } = slots;
      const found: number[] = [];
      for (let at = homeOf(low, tags.length); tags[at] !== 0; at = at + 1 === tags.length ? 0 : at + 1) {
        const tag = tags[at] ?? 0;
        if (lows[at] === low && tag >>> fileBits === (high & 0xff) && isLive(tag)) found.push(tag & fileMask);
      }
      return found;
    },
    addFile() {
      if (free.length === 0 && fileCount === fileMask) rebuild();
      const file = free.pop() ?? (fileCount += 1);
      if (file >= files.length) files = lengthen(files);
      files[file] = 1;
      return file;
    },
    dropFile(file) {
      files[file] = 0;
    },
    get size() {
      return used;
    },
    get bytes() {
      return slots.lows.byteLength + slots.tags.byteLength + files.byteLength;
    },
  };
}
