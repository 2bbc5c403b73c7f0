import assert from 'node:assert/strict';
import { emptyTotals, type LakeState, type Totals } from './lake-state.ts';

/**
 * What holds from each commit of this service to the next. Both sides of the log assert it, in constant time: the
 * writer before a commit is linked, and whoever means to write when it has read one. A failure is a fault of the
 * service, since bytes that have changed on the disk are known by their checksum: it ends in an error, and in no commit
 * on top.
 */

/** The totals that never go back. */
const growing = ['streamed', 'repeats', 'erased'] as const satisfies readonly (keyof Totals)[];

/** Asserts that every event is accounted for, that the position goes forward, and that the times keep their order. */
export function assertFollows(before: LakeState, after: LakeState): void {
  const change = Object.fromEntries(
    Object.keys(emptyTotals).map((name) => [
      name,
      after.totals[name as keyof Totals] - before.totals[name as keyof Totals],
    ]),
  ) as unknown as Totals;
  assert(
    change.streamed === change.stored + change.failed + change.repeats + change.erased,
    `a commit (${after.cause}) does not account for its events: ${JSON.stringify(change)}`,
  );
  for (const name of growing) assert(change[name] >= 0, `a commit (${after.cause}) takes ${-change[name]} off ${name}`);
  for (const [name, total] of Object.entries(after.totals))
    assert(Number.isSafeInteger(total) && total >= 0, `a commit (${after.cause}) leaves ${total} ${name}`);

  const [was, is] = [before.epoch, after.epoch];
  assert(was === undefined || is !== undefined, `a commit (${after.cause}) forgets the position`);
  if (was?.appId === is?.appId)
    assert(
      (is?.position ?? 0) >= (was?.position ?? 0),
      `a commit (${after.cause}) moves the position back, from ${was?.position} to ${is?.position}`,
    );
  assert(
    after.availableAtMs >= before.availableAtMs || after.cause === 'restamp',
    `a commit (${after.cause}) sets available_at back, from ${before.availableAtMs} to ${after.availableAtMs}`,
  );
}

/** Asserts that the two places of the log that hold the position agree; `txns`: positions by their appId. */
export function assertPosition({ epoch }: LakeState, txns: ReadonlyMap<string, number>): void {
  if (epoch === undefined) return;
  assert(
    txns.get(epoch.appId) === epoch.position,
    `the position of ${epoch.appId} is ${epoch.position} in the lake's state, and ${txns.get(epoch.appId)} in the table's`,
  );
}
