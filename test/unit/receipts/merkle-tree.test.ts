import { createHash } from 'node:crypto';
import { expect, test } from 'vitest';
import { buildTree, followPath, hashLeaf } from '../../../src/receipts/merkle-tree.ts';

/** Returns the tree hash of RFC 6962, section 2.1. */
function defineRoot(leaves: readonly Buffer[]): Buffer {
  const [only] = leaves;
  if (leaves.length === 1 && only !== undefined) return only;
  let split = 1;
  while (split * 2 < leaves.length) split *= 2;
  const [left, right] = [defineRoot(leaves.slice(0, split)), defineRoot(leaves.slice(split))];
  return createHash('sha256')
    .update(Buffer.concat([Buffer.from([1]), left, right]))
    .digest();
}

const leavesOf = (size: number): Buffer[] => Array.from({ length: size }, (_, n) => hashLeaf(`leaf ${n} of ${size}`));
const everySize = [...Array.from({ length: 70 }, (_, n) => n + 1), 127, 128, 129, 1000, 1999, 2000];

test('A tree has the root that certificate transparency publishes for its eight test leaves', () => {
  const data = ['', '00', '10', '2021', '3031', '40414243', '5051525354555657', '606162636465666768696a6b6c6d6e6f'];
  const leaves = data.map((hex) => hashLeaf(Buffer.from(hex, 'hex').toString('latin1')));
  expect(buildTree(leaves).root.toString('hex')).toBe(
    '5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328',
  );
});

test('The root of 1 to 2,000 leaves is that of RFC 6962, and the path of each leaf leads to it', () => {
  for (const size of everySize) {
    const leaves = leavesOf(size);
    const { root, pathOf } = buildTree(leaves);
    expect(root.equals(defineRoot(leaves)), `${size} leaves`).toBe(true);
    const led = leaves.filter((leaf, index) => followPath(leaf, { index, size, path: pathOf(index) })?.equals(root));
    expect(led.length, `${size} leaves`).toBe(size);
    expect(pathOf(0).length).toBe(Math.ceil(Math.log2(size)));
  }
});

test('A path leads to the root only from its own leaf and index', () => {
  for (const size of [1, 2, 3, 5, 8, 13]) {
    const leaves = leavesOf(size);
    const { root, pathOf } = buildTree(leaves);
    for (const [index, leaf] of leaves.entries()) {
      const path = pathOf(index);
      const elsewhere = leaves.map((_, at) => followPath(leaf, { index: at, size, path })?.equals(root) ?? false);
      expect(elsewhere).toEqual(leaves.map((_, at) => at === index));
      expect(followPath(leaf, { index: size, size, path })).toBeUndefined();
      expect(followPath(leaf, { index, size, path: [...path, root.toString('hex')] })).toBeUndefined();
      const shorter = followPath(leaf, { index, size, path: path.slice(1) });
      expect(shorter === undefined || path.length === 0).toBe(true);
      expect(followPath(hashLeaf('another'), { index, size, path })?.equals(root)).toBe(false);
    }
  }
});
