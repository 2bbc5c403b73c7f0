import { describe, expect, it } from 'vitest';
import { createDueRows, type PartitionGroup } from '../../../src/compact/seal/seal-policy.ts';
import { waitFor } from '../../helpers/wait.ts';

const nowMs = Date.parse('2026-03-10T12:00:00Z');
const hourMs = 3_600_000;

function group(date: string, oldestMs: number, rows = 10): PartitionGroup {
  return { partition: { kind: 'custom', date }, rows, oldestMs, files: ['/lake/young/a.parquet'] };
}

describe('the seal policy', () => {
  it('Rows are due after their wait, which is a day for dates long past', () => {
    const due = createDueRows({ sealAgeMs: hourMs, sealMaxBytes: 1e9 });
    const [today, longAgo] = [group('2026-03-10', nowMs - hourMs), group('2025-03-10', nowMs - hourMs)];
    expect(due.find([today, longAgo], [], nowMs)).toEqual([today]);
    expect(due.find([group('2026-03-10', nowMs - hourMs + 1)], [], nowMs)).toEqual([]);
    expect(due.find([group('2025-03-10', nowMs - 24 * hourMs)], [], nowMs)).toHaveLength(1);
  });

  it('Rows of dates long past are due together, once the time of one has passed', () => {
    const due = createDueRows({ sealAgeMs: hourMs, sealMaxBytes: 1e9 });
    const partitionGroups = [24, 18, 17].map((hours, index) => group(`2025-03-1${index}`, nowMs - hours * hourMs));
    expect(due.find(partitionGroups, [], nowMs)).toEqual(partitionGroups.slice(0, 2));
  });

  it('Rows are due after a new wait when the clock was set back behind them, and again only after another', async () => {
    const ahead = [group('2026-03-10', nowMs + 1000 * hourMs)];
    expect(createDueRows({ sealAgeMs: hourMs, sealMaxBytes: 1e9 }).find(ahead, [], nowMs)).toEqual([]);
    const due = createDueRows({ sealAgeMs: 50, sealMaxBytes: 1e9 });
    expect(due.find(ahead, [], nowMs)).toEqual([]);
    await waitFor('they are due', () => due.find(ahead, [], nowMs).length === 1);
    expect(due.find(ahead, [], nowMs)).toEqual(ahead);
    due.sealed(ahead);
    expect(due.find(ahead, [], nowMs)).toEqual([]);
  });

  it('Rows are due by their wait so far when the clock has caught up with them', async () => {
    const due = createDueRows({ sealAgeMs: 50, sealMaxBytes: 1e9 });
    const ahead = [group('2026-03-10', nowMs + 20)];
    expect(due.find(ahead, [], nowMs)).toEqual([]);
    await waitFor('their wait has ended', () => due.find(ahead, [], nowMs).length === 1);
    expect(due.find(ahead, [], nowMs + 20)).toEqual(ahead);
    expect(createDueRows({ sealAgeMs: 50, sealMaxBytes: 1e9 }).find(ahead, [], nowMs + 20)).toEqual([]);
  });
});
