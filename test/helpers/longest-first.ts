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
    'integration/export/every-event',
    'chaos/kills',
    'integration/lake/python-readers',
    'e2e/console',
    'chaos/simulator',
    'chaos/commit-crash',
    'chaos/folder-owners',
    'e2e/demo',
    'integration/operate/replay-keys',
    'chaos/stream-owners',
    'integration/operate/dataset-tables',
    'integration/compact-nats',
    'chaos/clock-steps',
    'chaos/planted-defects',
    'e2e/operating-page',
    'chaos/refusing',
    'integration/operate/load',
    'chaos/erasure',
    'integration/export/segments',
    'chaos/backup',
    'integration/export/files',
    'integration/stream/restored-stream',
    'integration/lake/foreign-commit',
    'integration/export/jobs',
    'chaos/power-cut',
    'unit/compact/followers',
    'integration/operate/enrich',
    'e2e/service',
    'chaos/disk-errors',
    'chaos/export-kills',
    'integration/stream/stream',
    'integration/enrichment/other-readers',
    'integration/operate/backup',
    'integration/export/derived',
    'integration/export/fixtures',
    'chaos/timed/stalled-broker',
    'integration/processes/supervisor',
    'integration/lake/dataset-tables',
    'integration/operate/erase',
    'chaos/timed/hostile-clients',
    'chaos/replay',
    'chaos/damage-lake',
    'integration/compact/memory',
    'e2e/starting',
    'chaos/compactor-kills',
    'chaos/keys-reused',
    'e2e/commands',
    'chaos/timed/full-disk',
    'integration/export/links',
    'integration/compact-history',
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
