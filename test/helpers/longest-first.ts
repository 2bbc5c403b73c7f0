import { existsSync } from 'node:fs';
import path from 'node:path';
import { BaseSequencer, type TestSpecification } from 'vitest/node';
import { isLongRun } from './chaos.ts';

/** The files that take longest, in order, per form. The lists are fixed, because a new clone has no measured times. */
const longest = {
  short: [
    'e2e/console',
    'e2e/several-hosts',
    'e2e/move',
    'e2e/bucket',
    'e2e/operator-pages',
    'integration/admin/move',
    'integration/tenants',
    'chaos/commit-crash',
    'integration/export/hosts',
    'chaos/kills',
    'e2e/person-pages',
    'integration/export/versions',
    'e2e/added-dataset',
    'e2e/event',
    'e2e/service',
    'integration/stream/cluster',
    'integration/export/first-seen',
    'chaos/folder-owners',
    'integration/admin/erase',
    'integration/export/slices',
    'integration/export/schedules',
    'e2e/upgrade-0.3',
    'integration/export/files',
    'e2e/tls-broker',
    'chaos/change-feed',
    'e2e/demo',
    'integration/export/every-event',
    'chaos/foreign-ids',
    'integration/admin/dataset-tables',
    'e2e/commands',
    'integration/compact/catalogue-changes',
    'integration/compact-nats',
    'integration/stream/stream',
    'chaos/timed/full-disk',
    'chaos/stream-owners',
    'integration/export/formats',
    'integration/lake/dataset-tables',
    'integration/lake/snapshot-sql',
    'e2e/clients',
    'integration/export/fixtures',
    'integration/lake/query',
    'e2e/starting',
    'integration/admin/backup',
    'chaos/hardening',
    'integration/processes/supervisor',
    'integration/export/derived',
    'integration/lake/foreign-commit',
    'chaos/damage-broker',
    'integration/export/kills',
    'chaos/erasure',
    'integration/admin/replay-keys',
    'integration/admin/load',
    'integration/client/export',
    'e2e/sender-view',
    'integration/export/dry-run',
    'integration/stream/restored-stream',
    'chaos/refusing',
    'integration/compact/merge-day',
    'integration/compact/stream-faults',
    'integration/compact/merge-task',
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
