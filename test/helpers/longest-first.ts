import { existsSync } from 'node:fs';
import path from 'node:path';
import { BaseSequencer, type TestSpecification } from 'vitest/node';
import { isLongRun } from './chaos.ts';

/** The files that take longest, in order, per form. The lists are fixed, because a new clone has no measured times. */
const longest = {
  short: [
    'integration/export/every-event',
    'chaos/kills',
    'chaos/folder-owners',
    'e2e/console',
    'integration/admin/dataset-tables',
    'integration/admin/backup',
    'e2e/clients',
    'e2e/service',
    'e2e/demo',
    'chaos/commit-crash',
    'chaos/refusing',
    'chaos/stream-owners',
    'integration/export/slices',
    'integration/admin/erase',
    'e2e/sender-view',
    'e2e/event',
    'integration/admin/replay-keys',
    'integration/export/jobs',
    'integration/lake/dataset-tables',
    'integration/compact/catalogue-changes',
    'integration/export/files',
    'integration/packing',
    'chaos/damage-lake',
    'integration/compact/catalogue',
    'e2e/added-dataset',
    'chaos/erasure',
    'integration/compact-nats',
    'integration/export/segments',
    'integration/lake/foreign-commit',
    'integration/admin/load-damaged',
    'integration/export/fixtures',
    'integration/stream/restored-stream',
    'integration/export/schedules',
    'integration/admin/load-values',
    'chaos/hardening',
    'integration/export/versions',
    'chaos/change-feed',
    'integration/compact/schema-task',
    'integration/lake/spilled-keys',
    'integration/compact/secondary-tables',
    'chaos/simulator',
    'integration/stream/stream',
    'integration/admin/load',
    'e2e/person-pages',
    'integration/lake/query',
    'integration/lake/group-access',
    'e2e/starting',
    'integration/ingest/broker-trouble',
    'chaos/timed/hostile-clients',
    'integration/export/links',
    'integration/processes/supervisor',
    'integration/compact/memory',
    'chaos/timed/full-disk',
    'chaos/disk-errors',
    'chaos/power-cut',
    'chaos/backup',
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
 * Runs the files that take longest first, so that none of them runs alone at the end; the others follow in vitest's
 * order.
 */
export class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const order = longest[isLongRun ? 'long' : 'short'].map((name) => path.join(root, `${name}.test.ts`));
    const gone = order.find((file) => !existsSync(file));
    if (gone !== undefined) throw new Error(`${gone} is missing: remove it from longest-first.ts`);
    const rankOf = ({ moduleId }: TestSpecification): number =>
      order.includes(moduleId) ? order.indexOf(moduleId) : order.length;
    // oxlint-disable-next-line unicorn/no-array-sort -- it is the sequencer's
    const others = await super.sort(files);
    return others.toSorted((a, b) => rankOf(a) - rankOf(b));
  }
}
