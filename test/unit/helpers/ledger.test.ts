import { describe, expect, it } from 'vitest';
import { assertExactlyOnce, createLedger, reconcile, type StoredEvent } from '../../helpers/ledger.ts';

const row = (id: string, changes: Partial<StoredEvent> = {}): StoredEvent => ({
  id,
  rows: 1,
  eventIds: 1,
  whole: true,
  ...changes,
});

function ledgerOfFour() {
  const ledger = createLedger('run');
  const ids = Array.from({ length: 4 }, () => ledger.nextId());
  ledger.record(ids.slice(0, 2), 'acknowledged');
  ledger.record(ids.slice(2, 3), 'refused');
  return ledger;
}

describe('the ledger', () => {
  it('The ledger stores the outcome of each event, which is unknown until it is recorded', () => {
    const ledger = ledgerOfFour();
    expect(ledger.totals()).toEqual({ sent: 4, acknowledged: 2, refused: 1, unknown: 1 });
    expect(['run-0', 'run-2', 'run-3', 'run-4', 'run-', 'other-1', 'run-1x'].map((id) => ledger.outcomeOf(id))).toEqual(
      ['acknowledged', 'refused', 'unknown', undefined, undefined, undefined, undefined],
    );
    expect(() => ledger.record(['run-9'], 'refused')).toThrow('run-9');
  });

  it('The ledger accepts a lake with every acknowledged event once, with or without the unknown ones', () => {
    const without = reconcile(ledgerOfFour(), [row('run-0'), row('run-1')]);
    expect(without).toMatchObject({
      sent: 4,
      stored: 2,
      unknownStored: 0,
      lost: [],
      doubled: [],
      invented: [],
      damaged: [],
    });
    expect(() => assertExactlyOnce(without)).not.toThrow();
    const withUnknown = reconcile(ledgerOfFour(), [row('run-0'), row('run-1'), row('run-3')]);
    expect(withUnknown).toMatchObject({ stored: 3, unknownStored: 1 });
    expect(() => assertExactlyOnce(withUnknown)).not.toThrow();
  });

  it.each([
    ['lost', [row('run-0')], 'run-1'],
    ['doubled', [row('run-0', { rows: 2 }), row('run-1')], 'run-0'],
    ['doubled', [row('run-0', { rows: 2, eventIds: 2 }), row('run-1')], 'run-0'],
    ['doubled', [row('run-0'), row('run-1'), row('run-3', { rows: 2 })], 'run-3'],
    ['invented', [row('run-0'), row('run-1'), row('run-2')], 'run-2'],
    ['invented', [row('run-0'), row('run-1'), row('null')], 'null'],
    ['damaged', [row('run-0'), row('run-1', { whole: false })], 'run-1'],
  ] as const)('The ledger finds an event that is %s', (kind, rows, id) => {
    const result = reconcile(ledgerOfFour(), rows);
    expect(result[kind]).toEqual([id]);
    expect(() => assertExactlyOnce(result)).toThrow(`${kind}: ${id}`);
  });
});
