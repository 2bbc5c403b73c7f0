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
    'e2e/demo',
    'chaos/commit-crash',
    'integration/export/every-event',
    'chaos/folder-owners',
    'chaos/stream-owners',
    'integration/export/files',
    'chaos/simulator',
    'chaos/planted-defects',
    'chaos/clock-steps',
    'chaos/backup',
    'integration/compact-nats',
    'chaos/erasure',
    'chaos/refusing',
    'e2e/service',
    'integration/export/fixtures',
    'integration/export/jobs',
    'e2e/operating-page',
    'integration/operate/replay-keys',
    'integration/enrichment/other-readers',
    'integration/export/segments',
    'integration/operate/backup',
    'integration/lake/foreign-commit',
    'chaos/replay',
    'chaos/power-cut',
    'integration/compact-history',
    'integration/lake/python-readers',
    'chaos/export-kills',
    'integration/compact/keys',
    'chaos/damage-lake',
    'e2e/commands',
    'chaos/taken-back',
    'chaos/timed/stalled-broker',
    'chaos/keys-reused',
    'integration/processes/supervisor',
    'chaos/compactor-kills',
    'integration/operate/erase',
    'chaos/timed/hostile-clients',
    'integration/stream/restored-stream',
    'integration/stream/stream',
    'integration/operate/enrich',
    'integration/compact/memory',
    'integration/lake/dataset-tables',
    'chaos/disk-errors',
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
