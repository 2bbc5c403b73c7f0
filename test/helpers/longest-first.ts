import { existsSync } from 'node:fs';
import path from 'node:path';
import { BaseSequencer, type TestSpecification } from 'vitest/node';
import { isLongRun } from './chaos.ts';

/**
 * The files that take longest, longest first, in the short form and in the long one. By hand: a fresh clone has
 * measured nothing yet, and goes by size.
 */
const longest = {
  short: [
    'chaos/kills',
    'chaos/commit-crash',
    'chaos/simulator',
    'integration/export/every-event',
    'chaos/folder-owners',
    'e2e/demo',
    'chaos/stream-owners',
    'chaos/planted-defects',
    'chaos/clock-steps',
    'integration/compact-nats',
    'chaos/damage-lake',
    'integration/export/segments',
    'chaos/refusing',
    'integration/operate/backup',
    'e2e/commands',
    'integration/lake/foreign-commit',
    'integration/export/jobs',
    'integration/compact-history',
    'integration/compact/keys',
    'chaos/backup',
    'e2e/operating-page',
    'integration/operate/replay-keys',
    'chaos/erasure',
    'chaos/power-cut',
    'integration/operate/dataset-tables',
    'chaos/export-kills',
    'chaos/timed/stalled-broker',
    'unit/compact/followers',
    'integration/operate/erase',
    'chaos/keys-reused',
    'integration/processes/supervisor',
    'chaos/replay',
    'integration/stream/stream',
    'integration/stream/restored-stream',
    'integration/export/files',
    'integration/lake/dataset-tables',
    'e2e/service',
    'integration/export/derived',
    'chaos/timed/hostile-clients',
    'integration/operate/load',
    'chaos/disk-errors',
    'integration/enrichment/other-readers',
    'e2e/starting',
    'chaos/taken-back',
    'integration/compact/memory',
    'integration/operate/enrich',
    'chaos/timed/full-disk',
    'chaos/compactor-kills',
  ],
  long: [
    'chaos/everything',
    'chaos/kills',
    'chaos/backup',
    'chaos/taken-back',
    'chaos/simulator',
    'chaos/keys-reused',
    'chaos/power-cut',
    'chaos/erasure',
    'chaos/stream-owners',
    'chaos/disk-errors',
    'chaos/commit-crash',
    'chaos/planted-defects',
    'chaos/clock-steps',
    'chaos/folder-owners',
    'chaos/export-kills',
    'chaos/compactor-kills',
    'chaos/replay',
    'chaos/foreign-engines',
  ],
} as const satisfies Record<string, readonly string[]>;

const root = path.resolve(import.meta.dirname, '..');

/**
 * Begins with the files that take longest, so that none of them is left to run alone at the end; the others follow in
 * vitest's own order.
 */
export class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const order = longest[isLongRun ? 'long' : 'short'].map((name) => path.join(root, `${name}.test.ts`));
    const gone = order.find((file) => !existsSync(file));
    if (gone !== undefined) throw new Error(`${gone} is gone: take it out of longest-first.ts`);
    const rankOf = ({ moduleId }: TestSpecification): number =>
      order.includes(moduleId) ? order.indexOf(moduleId) : order.length;
    // oxlint-disable-next-line unicorn/no-array-sort -- it is the sequencer's
    const others = await super.sort(files);
    return others.toSorted((a, b) => rankOf(a) - rankOf(b));
  }
}
