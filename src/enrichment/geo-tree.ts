/** The shape of the search tree of an MMDB file, by its metadata. */
export interface GeoTreeShape {
  readonly nodeCount: number;
  /** Bits of each of the two records of a node: 24, 28 or 32. */
  readonly recordSize: number;
  readonly ipVersion: 4 | 6;
}

/**
 * The search tree of an MMDB file, at whose beginning it stands. Answers the record of the tree that an address leads
 * to, a number above `nodeCount` by which the data are found; undefined where it leads to none.
 */
export interface GeoTree {
  /** `groups`: the numbers of 16 bits of an address, two of an IPv4 address and eight of an IPv6 one. */
  find(groups: readonly number[]): number | undefined;
}

/** The record of a node for a bit that is 0 or 1. */
type ReadRecord = (node: number, bit: number) => number;

function createReadRecord(bytes: Buffer, recordSize: number): ReadRecord {
  // Each index is below the size of the tree, which is in the file.
  const at = (index: number): number => bytes[index] ?? 0;
  const read24 = (index: number): number => (at(index) << 16) | (at(index + 1) << 8) | at(index + 2);
  if (recordSize === 24) return (node, bit) => read24(node * 6 + bit * 3);
  if (recordSize === 28)
    return (node, bit) => {
      const middle = at(node * 7 + 3);
      return ((bit === 0 ? middle >> 4 : middle & 15) << 24) | read24(node * 7 + bit * 4);
    };
  return (node, bit) => bytes.readUInt32BE(node * 8 + bit * 4);
}

const groupBits = 16;

/**
 * Makes the tree of a file ready. The first half of each IPv4 address is looked up here once: 65,536 numbers, 256 KB
 * and some milliseconds, however large the tree is.
 */
export function createGeoTree(bytes: Buffer, { nodeCount, recordSize, ipVersion }: GeoTreeShape): GeoTree {
  const readRecord = createReadRecord(bytes, recordSize);

  function walk(from: number, group: number): number {
    let node = from;
    for (let bit = groupBits - 1; bit >= 0 && node < nodeCount; bit -= 1) node = readRecord(node, (group >>> bit) & 1);
    return node;
  }

  // In a tree of IPv6 the IPv4 addresses lie behind 96 bits that are 0.
  let root = 0;
  if (ipVersion === 6) for (let group = 0; group < 6; group += 1) root = walk(root, 0);
  const halves = new Uint32Array(2 ** groupBits);
  const fill = (node: number, first: number, count: number): void => {
    if (count === 1 || node >= nodeCount) {
      halves.fill(node, first, first + count);
      return;
    }
    fill(readRecord(node, 0), first, count / 2);
    fill(readRecord(node, 1), first + count / 2, count / 2);
  };
  fill(root, 0, halves.length);

  return {
    find(groups) {
      const [first = 0, second = 0] = groups;
      const node =
        groups.length === 2
          ? walk(halves[first] ?? nodeCount, second)
          : groups.reduce((from, group) => walk(from, group), 0);
      return node > nodeCount ? node : undefined;
    },
  };
}
