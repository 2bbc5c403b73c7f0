import { existsSync } from 'node:fs';
import path from 'node:path';
import { BaseSequencer, type TestSpecification } from 'vitest/node';
import { isLongRun } from './chaos.ts';

/** The files that take longest, in order, per form. The lists are fixed, because a new clone has no measured times. */
const longest = {
  short: [
    'integration/export/every-event',
    'integration/admin/dataset-tables',
    'e2e/console',
    'e2e/service',
    'integration/admin/backup',
    'integration/admin/move',
    'chaos/kills',
    'integration/stream/cluster',
    'integration/admin/erase',
    'e2e/event',
    'e2e/move',
    'integration/export/slices',
    'chaos/folder-owners',
    'integration/export/hosts',
    'e2e/bucket',
    'integration/export/versions',
    'e2e/operator-pages',
    'integration/compact-nats',
    'e2e/commands',
    'e2e/sender-view',
    'integration/export/schedules',
    'chaos/commit-crash',
    'integration/export/jobs',
    'integration/stream/restored-stream',
    'integration/export/files',
    'integration/lake/snapshot-sql',
    'chaos/hardening',
    'e2e/person-pages',
    'integration/export/dry-run',
    'integration/compact/catalogue-changes',
    'integration/lake/dataset-tables',
    'chaos/refusing',
    'integration/compact/stream-faults',
    'integration/tenants',
    'integration/admin/replay-keys',
    'e2e/tls-broker',
    'e2e/upgrade-0.3',
    'chaos/damage-broker',
    'integration/compact/schema-task',
    'integration/lake/query',
    'integration/lake/group-access',
    'integration/admin/load',
    'e2e/starting',
    'integration/stream/stream',
    'e2e/demo',
    'e2e/added-dataset',
    'e2e/compressed-stream',
    'e2e/clients',
    'integration/processes/supervisor',
    'chaos/stream-owners',
    'integration/lake/foreign-commit',
    'integration/lake/copied-folder',
    'chaos/change-feed',
    'integration/export/kills',
    'integration/compact/seal-size',
    'chaos/timed/full-disk',
    'e2e/receipts',
    'integration/compact/keys',
    'integration/compact/catalogue',
    'integration/compact/secondary-tables',
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
