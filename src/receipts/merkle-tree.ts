import { createHash } from 'node:crypto';

/**
 * The Merkle tree of RFC 6962 over SHA-256: a leaf is the hash of a zero byte and its data, a node that of a one byte
 * and its children, the left one over the largest power of two of leaves. The first bytes distinguish nodes from
 * leaves.
 */

const leafPrefix = Buffer.from([0]);
const nodePrefix = Buffer.from([1]);

export function hashLeaf(data: string): Buffer {
  return createHash('sha256').update(leafPrefix).update(data).digest();
}

function hashNode(left: Buffer, right: Buffer): Buffer {
  return createHash('sha256').update(nodePrefix).update(left).update(right).digest();
}

/** Builds the tree of at least one leaf. `pathOf`: the sibling hashes from a leaf to the root, hex. */
export function buildTree(leaves: readonly Buffer[]) {
  // The last node of an odd level moves up unchanged, which gives the same tree.
  const levels: (readonly Buffer[])[] = [leaves];
  for (let level = leaves; level.length > 1;) {
    const above: Buffer[] = [];
    for (let at = 0; at < level.length; at += 2) {
      const [left, right] = [level[at], level[at + 1]];
      if (left !== undefined) above.push(right === undefined ? left : hashNode(left, right));
    }
    levels.push(above);
    level = above;
  }
  const [root] = levels.at(-1) ?? [];
  if (root === undefined) throw new Error('a tree has at least one leaf');
  // Rendered once: upper nodes are on the paths of many leaves.
  const siblingLevels = levels.slice(0, -1).map((level) => level.map((node) => node.toString('hex')));
  return {
    root,
    pathOf: (index: number): readonly string[] =>
      siblingLevels.flatMap((level, height) => level[(index >>> height) ^ 1] ?? []),
  };
}

/** Returns the root that a path leads to from a leaf of a tree of `size`; undefined if no such tree has such a path. */
export function followPath(
  leaf: Buffer,
  { index, size, path }: { readonly index: number; readonly size: number; readonly path: readonly string[] },
): Buffer | undefined {
  if (index >= size) return undefined;
  let hash = leaf;
  let used = 0;
  for (let [at, last] = [index, size - 1]; last > 0; at >>>= 1, last >>>= 1) {
    // The last node of an odd level has no sibling.
    if (at === last && at % 2 === 0) continue;
    const hex = path[used];
    if (hex === undefined) return undefined;
    const sibling = Buffer.from(hex, 'hex');
    hash = at % 2 === 0 ? hashNode(hash, sibling) : hashNode(sibling, hash);
    used += 1;
  }
  return used === path.length ? hash : undefined;
}
